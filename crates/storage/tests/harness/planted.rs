//! Bugs that are planted one at a time: whether the tests that should notice them do.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

#[path = "../../../../tests/part.rs"]
mod part;

/// A bug, the story of the test that must say so as THEME/FILE ([`LIB`] for one that stands beside its code), and the test.
pub(crate) type Bug = (&'static str, &'static str, &'static str);

pub(crate) const LIB: &str = "lib";

/// What cargo is told, and the name that the test has there.
fn target_of<'a>(file: &'a str, test: &str) -> (Vec<&'a str>, String) {
    match file.split_once('/') {
        Some((theme, story)) => (vec!["--test", theme], format!("{story}::{test}")),
        None => {
            assert_eq!(file, LIB);
            (vec!["--lib"], test.to_owned())
        }
    }
}

/// A build of its own, in which the environment can name a bug.
struct Build<'a> {
    target: &'a Path,
    environment: &'a [(&'a str, &'a str)],
}

impl Build<'_> {
    fn cargo_test(&self, command: &mut Command) {
        command
            .args(["test", "-q", "--locked", "-p", "baio-storage", "--target-dir"])
            .arg(self.target)
            .env("RUSTFLAGS", "--cfg baio_seeded_bugs");
    }

    fn make(&self, targets: BTreeSet<Vec<&str>>) {
        let mut build = Command::new(env!("CARGO"));
        self.cargo_test(&mut build);
        build.args(targets.into_iter().flatten());
        assert!(build.arg("--no-run").status().unwrap().success());
    }

    fn run(&self, bug: &str, file: &str, test: &str) -> Output {
        // Some rules keep a loop from being endless, or memory from growing; these tests pass in a few seconds.
        let mut command = Command::new("timeout");
        command.args(["60", env!("CARGO")]);
        self.cargo_test(&mut command);
        let (target, test) = target_of(file, test);
        command
            .args(target)
            .args(["--", "--exact", &test])
            .env("BAIO_SEEDED_BUG", bug)
            .envs(self.environment.iter().copied());
        command.output().unwrap()
    }
}

/// Each test passes without a bug, and notices each of its bugs; they run with `environment`.
pub(crate) fn are_found(bugs: &[Bug], environment: &[(&str, &str)]) {
    let bugs = part::ours(bugs);
    let target = &Path::new(env!("CARGO_TARGET_TMPDIR")).join("planted");
    let build = Build { target, environment };
    build.make(bugs.iter().map(|(_, file, test)| target_of(file, test).0).collect());
    let tests: BTreeSet<(&str, &str)> = bugs.iter().map(|(_, file, test)| (*file, *test)).collect();
    for (file, test) in tests {
        let honest = build.run("", file, test);
        let said = String::from_utf8_lossy(&honest.stdout);
        assert!(honest.status.success() && said.contains("1 passed"), "{test}: {said}");
    }
    let missed: Vec<_> = bugs
        .iter()
        .filter(|(bug, file, test)| {
            let found = build.run(bug, file, test);
            let said = String::from_utf8_lossy(&found.stdout);
            // 124 is what `timeout` says.
            let is_endless = found.status.code() == Some(124);
            let is_found = said.contains("1 failed") || is_endless;
            let how = match (is_found, is_endless) {
                (true, true) => "runs for ever",
                (true, false) => "fails",
                (false, _) => "does not notice",
            };
            println!("{bug}: {test} {how}");
            !is_found
        })
        .collect();
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
