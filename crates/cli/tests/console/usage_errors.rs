//! Promise: a command line that makes no sense exits with 2 (dd: 1), says why, and touches nothing; under `--json` it is
//! one object on standard output, and nothing on standard error.

use crate::support::Place;

#[test]
fn exit_status_and_object() {
    let place = Place::new();
    for (line, status) in [
        ("nothing", 2),
        ("format", 2),
        ("format vol", 2),
        ("format vol --size 4kB", 2),
        ("create vol#a", 2),
        ("list vol#a", 2),
        ("format unix:/run/x --size 1M", 1),
        ("freeze vol", 2),
        ("dd foo=bar", 1),
        ("dd if=x bs=0 of=y", 1),
        ("dd --what", 1),
    ] {
        let told = place.baio(line).fails_with(status);
        assert!(told.out().is_empty(), "{line}");
        assert!(
            told.errors().starts_with("baio: ") && told.errors().contains("cure: "),
            "{line}: {}",
            told.errors()
        );
        assert_eq!(told.errors().lines().count(), 1, "{line}: {}", told.errors());

        let told = place.baio(&format!("{line} --json")).fails_with(status);
        let error = told.json()["error"].clone();
        let code = if line.contains("unix:") { "EOPNOTSUPP" } else { "EUSAGE" };
        assert_eq!(error["code"], code, "{line}");
        assert_eq!(told.errors(), "", "{line}");
    }
    assert!(!place.path("vol").exists() && !place.path("y").exists());
}

#[test]
fn the_bare_name_shows_all_commands() {
    let place = Place::new();
    let told = place.baio("").fails_with(2);
    assert!(told.out().is_empty());
    let text = told.errors();
    for word in ["Usage: baio", "create", "stress", "doctor", "Examples:"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    // A program gets an object all the same.
    let error = &place.baio("--json").fails_with(2).json()["error"];
    assert_eq!(error["code"], "EUSAGE");
    assert!(
        error["message"].as_str().unwrap().contains("a command is missing"),
        "{error}"
    );
}

#[test]
fn standard_output_cannot_be_copy_and_answer() {
    let place = Place::new();
    place.write("in", b"x");
    for (line, status) in [("dd if=in --json", 1), ("freeze vol --json -- true", 2)] {
        let error = &place.baio(line).fails_with(status).json()["error"];
        assert_eq!(error["code"], "EUSAGE", "{line}");
    }
    // What stands behind -- is the command's.
    for line in ["freeze vol --", "freeze vol#a -- true --json"] {
        let told = place.baio(line).fails_with(2);
        assert!(
            told.out().is_empty() && told.errors().contains("cure: "),
            "{line}: {}",
            told.errors()
        );
    }
}
