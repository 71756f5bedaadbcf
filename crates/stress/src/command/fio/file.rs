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

/// A job: its own options behind those that hold for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) words: Vec<Word>,
}

/// Reads a file; `variable` is the environment.
pub(super) fn read(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Vec<Section>, Refusal> {
    let mut global: Vec<Word> = Vec::new();
    let mut sections: Vec<Section> = Vec::new();
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
                sections.push(Section {
                    line,
                    name: name.to_owned(),
                    words: global.clone(),
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
        let word = Word {
            line,
            name: name.to_owned(),
            value: value.map(|value| expanded(line, value, variable)).transpose()?,
        };
        match (is_global, sections.last_mut()) {
            (Some(true), _) => global.push(word),
            (Some(false), Some(section)) => section.words.push(word),
            _ => {
                let said = format!("the option '{name}' stands in no section");
                return Err(Refusal::new(line, said, "[global] or the name of a job above it"));
            }
        }
    }
    Ok(sections)
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

    fn read(text: &str) -> Result<Vec<Section>, Refusal> {
        super::read(text, &|name| (name == "SET").then(|| "here".to_owned()))
    }

    fn words(section: &Section) -> Vec<(&str, Option<&str>)> {
        let words = section.words.iter();
        words.map(|word| (word.name.as_str(), word.value.as_deref())).collect()
    }

    #[test]
    fn what_is_global_holds_for_the_sections_behind_it() {
        let text = "; a comment\n[global]\nbs = 4k # why\n\n[one]\nrw=read\ntime_based\n[global]\nsize=1m\n[two]\nfilename=${SET}/x\n";
        let sections = read(text).unwrap();
        assert_eq!(sections.len(), 2);
        assert_eq!(
            words(&sections[0]),
            [("bs", Some("4k")), ("rw", Some("read")), ("time_based", None)]
        );
        assert_eq!(
            words(&sections[1]),
            [("bs", Some("4k")), ("size", Some("1m")), ("filename", Some("here/x"))]
        );
        assert_eq!((sections[1].line, sections[1].words[2].line), (10, 11));
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
