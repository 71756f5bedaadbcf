//! What is seen first: the machine, its disk in figures and what they advise, ours beside the others in counts.

use super::Room;
use super::experiment::link;
use super::markup::{Html, put};
use crate::disk;
use crate::report::beside::{Beside, how_slow, losses};
use crate::report::machine::facts;
use crate::report::numbers::{duration, figure, ratio};
use crate::report::record::{Found, Record};

/// Works in which we lose that are shown first.
const WORST: usize = 4;

pub(super) fn write(html: &mut Html, record: &Record, room: Room) {
    let all = Beside::all(record);
    html.raw("<header>");
    of(html, record);
    html.raw(r#"<p class="theme" role="group" aria-label="Colours" hidden>"#);
    html.raw(r#"<button type="button" data-theme-choice="" aria-pressed="true">Auto</button>"#);
    html.raw(r#"<button type="button" data-theme-choice="light" aria-pressed="false">Light</button>"#);
    html.raw(r#"<button type="button" data-theme-choice="dark" aria-pressed="false">Dark</button></p>"#);
    put!(html, r#"<h1 id="verdict">{}</h1>"#, verdict(record, &all));
    machine(html, record);
    failures(html, record);
    html.raw(r#"</header><div class="first">"#);
    this_disk(html, record);
    counts(html, &all);
    html.raw("</div>");
    names(html, &all, room);
}

fn of(html: &mut Html, record: &Record) {
    html.raw(r#"<p class="of">baio report"#);
    for said in [&record.version, &moment(&record.began)] {
        if !said.is_empty() {
            put!(html, " · {}", said);
        }
    }
    put!(html, " · took {}", duration(record.seconds));
    html.raw(if record.quick { " · quick: a look" } else { "" });
    html.raw(r##" · <a href="#project">for the project</a></p>"##);
}

/// The disk in a sentence; where it was not measured alone, ours beside the others.
fn verdict(record: &Record, all: &[Beside<'_>]) -> String {
    let of = |kind| record.disk().iter().filter(move |figure| figure.kind == kind);
    let reads = of(disk::Kind::RandomRead).max_by(|one, other| one.iops.total_cmp(&other.iops));
    let durable = of(disk::Kind::DurableWrite).next().and_then(|alone| alone.p50_us);
    let durable = durable.map_or_else(String::new, |us| format!(", a durable write in {} µs", figure(us)));
    match (reads, all.iter().max_by_key(|one| one.speed.all())) {
        (Some(reads), _) => format!("{} random reads a second{durable}", figure(reads.iops)),
        (None, Some(one)) => format!(
            "Beside {}: faster in {}, the same in {}, slower in {}",
            one.peers,
            one.speed.better.len(),
            one.speed.same.len(),
            one.speed.worse.len()
        ),
        (None, None) => "Nothing was compared".to_owned(),
    }
}

/// A line for everybody, and all of it for whom it matters.
fn machine(html: &mut Html, record: &Record) {
    let facts = facts(&record.machine);
    let known = |name: &str| facts.iter().find(|(fact, value)| *fact == name && !value.is_empty());
    let first = [
        "Target",
        "Device",
        "File system",
        "Kind of device",
        "Processors to run on",
        "Processor",
        "Memory",
        "Kernel",
    ];
    html.raw(r#"<p class="summary">"#);
    for (n, (name, value)) in first.into_iter().filter_map(known).enumerate() {
        html.raw(if n > 0 { " · " } else { "" });
        match *name {
            "Processors to run on" if value == "1" => html.raw("1 processor"),
            "Processors to run on" => put!(html, "{} processors", value),
            "Kernel" => put!(html, "Linux {}", value),
            _ => put!(html, "{}", value),
        }
    }
    html.raw(r#"</p><details id="machine"><summary>All of the machine</summary><dl class="machine">"#);
    let mut fact = |name: &str, value: &str| put!(html, "<div><dt>{}</dt><dd>{}</dd></div>", name, value);
    for (name, value) in &facts {
        fact(name, if value.is_empty() { "not known" } else { value });
    }
    for peer in &record.machine.peers {
        let version = peer.version.as_deref();
        fact(&peer.name, version.unwrap_or("not installed: left out"));
    }
    if !record.left_out.is_empty() {
        fact("Experiments", &record.left_out);
    }
    html.raw("</dl></details>");
}

/// `2026-11-23T14:10:05Z` as people write it; anything else as it is.
fn moment(began: &str) -> String {
    match (
        began.get(..10),
        began.get(10..11),
        began.get(11..16),
        began.ends_with('Z'),
    ) {
        (Some(day), Some("T"), Some(minute), true) => format!("{day} {minute} UTC"),
        _ => began.to_owned(),
    }
}

/// What fails the report, which a missed mark does not.
fn failures(html: &mut Html, record: &Record) {
    if !record.finished {
        html.raw("<p class=\"warning\">This report did not finish. It shows what had ended by then.</p>");
    }
    let failed = record.experiments.iter().enumerate().filter(|(_, one)| !one.verified);
    let mut failed = failed.peekable();
    if failed.peek().is_some() {
        html.raw("<p class=\"warning\">Something did not hold that must hold, in ");
        for (n, (at, experiment)) in failed.enumerate() {
            html.raw(if n > 0 { ", " } else { "" });
            link(html, at, &experiment.name);
        }
        html.raw(".</p>");
    }
}

fn this_disk(html: &mut Html, record: &Record) {
    let figures = record.disk();
    if figures.is_empty() {
        html.raw("<p class=\"none\">This report has no figures of the disk alone: <code>baio tour</code> and <code>baio report --only disk</code> take them.</p>");
        return;
    }
    html.raw("<section id=\"disk\"><h2>This disk</h2><table class=\"figures\"><thead><tr>");
    for heading in disk::COLUMNS {
        put!(html, "<th scope=col class=n>{}", heading);
    }
    html.raw("</thead><tbody>");
    for one in figures {
        let [what, numbers @ ..] = one.cells();
        html.raw(match what.starts_with(' ') {
            true => "<tr><th scope=row class=more>",
            false => "<tr><th scope=row>",
        });
        put!(html, "{}", what.trim());
        for number in numbers {
            put!(html, "<td class=n>{}", number);
        }
    }
    html.raw("</table><ul class=\"advice\">");
    for sentence in disk::advice(figures) {
        put!(html, "<li>{}</li>", sentence);
    }
    html.raw("</ul></section>");
}

/// Each count leads to the names.
fn counts(html: &mut Html, all: &[Beside<'_>]) {
    if all.is_empty() {
        return;
    }
    html.raw("<section id=\"beside\"><h2>baio beside the others</h2><table class=\"figures\"><thead>");
    html.raw("<tr><th><th colspan=3 scope=colgroup class=n>speed<th colspan=3 scope=colgroup class=n>processor a request<tr><th>");
    for heading in ["faster", "same", "slower", "less", "same", "more"] {
        put!(html, "<th scope=col class=n>{}", heading);
    }
    html.raw("</thead><tbody>");
    for (at, one) in all.iter().enumerate().filter(|(_, one)| one.speed.all() > 0) {
        put!(html, "<tr><th scope=row>{}", one.peers);
        for (of, counts) in [&one.speed, &one.cpu].into_iter().enumerate() {
            for (list, which) in [&counts.better, &counts.same, &counts.worse].into_iter().zip(0..) {
                html.raw("<td class=n>");
                match list.len() {
                    0 => html.raw("0"),
                    some => put!(html, "<a href=\"#{}\">{}</a>", list_anchor(at, of, which), some),
                }
            }
        }
    }
    html.raw("</table><p class=\"soft\">The same is what the rounds cannot tell apart.");
    let once: usize = all.iter().map(|one| one.speed.once).sum();
    if once > 0 {
        put!(
            html,
            " {} more comparisons ran once, which is too little to judge.",
            once
        );
    }
    html.raw("</p>");
    let losses = losses(all);
    if !losses.is_empty() {
        html.raw("<h3>Where baio is slower</h3><ul class=\"advice\">");
        losses
            .iter()
            .take(WORST)
            .for_each(|one| work(html, one, &how_slow(one.row)));
        html.raw("</ul>");
    }
    html.raw("</section>");
}

fn list_anchor(peers: usize, of: usize, which: usize) -> String {
    format!("b{peers}-{of}-{which}")
}

/// What the lists of names are headed by: of speed, and of the processor; each the worse, the same and the better.
const WORDS: [[&str; 3]; 2] = [
    ["slower than", "as fast as", "faster than"],
    [
        "more processor time than",
        "as much processor time as",
        "less processor time than",
    ],
];

/// Work by work. What is slower is open to be read.
fn names(html: &mut Html, all: &[Beside<'_>], room: Room) {
    if all.is_empty() {
        return;
    }
    html.raw("<section id=\"names\"><h2>Work by work</h2>");
    for (at, one) in all.iter().enumerate() {
        for (of, (counts, words)) in [&one.speed, &one.cpu].into_iter().zip(WORDS).enumerate() {
            let lists = [&counts.worse, &counts.same, &counts.better];
            for ((list, word), which) in lists.into_iter().zip(words).zip([2, 1, 0]) {
                if list.is_empty() {
                    continue;
                }
                let heading = format!("{} {word} {}", list.len(), one.peers);
                put!(html, "<details><summary>{}</summary>", heading);
                // A link to the list opens it.
                put!(html, "<ul class=\"works\" id=\"{}\">", list_anchor(at, of, which));
                list.iter().take(room.rows()).for_each(|one| {
                    let ratio = one.row.ratio.map_or_else(String::new, ratio);
                    work(html, one, &format!("{ratio} of {}", one.row.peer));
                });
                let more = list.len().saturating_sub(room.rows());
                if more > 0 {
                    put!(html, "<li>and {} more, in <code>report.json</code></li>", more);
                }
                html.raw("</ul></details>");
            }
        }
    }
    html.raw("</section>");
}

fn work(html: &mut Html, one: &Found<'_>, said: &str) {
    put!(html, "<li>{}: ", said);
    link(html, one.experiment, one.name);
    put!(html, ", {}</li>", one.row.what);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_told_as_people_write_it() {
        assert_eq!(moment("2026-11-23T14:10:05Z"), "2026-11-23 14:10 UTC");
        assert_eq!(moment("ünknown, but long enough"), "ünknown, but long enough");
    }
}
