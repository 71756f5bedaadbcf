//! The claim: a function fits on a screen or two, at most 80 lines. What is longer tells more than one story; but a table is one, however long.

use crate::sources;

/// Lines of a function, from its `fn` to its closing brace.
const MOST: usize = 80;

/// Tables: one arm after the other, and nothing between. By file and function; one that is no longer so long loses its line.
const TABLES: &[(&str, &str)] = &[
    ("baio/src/metrics/text.rs", "cache"),
    ("baio/src/metrics/text.rs", "logs"),
    ("storage/src/error/tests.rs", "all_faults"),
    ("storage/src/log/error.rs", "fmt"),
    ("storage/src/segment/inode/tests.rs", "impossible_values_are_refused"),
    ("storage/tests/requests/end_at_every_step.rs", "start"),
];

/// The name of the function that begins on a line, and how far the line is indented.
fn begins(line: &str) -> Option<(usize, &str)> {
    let code = line.trim_start();
    let mut rest = code;
    if let Some(behind) = rest.strip_prefix("pub") {
        let to_whom = behind.strip_prefix('(').and_then(|behind| behind.split_once(')'));
        rest = to_whom.map_or(behind, |(_, behind)| behind).trim_start();
    }
    for word in [
        "default ",
        "const ",
        "async ",
        "unsafe ",
        "extern \"C\" ",
        "extern \"C-unwind\" ",
    ] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let behind = rest.strip_prefix("fn ")?;
    let name = behind.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    Some((line.len() - code.len(), name))
}

/// How many lines a function has whose first line is the first of these; of one without a body, and of one on a line, nothing. rustfmt puts
/// the closing brace below the `fn`.
fn length(lines: &[&str], indent: usize) -> Option<usize> {
    if lines[0].ends_with(['}', ';']) {
        return None;
    }
    let is_last = |line: &&str| {
        let code = line.trim_start();
        line.len() - code.len() == indent && (code.starts_with('}') || code.ends_with(';'))
    };
    let last = lines.iter().skip(1).position(is_last)? + 1;
    lines[last].trim_start().starts_with('}').then_some(last + 1)
}

#[test]
fn a_function_has_eighty_lines_at_most() {
    let mut long = Vec::new();
    for (path, text) in sources::with_tests() {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let Some((indent, name)) = begins(line) else { continue };
            if length(&lines[at..], indent).is_some_and(|length| length > MOST) {
                long.push((path.display().to_string(), name.to_owned()));
            }
        }
    }
    let is_known = |(path, name): &(String, String)| TABLES.contains(&(path.as_str(), name.as_str()));
    let new: Vec<_> = long.iter().filter(|found| !is_known(found)).collect();
    assert!(
        new.is_empty(),
        "longer than {MOST} lines: cut it where one story ends, or name it as a table: {new:?}"
    );
    let is_there = |known: &&(&str, &str)| {
        !long
            .iter()
            .any(|(path, name)| (path.as_str(), name.as_str()) == **known)
    };
    let stale: Vec<_> = TABLES.iter().filter(is_there).collect();
    assert!(
        stale.is_empty(),
        "as short as all others: take its line away: {stale:?}"
    );
}

#[test]
fn a_long_function_is_seen() {
    let body = "        one();\n".repeat(MOST);
    let text = format!("    pub(in crate::core) async fn long(\n        &self,\n    ) -> u32 {{\n{body}    }}\n");
    let lines: Vec<&str> = text.lines().collect();
    let (indent, name) = begins(lines[0]).unwrap();
    assert_eq!((name, length(&lines, indent)), ("long", Some(MOST + 4)));
    assert_eq!(begins("    // the fn of it"), None);
    assert_eq!(length(&["    fn declared(&self);", "    }"], 4), None);
    assert_eq!(
        length(&["    fn declared(", "        &self,", "    );", "    }"], 4),
        None
    );
}
