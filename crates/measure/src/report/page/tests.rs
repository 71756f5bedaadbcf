//! Pages of kept reports: the machine first, nothing of a record is lost, nothing of it becomes markup, and the page stays small.
//!
//! With `BAIO_PAGES_TO=DIR` the pages are kept there, for `tests/page.py BROWSER DIR/*.html` of the repository.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::report::record::{Chart, Experiment, Line, Promise, Row};
use crate::report::save::load;

const RECORDS: [&str; 5] = ["none-missed", "twelve-missed", "hostile", "empty", "skipped"];

fn record(name: &str) -> Record {
    let kept = |json| serde_json::from_str(json).unwrap();
    let whole = || kept(include_str!("records/none-missed.json"));
    match name {
        "hostile" => kept(include_str!("records/hostile.json")),
        "empty" => kept(include_str!("records/empty.json")),
        "twelve-missed" => twelve_missed(whole()),
        "skipped" => skipped(whole()),
        _ => whole(),
    }
}

fn twelve_missed(mut record: Record) -> Record {
    let rows = record.experiments.iter_mut().flat_map(|one| &mut one.rows);
    for (n, row) in rows.filter(|row| row.holds == Some(true)).take(12).enumerate() {
        (row.holds, row.short_by) = (Some(false), Some(n as f64));
        row.spread = row.ratio.map(|ratio| [ratio, ratio]);
    }
    record
}

/// Nothing could be measured.
fn skipped(mut record: Record) -> Record {
    for one in &mut record.experiments {
        one.disk.clear();
        for row in &mut one.rows {
            (row.ours, row.theirs, row.ratio, row.spread, row.holds) = (None, None, None, None, None);
            row.skipped = Some("fio is not installed".into());
        }
        let lines = one.charts.iter_mut().flat_map(|chart| &mut chart.lines);
        lines.for_each(|line| line.values.fill(None));
    }
    record
}

/// The page without its scripts and styles.
fn body(record: &Record) -> String {
    let page = html(record);
    let from = page.find("<body>").unwrap();
    let to = page.find("<script nonce").unwrap();
    page[from..to].to_owned()
}

#[test]
fn pages_of_the_kept_records_are_small_and_load_nothing() {
    let kept = std::env::var_os("BAIO_PAGES_TO").map(PathBuf::from);
    let own = tempfile::tempdir().unwrap();
    let dir = kept.unwrap_or_else(|| own.path().to_owned());
    fs::create_dir_all(&dir).unwrap();
    for name in RECORDS {
        let from = own.path().join("report.json");
        let to = dir.join(name).with_extension("html");
        fs::write(&from, serde_json::to_vec(&record(name)).unwrap()).unwrap();
        fs::write(&to, html(&load(&from).unwrap())).unwrap();
        let page = fs::read_to_string(&to).unwrap();
        assert!(page.len() < BYTES_MAX, "{name}: {} bytes", page.len());
        for loads in ["<link rel=\"stylesheet\"", "@import", "<iframe", "src=\"", "url("] {
            let markup = page.replace("&quot;", "").replace("\\u0026quot;", "");
            assert!(!markup.contains(loads), "{name}: {loads}");
        }
    }
}

#[test]
fn the_machine_stands_first_and_what_is_for_the_project_last() {
    for name in RECORDS {
        let record = record(name);
        let page = body(&record);
        let at = |what: &str| page.find(what).unwrap_or_else(|| panic!("{name}: no {what}"));
        let project = at("id=\"project\"");
        assert!(
            at("id=\"verdict\"") < at("id=\"machine\"") && at("id=\"machine\"") < project,
            "{name}"
        );
        let before = &page[..project];
        assert!(
            !before.contains("=missed>") && !before.contains("\"missed\""),
            "{name}: nothing is red there"
        );
        assert!(
            !page[project..].contains("class=\"chart\""),
            "{name}: pictures stand before it"
        );
    }
}

