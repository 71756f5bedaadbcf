//! What stands at the end of the page: what the documents ask for, and how the report is taken again.

use super::experiment::{anchor, verdict, word};
use super::markup::Html;
use crate::report::record::{Promise, Record};
use crate::report::tally::Outcome;

pub(super) fn write(html: &mut Html, record: &Record) {
    html.raw("<section id=\"promises\"><h2>What the documents ask for</h2>");
    if record.promises.is_empty() {
        html.raw("<p class=\"none\">This report keeps no list of it.</p>");
    } else {
        promises(html, record);
    }
    html.raw("</section><section id=\"again\"><h2>How to run it again</h2>");
    html.raw("<pre>baio report");
    for option in &record.options {
        html.raw(" ").text(&word(option));
    }
    if record.options.is_empty() && record.quick {
        html.raw(" --quick");
    }
    html.raw("</pre><p>Figures of another machine, or of another file system, say little about yours: <code>--dir</code> names a directory on ");
    html.raw("the one to be measured. ");
    html.raw("Each experiment above has the words that run it alone. The figures of this page, with all digits and each run of ");
    html.raw("each side, are in <code>report.json</code>.</p></section>");
}

fn promises(html: &mut Html, record: &Record) {
    html.raw("<table class=\"cards\"><thead><tr>");
    for word in ["", "what", "document", "state", "shown by"] {
        html.raw("<th scope=\"col\">").raw(word).raw("</th>");
    }
    html.raw("</tr></thead><tbody>");
    for promise in &record.promises {
        html.raw("<tr><th scope=\"row\" class=\"id\">").text(&promise.id);
        html.raw("</th><td class=\"what\">").text(&promise.title);
        html.raw("</td><td data-is=\"document\">").text(&promise.document);
        html.raw("</td><td class=\"verdict\">");
        verdict(html, outcome(promise), &promise.state);
        html.raw("</td><td data-is=\"shown by\">");
        shown_by(html, record, promise);
        html.raw("</td></tr>");
    }
    html.raw("</tbody></table>");
}

fn outcome(promise: &Promise) -> Outcome {
    match promise.state.as_str() {
        "shown" | "checked" => Outcome::Holds,
        "missed" => Outcome::Missed,
        _ => Outcome::NotMeasured,
    }
}

/// A link where the experiment is on the page, and its name where it did not run.
fn shown_by(html: &mut Html, record: &Record, promise: &Promise) {
    for (n, name) in promise.shown_by.iter().enumerate() {
        html.raw(if n > 0 { ", " } else { "" });
        match record
            .experiments
            .iter()
            .position(|experiment| experiment.name == *name)
        {
            Some(at) => html
                .raw("<a href=\"#")
                .text(&anchor(at, name))
                .raw("\">")
                .text(name)
                .raw("</a>"),
            None => html.text(name),
        };
    }
}
