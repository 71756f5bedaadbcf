//! What is seen first: whether the marks hold, which are missed, and where each experiment stands.

use super::Room;
use super::experiment::{anchor, called, verdict};
use super::markup::Html;
use crate::report::numbers::{duration, mark};
use crate::report::record::{Experiment, Record};
use crate::report::tally::{Outcome, Tally, measured, missed_by};

/// The verdicts, and the way to everything below.
pub(super) fn write(html: &mut Html, record: &Record, tally: &Tally<'_>, room: Room) {
    html.raw("<header>");
    html.raw("<p class=\"of\">baio report");
    if !record.version.is_empty() {
        html.raw(" · ").text(&record.version);
    }
    if !record.began.is_empty() {
        html.raw(" · ").text(&moment(&record.began));
    }
    html.raw(" · took ").text(&duration(record.seconds));
    if record.quick {
        html.raw(" · quick: a look, not a verdict");
    }
    html.raw("</p>");
    html.raw("<p class=\"theme\" role=\"group\" aria-label=\"Colours\" hidden>");
    html.raw("<button type=\"button\" data-theme-choice=\"\" aria-pressed=\"true\">Auto</button>");
    html.raw("<button type=\"button\" data-theme-choice=\"light\" aria-pressed=\"false\">Light</button>");
    html.raw("<button type=\"button\" data-theme-choice=\"dark\" aria-pressed=\"false\">Dark</button></p>");
    html.raw("<h1 id=\"verdict\">").text(&tally.said()).raw("</h1>");
    html.raw("<p id=\"missed\" class=\"summary\">")
        .text(&missed_said(tally));
    match (tally.not_measured, tally.judged()) {
        (0, _) => html.raw(""),
        (1, 0) => html.raw(" One was not measured."),
        (1, _) => html.raw(" One more was not measured."),
        (all, 0) => html.raw(" ").show(all).raw(" were not measured."),
        (more, _) => html.raw(" ").show(more).raw(" more were not measured."),
    };
    html.raw("</p>");
    failures(html, record);
    html.raw("</header>");
    misses(html, tally, room);
    contents(html, record);
}

fn missed_said(tally: &Tally<'_>) -> String {
    match (tally.missed.len(), tally.judged()) {
        (0, 0) => "0 marks are missed, because none could be judged.".to_owned(),
        (0, _) => "0 marks are missed.".to_owned(),
        (1, _) => "1 mark is missed. A mark is what the project has set itself; a missed one fails nothing.".to_owned(),
        (missed, _) => {
            format!("{missed} marks are missed. A mark is what the project has set itself; a missed one fails nothing.")
        }
    }
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
            html.raw(if n > 0 { ", " } else { "" }).raw("<a href=\"#");
            html.text(&anchor(at, &experiment.name))
                .raw("\">")
                .text(called(&experiment.name))
                .raw("</a>");
        }
        html.raw(".</p>");
    }
}

fn misses(html: &mut Html, tally: &Tally<'_>, room: Room) {
    if tally.missed.is_empty() {
        return;
    }
    html.raw("<section id=\"misses\"><h2>Missed marks</h2><table class=cards><thead><tr><th scope=col>what<th scope=col>figure");
    html.raw("<th scope=col class=n>measured<th scope=col class=n>mark<th scope=col>verdict<th scope=col>experiment</thead><tbody>");
    for miss in tally.missed.iter().take(room.rows()) {
        html.raw("<tr><td class=what>")
            .text(&miss.row.what)
            .raw("<td>")
            .text(&miss.row.figure);
        if !miss.row.peer.is_empty() {
            html.raw("<span class=soft>, against ")
                .text(&miss.row.peer)
                .raw("</span>");
        }
        html.raw("<td class=n data-is=measured>").text(&measured(miss.row));
        html.raw("<td class=n data-is=mark>")
            .text(&mark(miss.row.mark.as_deref().unwrap_or_default()));
        html.raw("<td class=missed>")
            .text(&missed_by(miss.row))
            .raw("<td data-is=in><a href=\"#");
        html.text(&anchor(miss.experiment, miss.name))
            .raw("\">")
            .text(called(miss.name))
            .raw("</a>");
    }
    html.raw("</tbody></table>");
    let more = tally.missed.len().saturating_sub(room.rows());
    if more > 0 {
        html.raw("<p class=none>").show(more);
        html.raw(" more would make this page too large; they are in <code>report.json</code>.</p>");
    }
    html.raw("</section>");
}

fn contents(html: &mut Html, record: &Record) {
    html.raw("<nav aria-label=\"Contents\"><h2>Experiments</h2>");
    if record.experiments.is_empty() {
        html.raw("<p>No experiment has ended.</p>");
    }
    html.raw("<ul class=\"contents\">");
    for (at, experiment) in record.experiments.iter().enumerate() {
        let tally = Tally::of_one(experiment);
        html.raw("<li><a href=\"#")
            .text(&anchor(at, &experiment.name))
            .raw("\">")
            .text(called(&experiment.name))
            .raw("</a> ");
        if !experiment.verified {
            verdict(html, Outcome::Missed, "did not hold");
        } else if tally.judged() > 0 {
            let outcome = if tally.missed.is_empty() {
                Outcome::Holds
            } else {
                Outcome::Missed
            };
            verdict(html, outcome, &format!("{} of {}", tally.held, tally.judged()));
        } else if measured_any(experiment) {
            html.raw("<span class=\"soft\">no marks</span>");
        } else {
            html.raw("<span class=\"soft\">nothing measured</span>");
        }
        html.raw("</li>");
    }
    html.raw("</ul><p class=\"also\"><a href=\"#promises\">What the documents ask for</a> · <a href=\"#machine\">The machine</a> · ");
    html.raw("<a href=\"#again\">How to run it again</a></p></nav>");
}

fn measured_any(experiment: &Experiment) -> bool {
    let mut lines = experiment.charts.iter().flat_map(|chart| &chart.lines);
    experiment
        .rows
        .iter()
        .any(|row| row.ours.is_some() || row.ratio.is_some())
        || lines.any(|line| line.values.iter().any(Option::is_some))
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
