//! Promise: the examples of each `--help` run as they are printed, one after the other, in an empty directory.

use std::fmt::Write as _;
use std::path::Path;

use crate::support::{BAIO, Place};

/// It takes half a minute, and CI begins with it.
const LONG: &str = "tour";
/// Its examples are of programs that are not everywhere, and say so.
const OF_OTHERS: &str = "run";

fn text(place: &Place, line: &str) -> String {
    place.text(line)
}

/// The lines below a heading.
fn below<'a>(text: &'a str, heading: &str) -> Vec<&'a str> {
    let lines = text.lines().skip_while(|line| *line != heading).skip(1);
    lines.take_while(|line| line.starts_with("  ")).map(str::trim).collect()
}

/// The lines as a script that ends with the first that fails. What is begun in the background is there when its sockets are.
fn script(examples: &[&str]) -> String {
    let mut script = "set -e\n".to_owned();
    for line in examples {
        writeln!(script, "{line}").unwrap();
        if !line.ends_with('&') {
            continue;
        }
        let words: Vec<_> = line.split_whitespace().collect();
        for pair in words
            .windows(2)
            .filter(|pair| ["--socket", "--metrics"].contains(&pair[0]))
        {
            writeln!(script, "until test -S {}; do kill -0 $!; sleep 0.05; done", pair[1]).unwrap();
        }
    }
    script + "wait\n"
}

#[test]
fn they_run_as_they_are_printed() {
    let help = text(&Place::new(), "--help");
    let commands = below(&help, "Commands:")
        .into_iter()
        .filter_map(|line| line.split(' ').next());
    let commands: Vec<_> = commands
        .filter(|name| !["help", LONG, OF_OTHERS].contains(name))
        .collect();
    assert!(commands.len() > 15, "{commands:?}");
    let beside = Path::new(BAIO).parent().unwrap().display();
    for command in std::iter::once("").chain(commands) {
        let place = Place::new();
        let help = text(&place, &format!("{command} --help"));
        let examples = below(&help, "Examples:");
        assert!(!examples.is_empty(), "{command} has no examples");
        let done = place.shell(&format!("PATH={beside}:$PATH\n{}", script(&examples)));
        assert_eq!(done.status(), 0, "{command}: {examples:#?}\n{}", done.errors());
    }
}
