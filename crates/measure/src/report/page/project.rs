//! For the project: which of its marks are missed, where each experiment stands, and each experiment with all its figures.

use super::experiment::{self, link, verdict};
use super::markup::{Html, put};
use super::{Room, closing};
use crate::report::numbers::mark;
use crate::report::record::{Experiment, Record};
use crate::report::tally::{Outcome, Tally, measured, missed_by};

pub(super) fn write(html: &mut Html, record: &Record, tally: &Tally<'_>, room: Room) {
    html.raw(r#"<section id="project"><h2>For the project</h2>"#);
    put!(html, r#"<p class="summary">{}.</p>"#, tally.said());
    put!(html, r#"<p id="missed">{}"#, missed_said(tally));
    match (tally.not_measured, tally.judged()) {
        (0, _) => {}
        (1, 0) => html.raw(" One was not measured."),
        (1, _) => html.raw(" One more was not measured."),
        (all, 0) => put!(html, " {} were not measured.", all),
        (more, _) => put!(html, " {} more were not measured.", more),
    }
    html.raw("</p></section>");
    misses(html, tally, room);
    contents(html, record);
    for (at, one) in record.experiments.iter().enumerate() {
        experiment::write(html, at, one, room);
    }
    closing::write(html, record);
}

fn missed_said(tally: &Tally<'_>) -> String {
    let missed = match (tally.missed.len(), tally.judged()) {
        (0, 0) => return "0 marks are missed, because none could be judged.".to_owned(),
        (0, _) => return "0 marks are missed.".to_owned(),
        (1, _) => "1 mark is".to_owned(),
        (missed, _) => format!("{missed} marks are"),
    };
    format!("{missed} missed. A mark is what the project has set itself; a missed one fails nothing.")
}

fn misses(html: &mut Html, tally: &Tally<'_>, room: Room) {
    if tally.missed.is_empty() {
        return;
    }
    html.raw("<section id=\"misses\"><h2>Missed marks</h2><table class=cards><thead><tr><th scope=col>what<th scope=col>figure");
    html.raw("<th scope=col class=n>measured<th scope=col class=n>mark<th scope=col>verdict<th scope=col>experiment</thead><tbody>");
    for miss in tally.missed.iter().take(room.rows()) {
        let row = miss.row;
        put!(html, "<tr><td class=what>{}<td>{}", row.what, row.figure);
        if !row.peer.is_empty() {
            put!(html, "<span class=soft>, against {}</span>", row.peer);
        }
        put!(html, "<td class=n data-is=measured>{}", measured(row));
        let mark = mark(row.mark.as_deref().unwrap_or_default());
        put!(html, "<td class=n data-is=mark>{}", mark);
        put!(html, "<td class={}>{}", Outcome::of(row).class(), missed_by(row));
        html.raw("<td data-is=in>");
        link(html, miss.experiment, miss.name);
    }
    html.raw("</tbody></table>");
    let more = tally.missed.len().saturating_sub(room.rows());
    if more > 0 {
        put!(html, "<p class=none>{}", more);
        html.raw(" more would make this page too large; they are in <code>report.json</code>.</p>");
    }
    html.raw("</section>");
}

fn contents(html: &mut Html, record: &Record) {
    html.raw(r#"<nav aria-label="Contents"><h2>Experiments</h2>"#);
    if record.experiments.is_empty() {
        html.raw("<p>No experiment has ended.</p>");
    }
    html.raw(r#"<ul class="contents">"#);
    for (at, experiment) in record.experiments.iter().enumerate() {
        let tally = Tally::of_one(experiment);
        html.raw("<li>");
        link(html, at, &experiment.name);
        html.raw(" ");
        if !experiment.verified {
            verdict(html, Outcome::Missed, "did not hold");
        } else if tally.judged() > 0 {
            let said = format!("{} of {}", tally.held, tally.judged());
            verdict(html, tally.outcome(), &said);
        } else if measured_any(experiment) {
            html.raw(r#"<span class="soft">no marks</span>"#);
        } else {
            html.raw(r#"<span class="soft">nothing measured</span>"#);
        }
        html.raw("</li>");
    }
    html.raw(r##"</ul><p class="also"><a href="#promises">What the documents ask for</a> · "##);
    html.raw(r##"<a href="#again">How to run it again</a></p></nav>"##);
}

fn measured_any(experiment: &Experiment) -> bool {
    let mut rows = experiment.rows.iter();
    let mut lines = experiment.charts.iter().flat_map(|chart| &chart.lines);
    rows.any(|row| row.ours.is_some() || row.ratio.is_some())
        || !experiment.disk.is_empty()
        || lines.any(|line| line.values.iter().any(Option::is_some))
}
