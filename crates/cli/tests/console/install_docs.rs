//! Promise: `--version` names the program, its version and the interfaces that it can use; `install-docs` writes a man page of each
//! command and completions of three shells, which the programs that read them understand.

use std::process::{Command, Stdio};

use crate::support::{BAIO, Done, Place, skip};

/// The commands, as the help lists them.
fn commands(place: &Place) -> Vec<String> {
    let help = place.text("--help");
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| line.starts_with("  "));
    let names = listed.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

fn is_there(program: &str) -> bool {
    let tried = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    tried.is_ok()
}

#[test]
fn the_version_names_what_is_compiled_in() {
    let place = Place::new();
    let text = place.text("--version");
    assert!(
        text.starts_with(&format!("baio {}\n", env!("CARGO_PKG_VERSION"))),
        "{text}"
    );
    for backend in ["io_uring", "Linux native AIO", "threads", "sync"] {
        assert!(text.contains(backend), "{backend}: {text}");
    }
    assert_eq!(place.text("-V"), format!("baio {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn every_command_has_a_page() {
    let place = Place::new();
    let told = place.json("install-docs to");
    let commands = commands(&place);
    assert!(commands.len() > 15, "{commands:?}");
    assert_eq!(told["files"].as_array().unwrap().len(), commands.len() + 1 + 3);
    for command in &commands {
        let page = place.path(&format!("to/share/man/man1/baio-{command}.1"));
        let page = std::fs::read_to_string(page).unwrap();
        assert!(
            page.contains(&format!("baio {command}").replace('-', "\\-")),
            "{command}"
        );
    }
}

/// What a link points to is not the page's: the link goes, and nothing is written through it.
#[test]
fn a_link_in_the_way_is_replaced() {
    let place = Place::new();
    place.write("precious", b"precious");
    std::fs::create_dir_all(place.path("to/share/man/man1")).unwrap();
    let page = place.path("to/share/man/man1/baio.1");
    std::os::unix::fs::symlink(place.path("precious"), &page).unwrap();
    place.baio("install-docs to").succeeds();
    assert_eq!(place.read("precious"), b"precious");
    assert!(page.symlink_metadata().unwrap().is_file());
    let names = std::fs::read_dir(page.parent().unwrap()).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        names.iter().all(|name| name.to_str().unwrap().ends_with(".1")),
        "{names:?}"
    );
}

#[test]
fn what_was_written_is_told_even_if_not_all_could_be() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("to/share/fish")).unwrap();
    place.write("to/share/fish/vendor_completions.d", b"no directory");
    let told = place.baio("install-docs to").fails_with(1);
    assert!(told.text().lines().any(|line| line == "to/share/man/man1/baio.1"));
    assert!(
        told.errors().contains("baio.fish") && told.errors().contains("cure: "),
        "{}",
        told.errors()
    );
    let told = place.baio("install-docs to --json").fails_with(1).json();
    assert_eq!(told["files"].as_array().unwrap().len(), commands(&place).len() + 1 + 2);
    assert_eq!(told["first_error"]["code"], "EEXIST", "{told}");
}

/// Whoever reads the pages says what is wrong with them.
#[test]
fn the_pages_are_clean() {
    let place = Place::new();
    place.baio("install-docs to").succeeds();
    let pages = std::fs::read_dir(place.path("to/share/man/man1")).unwrap();
    let pages: Vec<_> = pages.map(|page| page.unwrap().path()).collect();
    for (program, words) in [
        ("mandoc", &["-T", "lint", "-W", "warning"][..]),
        ("man", &["--warnings=w", "-l"]),
    ] {
        if !is_there(program) {
            skip(&format!("{program} is not installed"));
            continue;
        }
        for page in &pages {
            let done = Command::new(program)
                .args(words)
                .arg(page)
                .env("MANPAGER", "cat")
                .output();
            let done = Done(done.unwrap());
            let shown = page.display();
            assert_eq!((done.status(), done.errors()), (0, String::new()), "{program} {shown}");
            if program == "mandoc" {
                assert_eq!(done.text(), "", "{shown}");
            } else {
                assert!(done.text().contains("SYNOPSIS"), "{shown}");
            }
        }
    }
}

/// Each shell reads its script, and knows the commands.
#[test]
fn the_completions_are_scripts_of_their_shells() {
    let place = Place::new();
    place.baio("install-docs to").succeeds();
    for (shell, path) in [
        ("bash", "to/share/bash-completion/completions/baio"),
        ("zsh", "to/share/zsh/site-functions/_baio"),
        ("fish", "to/share/fish/vendor_completions.d/baio.fish"),
    ] {
        let script = String::from_utf8(place.read(path)).unwrap();
        for command in commands(&place) {
            assert!(script.contains(&command), "{shell} does not know {command}");
        }
        if !is_there(shell) {
            skip(&format!("{shell} is not installed"));
            continue;
        }
        let checked = Command::new(shell).arg("-n").arg(place.path(path)).output().unwrap();
        assert!(checked.status.success(), "{shell}: {}", Done(checked).errors());
    }
}

/// What bash offers for a line that is typed so far: its words, parted as bash parts them.
fn bash_offers(place: &Place, words: &[&str]) -> Vec<String> {
    let program = std::path::Path::new(BAIO).parent().unwrap().display().to_string();
    let script = format!(
        "PATH={program}:$PATH; . to/share/bash-completion/completions/baio; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
         _baio_words baio \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let offered = Command::new("bash")
        .args(["--norc", "-c", &script, "bash"])
        .args(words)
        .current_dir(place.path(""))
        .output();
    let offered = Done(offered.unwrap());
    offered.text().lines().map(str::to_owned).collect()
}

#[test]
fn words_and_segments_are_offered() {
    let place = Place::new();
    place.baio("install-docs to").succeeds();
    if !is_there("bash") {
        return skip("bash is not installed");
    }
    place.volume("16M", "1M");
    assert_eq!(bash_offers(&place, &["baio", "dd", "conv", "=", "fd"]), ["fdatasync"]);
    assert_eq!(
        bash_offers(&place, &["baio", "dd", "conv", "=", "sync,fs"]),
        ["sync,fsync"]
    );
    assert!(bash_offers(&place, &["baio", "dd", "status", "="]).contains(&"noxfer".to_owned()));
    assert!(bash_offers(&place, &["baio", "report", "--only", "random-r"]).contains(&"random-read".to_owned()));
    assert_eq!(bash_offers(&place, &["baio", "stat", "vol#"]), ["vol#a"]);
    assert_eq!(bash_offers(&place, &["baio", "dd", "if", "=", "vol#"]), ["vol#a"]);
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let place = Place::new();
    place.write("f", b"");
    let error = place.error("install-docs f", 1);
    assert_eq!(error["code"], "ENOTDIR");
    assert!(error["object"].as_str().unwrap().starts_with("f/share/man"), "{error}");
}
