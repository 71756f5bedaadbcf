//! The text of a job file of fio: sections, and the options that hold in each.
//!
//! ```text
//! [global]        for the sections behind it
//! bs=4k           ; what stands behind ; or # is a comment
//!
//! [random-read]
//! rw=randread
//! time_based      an option without a value
//! ```

use super::Refusal;

/// One `name=value`, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) line: usize,
    pub(super) name: String,
    /// `None` without a `=`.
    pub(super) value: Option<String>,
}

/// A job, with its own options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) line: usize,
    pub(super) name: String,
    /// So many of those that hold for all stand before it.
    globals: usize,
    own: Vec<Word>,
}

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JobFile {
    globals: Vec<Word>,
    pub(super) sections: Vec<Section>,
}

impl JobFile {
    /// The options of a section: its own behind those that hold for all.
    pub(super) fn words<'a>(&'a self, section: &'a Section) -> impl Iterator<Item = &'a Word> {
        self.globals[..section.globals].iter().chain(&section.own)
    }
}

/// More than anybody writes. Each section goes through all the options that hold for it, so both have an end.
const SECTIONS_MAX: usize = 1000;
const OPTIONS_MAX: usize = 10_000;

/// Reads a file; `variable` is the environment.
pub(super) fn read(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<JobFile, Refusal> {
    let JobFile {
        mut globals,
        mut sections,
    } = JobFile::default();
    let mut options = 0;
    // Whose options follow: nobody's, everybody's, or those of the last section.
    let mut is_global = None;
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split([';', '#']).next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        if let Some(rest) = text.strip_prefix('[') {
            let Some(name) = rest.strip_suffix(']').filter(|name| !name.is_empty()) else {
                return Err(Refusal::new(line, format!("'{text}' is no section"), "[NAME]"));
            };
            is_global = Some(name == "global");
            if name != "global" {
                if sections.len() == SECTIONS_MAX {
                    let said = format!("[{name}] is one section too many");
                    return Err(Refusal::new(line, said, format!("at most {SECTIONS_MAX} sections")));
                }
                sections.push(Section {
                    line,
                    name: name.to_owned(),
                    globals: globals.len(),
                    own: Vec::new(),
                });
            }
            continue;
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (text, None),
        };
        if name.split_whitespace().count() != 1 {
            return Err(Refusal::new(line, format!("'{text}' is no option"), "NAME=VALUE"));
        }
        options += 1;
        if options > OPTIONS_MAX {
            let said = format!("the option '{name}' is one too many");
            return Err(Refusal::new(
                line,
                said,
                format!("at most {OPTIONS_MAX} options in a file"),
            ));
        }
        let word = Word {
            line,
            name: name.to_owned(),
            value: value.map(|value| expanded(line, value, variable)).transpose()?,
        };
        match (is_global, sections.last_mut()) {
            (Some(true), _) => globals.push(word),
            (Some(false), Some(section)) => section.own.push(word),
            _ => {
                let said = format!("the option '{name}' stands in no section");
                return Err(Refusal::new(line, said, "[global] or the name of a job above it"));
            }
        }
    }
    Ok(JobFile { globals, sections })
}

/// Puts the environment's values for `${NAME}`. What fio computes itself, as `$pagesize`, is not known here.
fn expanded(line: usize, value: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, Refusal> {
    let mut told = String::new();
    let mut rest = value;
    while let Some((before, behind)) = rest.split_once('$') {
        told.push_str(before);
        let name = behind.strip_prefix('{').and_then(|behind| behind.split_once('}'));
        let Some((name, behind)) = name else {
            let said = format!("'{value}' has a `$` that is no ${{NAME}} of the environment");
            return Err(Refusal::new(line, said, "a value as it is, or ${NAME}"));
        };
        let Some(found) = variable(name) else {
            let said = format!("${{{name}}} is not set in the environment");
            return Err(Refusal::new(line, said, format!("a value for {name}")));
        };
        told.push_str(&found);
        rest = behind;
    }
    Ok(told + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<JobFile, Refusal> {
        super::read(text, &|name| (name == "SET").then(|| "here".to_owned()))
    }

    fn words(file: &JobFile, number: usize) -> Vec<(&str, Option<&str>)> {
        let words = file.words(&file.sections[number]);
        words.map(|word| (word.name.as_str(), word.value.as_deref())).collect()
    }

    #[test]
    fn what_is_global_holds_for_the_sections_behind_it() {
        let text = "; a comment\n[global]\nbs = 4k # why\n\n[one]\nrw=read\ntime_based\n[global]\nsize=1m\n[two]\nfilename=${SET}/x\n";
        let file = read(text).unwrap();
        let sections = &file.sections;
        assert_eq!(sections.len(), 2);
        assert_eq!(
            words(&file, 0),
            [("bs", Some("4k")), ("rw", Some("read")), ("time_based", None)]
        );
        assert_eq!(
            words(&file, 1),
            [("bs", Some("4k")), ("size", Some("1m")), ("filename", Some("here/x"))]
        );
        assert_eq!((sections[1].line, sections[1].own[0].line), (10, 11));
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_line() {
        for (text, line) in [
            ("bs=4k\n", 1),
            ("[one\n", 1),
            ("[]\n", 1),
            ("[a]\n\ninclude other.fio\n", 3),
            ("[a]\nsize=$mb_memory\n", 2),
            ("[a]\nsize=${UNSET}\n", 2),
        ] {
            assert_eq!(read(text).unwrap_err().line, line, "{text}");
        }
        assert_eq!(read("\0\u{fffd}[").unwrap_err().line, 1);
    }
}
