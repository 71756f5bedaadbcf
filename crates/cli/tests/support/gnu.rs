//! GNU dd beside ours: the same operands, the same input, the same target before; what both say and write must be the same.

use crate::support::{BAIO, Done, Place, random_bytes};

/// Is the `dd` of this machine GNU's? Says so where it is not.
pub(crate) fn is_there(place: &Place) -> bool {
    let told = place.gnu_dd("--version", b"");
    let is_gnu = String::from_utf8_lossy(told.out()).contains("coreutils");
    if !is_gnu {
        crate::support::skip("dd is not GNU's");
    }
    is_gnu
}

/// The inputs that cases name.
pub(crate) fn write_inputs(place: &Place) {
    let mut text = String::new();
    for line in 0..120_u32 {
        let words = (line * 7919) % 13;
        text.push_str(&"Word ab ".repeat(words as usize));
        text.push_str(&" ".repeat((line % 4) as usize));
        text.push('\n');
    }
    place.write("text", &text.as_bytes()[..3001]);
    place.write("bin", &random_bytes(3333, 1));
    place.write("even", &random_bytes(4096, 2));
    place.write("large", &random_bytes(70_000, 3));
    place.write("one", b"x");
    place.write("empty", b"");
    place.write("all", &(0..=255).collect::<Vec<u8>>());
    let mut holes = vec![0; 9000];
    holes[..700].fill(7);
    holes[4000..4100].fill(8);
    place.write("holes", &holes);
    holes[8999] = 9;
    place.write("holes9", &holes);
    std::fs::create_dir(place.path("dir")).unwrap();
    std::os::unix::fs::symlink("bin", place.path("link")).unwrap();
}

/// One case: what is read (`|bin` comes through a pipe, `<bin` is standard input), what is at the target before (`-` for nothing,
/// `old`, `short`; `pipe` for standard output; else a path), and the operands. An input that begins with `!` is read under a limit of what
/// a file may be long.
pub(crate) type Case<'a> = (&'a str, &'a str, &'a str);

/// Runs both, and says what differs.
pub(crate) fn differences(place: &Place, case: Case<'_>) -> Vec<String> {
    let [theirs, ours] = ["dd", "baio"].map(|program| run(place, program, case));
    compare(case, theirs, ours)
}

/// Says what differs between two that have ended, and their targets.
pub(crate) fn compare(case: Case<'_>, theirs: (Done, Option<Vec<u8>>), ours: (Done, Option<Vec<u8>>)) -> Vec<String> {
    let mut found = Vec::new();
    for ((what, ours), (_, theirs)) in told(&ours).into_iter().zip(told(&theirs)) {
        if ours != theirs {
            found.push(format!("{what}: {ours}, and GNU dd: {theirs}"));
        }
    }
    for word in reasons(&theirs.0) {
        // Which of the arguments it is, we say.
        let is_said = word == "Invalid argument" && ours.0.errors().contains("no direct I/O");
        if !is_said && !ours.0.errors().contains(&word) {
            found.push(format!("it does not say {word:?}"));
        }
    }
    if !found.is_empty() {
        found.insert(0, format!("== {case:?}"));
        found.push(ours.0.errors());
    }
    found
}

/// What can be told of one that has ended, and of its target.
fn told((done, target): &(Done, Option<Vec<u8>>)) -> [(&'static str, String); 5] {
    let sum = |bytes: &[u8]| format!("{} bytes {:08x}", bytes.len(), crc32c::crc32c(bytes));
    [
        ("status", done.0.status.to_string()),
        ("records", format!("{:?}", done.records())),
        ("third line", format!("{:?}", amounts(done))),
        ("standard output", sum(done.out())),
        ("target", target.as_deref().map_or("none".to_owned(), sum)),
    ]
}

fn run(place: &Place, program: &str, (input, target, operands): Case<'_>) -> (Done, Option<Vec<u8>>) {
    let out = place.path("out");
    let _ = std::fs::remove_file(&out);
    match target {
        "old" => place.write("out", &random_bytes(5000, 77)),
        "short" => place.write("out", &random_bytes(100, 78)),
        _ => {}
    }
    let to = match target {
        "pipe" => String::new(),
        path if path.starts_with('/') => format!("of={path}"),
        _ => "of=out".to_owned(),
    };
    // Whatever is under way at once, nobody can tell.
    let name = match program {
        "dd" => "dd".to_owned(),
        _ => format!("{BAIO} dd iodepth={}", [1, 2, 16, 64][operands.len() % 4]),
    };
    let line = |from: &str| format!("{name} {from} {to} {operands}");
    let done = match input.split_at_checked(1) {
        Some(("|", fed)) => place.fed(&line(""), &place.read(fed)),
        Some(("<", standard)) => place.shell(&format!("{} < {standard}", line(""))),
        Some(("!", limited)) => {
            let limited = line(&format!("if={limited}"));
            place.shell(&format!("trap '' XFSZ; ulimit -f 4; {limited}"))
        }
        _ => place.fed(&line(&format!("if={input}")), b""),
    };
    (done, std::fs::read(out).ok())
}

/// The lines about bytes, without their times.
fn amounts(done: &Done) -> Vec<String> {
    let errors = done.errors();
    let lines = errors.lines().filter(|line| line.contains(" copied, "));
    lines
        .map(|line| {
            let parts: Vec<&str> = line.split(", ").collect();
            let (seconds, rate) = (parts[parts.len() - 2], parts[parts.len() - 1]);
            let is_figure = |text: &str, unit: &str| {
                text.strip_suffix(unit)
                    .is_some_and(|figure| figure.trim().split(' ').next().unwrap_or("").parse::<f64>().is_ok())
            };
            assert!(is_figure(seconds, " s"), "{line}");
            assert!(is_figure(rate, "B/s"), "{line}");
            parts[..parts.len() - 2].join(", ")
        })
        .collect()
}

/// What the system said, at the end of GNU dd's messages.
fn reasons(done: &Done) -> Vec<String> {
    let errors = done.errors();
    let told = errors.lines().filter(|line| line.starts_with("dd: "));
    let told = told.filter(|line| !line.contains("invalid number") && !line.contains("warning: "));
    told.map(|line| line.rsplit(": ").next().unwrap_or(line).to_owned())
        .collect()
}

/// Both refuse the operands, with the same status, before anything is touched.
#[track_caller]
pub(crate) fn both_refuse(place: &Place, case: Case<'_>) {
    let [theirs, ours] = ["dd", "baio"].map(|program| run(place, program, case));
    let what = format!("{case:?}\n{}", ours.0.errors());
    assert_eq!(ours.0.0.status.code(), Some(1), "{what}");
    assert_eq!(theirs.0.0.status.code(), Some(1), "{what}: GNU dd takes it");
    let words = theirs.0.errors();
    let words = words.lines().next().unwrap_or_default();
    let words: String = words.trim_start_matches("dd: ").to_owned();
    // The first words, up to what was typed: `invalid number`, `cannot combine lcase and ucase`.
    let words = words.split(':').next().unwrap_or_default();
    let words = words.split('\'').next().unwrap_or_default();
    assert!(ours.0.errors().contains(words), "{what}: it does not say {words:?}");
    assert!(ours.1.is_none() && theirs.1.is_none(), "{what}: a target was made");
}