#[test]
fn the_first_screen_has_the_disk_its_advice_and_ours_beside_the_others() {
    let page = body(&record("none-missed"));
    let first = &page[..page.find("id=\"names\"").unwrap()];
    assert!(
        first.contains("96,520 random reads a second, a durable write in 310 µs</h1>"),
        "{first}"
    );
    for word in [
        "4 KiB durable write, 1 at a time",
        "<li>Keep 64 reads in flight",
        "p99 us",
        "<th scope=row>fio<",
    ] {
        assert!(first.contains(word), "{word}: {first}");
    }
    // Each count leads to names that are there.
    for link in first
        .split("<a href=\"#b")
        .skip(1)
        .map(|link| link.split('"').next().unwrap())
    {
        assert!(page.contains(&format!("id=\"b{link}\"")), "{link}");
    }
    let without = body(&record("empty"));
    assert!(
        without.contains("Nothing was compared</h1>") && without.contains("baio tour"),
        "{without}"
    );
}

#[test]
fn a_mark_that_is_missed_beside_a_peer_that_we_beat_is_not_red() {
    let row = |ratio, spread| Row {
        figure: "requests/s".into(),
        peer: "fio".into(),
        ratio: Some(ratio),
        spread,
        mark: Some(">= 3".into()),
        holds: Some(false),
        short_by: Some(20.0),
        ..Row::default()
    };
    let of = |row| {
        let record = Record::of(vec![row]);
        body(&record).matches("<td class=missed>").count()
    };
    assert_eq!(of(row(2.4, Some([2.3, 2.5]))), 0, "ahead");
    assert_eq!(of(row(0.4, None)), 0, "one round");
    assert_eq!(
        of(row(0.4, Some([0.3, 0.5]))),
        2,
        "among the missed, and in its experiment"
    );
}

#[test]
fn marks_are_counted_as_in_the_record() {
    let page = body(&record("none-missed"));
    assert!(page.contains("All 3") && page.contains("0 marks are missed."));
    assert!(!page.contains("id=\"misses\""));
    let page = body(&record("twelve-missed"));
    assert!(page.contains("12 marks are missed.") && page.contains(" more were not measured."));
    assert_eq!(page.matches("<td data-is=in>").count(), 12);
    assert!(page.find("id=\"misses\"").unwrap() < page.find("class=\"experiment\"").unwrap());
    assert!(body(&record("empty")).contains("No mark was measured"));
    let page = body(&record("skipped"));
    assert!(page.contains("No mark was measured") && page.contains(" 34 were not measured."));
    assert!(
        !page.contains("no marks"),
        "it says of each experiment that nothing was measured"
    );
}

#[test]
fn what_fails_a_report_is_said_first() {
    let page = body(&record("hostile"));
    let disk = page.find("class=\"first\"").unwrap();
    let unfinished = page.find("This report did not finish").unwrap();
    let failed = page.find("Something did not hold").unwrap();
    assert!(unfinished < disk && failed < disk);
    let named: Vec<&str> = page[failed..disk]
        .split("href=\"#")
        .skip(1)
        .map(|link| &link[..2])
        .collect();
    assert_eq!(named, ["e1", "e4"], "those two, and neither of the others");
    let page = body(&record("twelve-missed"));
    assert!(!page.contains("did not finish") && !page.contains("did not hold"));
}

