//! For the project: which of its marks are missed, where each experiment stands, and each experiment with all its figures.

use super::experiment::{self, anchor, called, verdict};
use super::markup::Html;
use super::{Room, closing};
use crate::report::numbers::mark;
use crate::report::record::{Experiment, Record};
use crate::report::tally::{Outcome, Tally, measured, missed_by};

pub(super) fn write(html: &mut Html, record: &Record, tally: &Tally<'_>, room: Room) {
    html.raw("<section id=\"project\"><h2>For the project</h2><p class=\"summary\">")
        .text(&tally.said());
    html.raw(".</p><p id=\"missed\">").text(&missed_said(tally));
    match (tally.not_measured, tally.judged()) {
        (0, _) => html.raw(""),
        (1, 0) => html.raw(" One was not measured."),
        (1, _) => html.raw(" One more was not measured."),
        (all, 0) => html.raw(" ").show(all).raw(" were not measured."),
        (more, _) => html.raw(" ").show(more).raw(" more were not measured."),
    };
    html.raw("</p></section>");
    misses(html, tally, room);
    contents(html, record);
    for (at, one) in record.experiments.iter().enumerate() {
        experiment::write(html, at, one, room);
    }
    closing::write(html, record);
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
        html.raw("<td class=")
            .raw(Outcome::of(miss.row).class())
            .raw(">")
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
    html.raw("</ul><p class=\"also\"><a href=\"#promises\">What the documents ask for</a> · ");
    html.raw("<a href=\"#again\">How to run it again</a></p></nav>");
}

fn measured_any(experiment: &Experiment) -> bool {
    let mut lines = experiment.charts.iter().flat_map(|chart| &chart.lines);
    experiment
        .rows
        .iter()
        .any(|row| row.ours.is_some() || row.ratio.is_some())
        || !experiment.disk.is_empty()
        || lines.any(|line| line.values.iter().any(Option::is_some))
}
