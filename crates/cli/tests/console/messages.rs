//! Promise: whoever types something wrong is told what, what was needed, and what to type instead. Each line here once got an answer
//! that helped nobody.

use serde_json::json;

use crate::support::terminal::shown_on_a_terminal;
use crate::support::{self, Place, has};

/// What is typed, the status, what is said, and what must not be said.
type Line = (&'static str, i32, &'static [&'static str], &'static [&'static str]);

const LINES: &[Line] = &[
    ("serv vol", 2, &["'serv'", "exists: 'serve'"], &["resize"]),
    ("sevre vol", 2, &["exists: 'serve'"], &["resize"]),
    (
        "serve vol --soket x",
        2,
        &["exists: '--socket'", "baio serve --help"],
        &[],
    ),
    ("dd --progress", 1, &["cure: write status=progress"], &["as a value"]),
    ("dd --bs 4K", 1, &["write bs=VALUE, without dashes"], &["as a value"]),
    ("dd -v", 1, &["NAME=VALUE, without dashes"], &["as a value"]),
    (
        "create vol#b --size 10G",
        1,
        &[
            "asked for 10737418240 bytes; ",
            "needed: 10737418240 bytes that are free",
        ],
        &[],
    ),
    (
        "stat vol#a#b",
        2,
        &[
            "a segment's name has no '#', and there is no volume 'vol#a'",
            "or check the volume's path",
        ],
        &["this is the segment"],
    ),
    (
        "format huge --size 8191P",
        1,
        &[
            "File too large",
            "needed: a file that may be so large",
            "cure: choose a smaller size",
            "`ulimit -f`",
        ],
        &[],
    ),
    (
        "stress mistyped",
        1,
        &[
            "stress mistyped: there is nothing to read",
            "baio stress mistyped --size 1G --rw write --once",
        ],
        &["writing"],
    ),
    (
        "stress mistyped --size 1M --rw randread",
        1,
        &["nothing to read"],
        &["writing"],
    ),
    ("delete vol#nobody", 1, &["no such segment", "`baio list`"], &[]),
];

#[test]
fn each_says_what_to_type_instead() {
    let place = Place::new();
    place.volume("16M", "1M");
    for (line, status, said, unsaid) in LINES {
        let told = place.baio(line).fails_with(*status);
        let text = told.errors();
        assert_eq!(text.lines().count(), 1, "{line}: {text}");
        for word in *said {
            assert!(text.contains(word), "{line}: `{word}` is missing in `{text}`");
        }
        for word in *unsaid {
            assert!(!text.contains(word), "{line}: `{word}` is in `{text}`");
        }
    }
    for never in ["mistyped", "huge"] {
        assert!(!place.path(never).exists(), "{never} was made");
    }
}

#[test]
fn a_terminal_gets_lines_and_sizes_and_one_colour() {
    let place = Place::new();
    place.volume("16M", "1M");
    let line = "create vol#b --size 10G";
    let (plain, status) = shown_on_a_terminal(&place, line, &[("NO_COLOR", "1")]);
    assert_eq!(status, 1);
    let lines: Vec<&str> = plain.lines().collect();
    assert_eq!(lines.len(), 3, "{plain}");
    assert!(
        lines[0].starts_with("baio: create vol#b: no space: asked for 10737418240 bytes (10 GiB); "),
        "{plain}"
    );
    assert!(lines[1].starts_with("  needed: 10737418240 bytes (10 GiB) "), "{plain}");
    assert!(lines[2].starts_with("  cure:   delete a segment"), "{plain}");
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
    let (loud, _) = shown_on_a_terminal(&place, line, &[]);
    let coloured: Vec<bool> = loud.lines().map(|line| line.contains('\u{1b}')).collect();
    assert_eq!(coloured, [true, false, false], "{loud:?}");
    let (dumb, _) = shown_on_a_terminal(&place, line, &[("TERM", "dumb")]);
    assert_eq!(dumb, plain);
}

#[test]
fn a_deleted_segment_is_not_live() {
    let place = Place::new();
    place.volume("16M", "1M");
    let told = place.json("delete vol#a");
    has(&told, json!({"name": "a", "state": "deleted"}));
}

#[test]
fn a_list_tells_group_and_mode() {
    let place = Place::new();
    place.baio("format vol --size 16M").succeeds();
    place.baio("create vol#a --size 4K --mode 0640").succeeds();
    let told = place.json("list vol");
    let segment = &told["segments"][0];
    assert_eq!(segment["mode"], "0640");
    assert_eq!(segment["owner_gid"], rustix::process::getegid().as_raw());
}

#[test]
fn wide_names_do_not_move_columns() {
    let place = Place::new();
    place.baio("format vol --size 16M").succeeds();
    for name in ["日本語", "abcdef"] {
        place.baio(&format!("create vol#{name} --size 4K")).succeeds();
    }
    let text = place.text("list vol");
    // Both names are six columns wide.
    let behind = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.strip_prefix(name).unwrap().to_owned()
    };
    let start = |text: &str| text.find("4 KiB");
    assert_eq!(start(&behind("日本語")), start(&behind("abcdef")), "{text}");
}

/// What somebody else has named must not drive the terminal, turn lines round, or look like another.
#[test]
fn names_are_shown_as_what_they_are() {
    let place = Place::new();
    place.volume("16M", "1M");
    let program = support::BAIO;
    for bytes in ["\\342\\200\\256", "\\342\\200\\213"] {
        let line = format!("{program} rename vol#a \"$(printf 'gpj{bytes}exe')\" >/dev/null && {program} list vol");
        let told = place.shell(&line).succeeds();
        let text = told.text();
        assert!(text.contains("gpj\\u{20"), "{text}");
        place
            .shell(&format!("{program} rename \"vol#$(printf 'gpj{bytes}exe')\" a"))
            .succeeds();
    }
    let [one, two] = ["\\376", "\\377"].map(|byte| {
        let line = format!("{program} stat \"$(printf 'no{byte}')\" --json");
        place.shell(&line).fails_with(1).error()["object"]
            .as_str()
            .unwrap()
            .to_owned()
    });
    assert_eq!((one.as_str(), two.as_str()), ("no\\xfe", "no\\xff"));
}

#[test]
fn a_segment_without_a_group_shows_none() {
    if !support::is_root() {
        return;
    }
    let place = Place::new();
    place.baio("format vol --size 16M").succeeds();
    let made = place.json("create vol#1000/a --size 4K");
    assert!(made["owner_gid"].is_null(), "{made}");
    let text = place.text("list vol");
    let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..3], ["a", "1000", "-"], "{text}");
}
