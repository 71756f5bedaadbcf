//! Tests that scripts ask for by a part of their name are there. `cargo test` and a test binary run none, and succeed, when a name fits
//! nothing.

use std::fs;
use std::path::Path;

use crate::sources;

/// Where the stories of the other kernels are listed: bound, name, PACKAGE/TEST, settings, then parts of names.
const OF_KERNELS: &str = ".ci/kernels-inside";
const SCRIPTS: [&str; 3] = [".ci/run", ".ci/long", "tests/newcomer.sh"];

#[test]
fn stories_that_scripts_name_are_there() {
    let root = sources::crates().join("..");
    let mut named = 0;
    let mut gone = Vec::new();
    let mut look = |at: &str, line: &str, name: &str, sources: &[String]| {
        named += 1;
        if !fits(name, sources) {
            gone.push(format!("{at}: `{line}`: nothing is called `{name}`"));
        }
    };
    for line in read(&root.join(OF_KERNELS)).lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let Some((package, test)) = words.get(2).and_then(|what| what.split_once('/')) else {
            continue;
        };
        if words[0].parse::<u32>().is_err() {
            continue;
        }
        let sources = sources_of(&root.join("crates").join(package).join("tests"), test);
        assert!(
            !sources.is_empty(),
            "{OF_KERNELS}: `{line}`: {package} has no test {test}"
        );
        for name in words[3..]
            .iter()
            .filter(|word| !word.contains('=') && **word != "--skip")
        {
            look(OF_KERNELS, line, name, &sources);
        }
    }
    let everywhere: Vec<String> = sources::with_tests().into_iter().map(|(_, text)| text).collect();
    for script in SCRIPTS {
        for line in read(&root.join(script))
            .lines()
            .filter(|line| line.contains("cargo test") || line.contains("tests --test"))
        {
            for name in line.split(' ').filter(|word| word.ends_with("::")) {
                look(script, line, name, &everywhere);
            }
        }
    }
    assert!(named > 20, "{named} names: they are not found any more");
    assert!(gone.is_empty(), "{}", gone.join("\n"));
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A test is a file, or a directory of files.
fn sources_of(tests: &Path, test: &str) -> Vec<String> {
    let one = tests.join(format!("{test}.rs"));
    if one.is_file() {
        return vec![read(&one)];
    }
    let files = fs::read_dir(tests.join(test)).into_iter().flatten();
    let files = files.map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|end| end == "rs"))
        .map(|path| read(&path))
        .collect()
}

/// Each part of `module::part_of_a_test` stands in the name of a module or of a function.
fn fits(name: &str, sources: &[String]) -> bool {
    let names: Vec<&str> = sources.iter().flat_map(|text| names_in(text)).collect();
    let mut parts = name.split("::").filter(|part| !part.is_empty());
    parts.all(|part| names.iter().any(|name| name.contains(part)))
}

fn names_in(text: &str) -> impl Iterator<Item = &str> {
    let behind = ["fn ", "mod "].into_iter().flat_map(|word| text.split(word).skip(1));
    behind.map(|rest| {
        rest.split(|c: char| !c.is_alphanumeric() && c != '_')
            .next()
            .unwrap_or_default()
    })
}