#[test]
fn a_promise_leads_to_the_experiments_that_ran() {
    let page = body(&record("none-missed"));
    let promises = &page[page.find("id=\"promises\"").unwrap()..];
    assert!(promises.contains(r##"<a href="#e5-streaming-figures">streaming-figures</a>, durable-writes"##));
    assert!(page.contains(r##"id="e5-streaming-figures""##));
}

#[test]
fn what_was_asked_for_can_be_asked_again() {
    let mut record = record("none-missed");
    record.options = vec!["--quick".into(), "--dir=/mnt/my disk".into()];
    assert!(body(&record).contains("<pre>baio report --quick &#39;--dir=/mnt/my disk&#39;</pre>"));
    record.options.clear();
    assert!(body(&record).contains("<pre>baio report</pre>"));
}

/// Ours can be there without a peer's, and both figures of a command are one line to run.
#[test]
fn a_row_shows_what_there_is_and_a_command_stands_once() {
    let row = |figure: &str, skipped: Option<&str>| Row {
        figure: figure.into(),
        ours: Some(1234.0),
        peer: "fio".into(),
        skipped: skipped.map(Into::into),
        command: "baio stress FILE".into(),
        ..Row::default()
    };
    let record = Record::of(vec![row("one", None), row("other", Some("gone"))]);
    let page = body(&record);
    assert_eq!(page.matches("class=o>1,234").count(), 2);
    assert!(page.contains("not compared with fio: gone"));
    assert_eq!(page.matches("<pre>baio stress FILE</pre>").count(), 1);
}

#[test]
fn only_scripts_of_ours_may_run() {
    let page = html(&record("hostile"));
    let (_, policy) = page.split_once("script-src ").unwrap();
    let (policy, _) = policy.split_once('"').unwrap();
    let nonce = policy
        .strip_prefix("'nonce-")
        .and_then(|rest| rest.strip_suffix('\''))
        .unwrap();
    assert_eq!(page.matches(&format!("<script nonce=\"{nonce}\">")).count(), 2);
    assert_ne!(nonce, super::nonce(&record("empty")), "another record has another");
}

#[test]
fn misses_stand_worst_first() {
    let miss = |what: &str, short_by| Row {
        what: what.into(),
        mark: Some("<= 1".into()),
        holds: Some(false),
        short_by,
        ..Row::default()
    };
    let record = Record::of(vec![
        miss("little", Some(0.1)),
        miss("much", Some(70.0)),
        miss("nought", None),
    ]);
    let shown = Tally::of(&record);
    let names: Vec<&str> = shown.missed.iter().map(|miss| miss.row.what.as_str()).collect();
    assert_eq!(names, ["nought", "much", "little"]);
}

#[test]
fn each_experiment_has_each_row_and_each_chart_its_table() {
    for name in RECORDS {
        let record = record(name);
        let page = body(&record);
        let sections: Vec<&str> = page.split("<section class=\"experiment\"").skip(1).collect();
        assert_eq!(sections.len(), record.experiments.len(), "{name}");
        for (section, experiment) in sections.iter().zip(&record.experiments) {
            assert_eq!(section.matches("class=f>").count(), experiment.rows.len(), "{name}");
        }
        let charts = record.experiments.iter().map(|one| one.charts.len()).sum::<usize>();
        for each in ["<figure class=\"chart\">", "class=\"values\""] {
            assert_eq!(page.matches(each).count(), charts, "{name}: {each}");
        }
        assert_eq!(page.matches("class=\"id\"").count(), record.promises.len(), "{name}");
    }
}

#[test]
fn a_chart_says_what_the_document_showed() {
    let page = body(&record("none-missed"));
    assert!(page.contains("filesystem AIO rose from 1.9 MB/s"));
    assert!(
        !page.contains("not measured</p>"),
        "what showed nothing is not mentioned"
    );
}

/// Text that would end a tag, an attribute or a script anywhere in the record.
#[test]
fn nothing_of_a_record_becomes_markup() {
    let hostile = "'\"><i id=planted></script>\u{2028}\u{0}";
    let text = || hostile.to_owned();
    let row = Row {
        what: text(),
        figure: text(),
        unit: text(),
        ours: Some(1.0),
        peer: text(),
        ratio: Some(1.0),
        mark: Some(text()),
        holds: Some(false),
        command: text(),
        peers_command: text(),
        ..Row::default()
    };
    let skipped = Row {
        skipped: Some(text()),
        ..row.clone()
    };
    let mut chart = Chart {
        title: text(),
        at: vec![1.0],
        lines: vec![Line {
            name: text(),
            whose: text(),
            values: vec![Some(1.0)],
        }],
        document: text(),
        here: text(),
        ..Chart::default()
    };
    (chart.x.title, chart.x.unit, chart.y.title, chart.y.unit) = (text(), text(), text(), text());
    let mut record = record("hostile");
    (record.version, record.began) = (text(), text());
    let machine = &mut record.machine;
    (machine.kernel, machine.processor, machine.backend, machine.backend_why) = (text(), text(), text(), text());
    (machine.governor, machine.device, machine.scheduler) = (Some(text()), Some(text()), Some(text()));
    let experiment = |rows, charts| Experiment {
        name: text(),
        shows: text(),
        notes: vec![text()],
        rows,
        charts,
        ..Experiment::default()
    };
    record
        .experiments
        .push(experiment(vec![row.clone(), skipped], Vec::new()));
    record.experiments.push(experiment(vec![row], vec![chart]));
    record.promises.push(Promise {
        id: text(),
        title: text(),
        document: text(),
        shown_by: vec![text()],
        state: text(),
    });
    let page = html(&record);
    assert!(page.contains("id=planted"), "it is on the page, as text");
    assert!(
        !page.contains("<i id") && !page.contains("<img") && !page.contains("<script>"),
        "an element was planted"
    );
    assert!(
        !page.contains(['\u{0}', '\u{1b}', '\u{2028}', '\u{202e}']),
        "an invisible character came through"
    );
    let ours = page.matches("<script").count();
    assert_eq!(page.matches("</script").count(), ours, "a script ended early");
}

#[test]
fn what_would_be_too_large_is_made_without_commands() {
    let mut large = record("none-missed");
    let rows = &mut large.experiments[1].rows;
    let one = rows[0].clone();
    for n in 0..500 {
        rows.push(Row {
            what: format!("line {n}"),
            command: format!("{n} {}", one.command),
            peers_command: format!("{n} {}", one.peers_command.repeat(4)),
            ..one.clone()
        });
    }
    assert!(
        page(&large, Room::Enough).len() >= BYTES_MAX,
        "this test shows nothing any more"
    );
    let page = html(&large);
    assert!(page.len() < BYTES_MAX, "{} bytes", page.len());
    assert!(page.contains("commands would make this page too large"));
}

/// A report of many rows, of which some are missed.
fn of_rows(count: usize) -> Record {
    let row = |n: usize| Row {
        what: format!("line {n}"),
        figure: "requests/s".into(),
        unit: "1/s".into(),
        peer: "fio io_uring".into(),
        ours: Some(100_000.0),
        theirs: Some(90_000.0),
        ratio: Some(1.11),
        spread: Some([1.0, 1.2]),
        mark: Some(">= 0.97".into()),
        holds: Some(n % 500 != 7),
        ..Row::default()
    };
    Record::of((0..count).map(row).collect())
}

#[test]
fn what_single_rounds_gave_is_left_out_before_rows_are() {
    let is_too_large = |count: &usize| page(&of_rows(*count), Room::Little).len() >= BYTES_MAX;
    let count = (500..5000).step_by(50).find(is_too_large).unwrap();
    let page = html(&of_rows(count));
    assert!(page.len() < BYTES_MAX, "{} bytes", page.len());
    assert!(page.contains("What single rounds gave would make this page too large"));
    assert!(!page.contains("of the rounds</") && !page.contains("<th scope=col class=n>of the rounds"));
    assert_eq!(page.matches("class=f>").count(), count, "no row is left out");
}

#[test]
fn a_page_of_very_many_rows_has_those_that_tell_most() {
    let page = html(&of_rows(20_000));
    assert!(page.len() < BYTES_MAX, "{} bytes", page.len());
    let rows = page.matches("class=f>").count();
    assert!((40..2000).contains(&rows), "{rows}");
    assert!(page.contains(&format!("{} rows more would make this page too large", 20_000 - rows)));
    for missed in (7..20_000).step_by(500) {
        assert!(page.contains(&format!("<th>line {missed}<")), "line {missed}");
    }
}
