//! What stands at the end of the page: what the documents ask for, and how the report is taken again.

use super::experiment::{anchor, verdict};
use super::markup::{Html, put};
use crate::figures::quoted;
use crate::report::record::{Promise, Record};
use crate::report::tally::Outcome;

pub(super) fn write(html: &mut Html, record: &Record) {
    html.raw(r#"<section id="promises"><h2>What the documents ask for</h2>"#);
    if record.promises.is_empty() {
        html.raw(r#"<p class="none">This report keeps no list of it.</p>"#);
    } else {
        promises(html, record);
    }
    html.raw(r#"</section><section id="again"><h2>How to run it again</h2><pre>baio report"#);
    for option in &record.options {
        put!(html, " {}", quoted(option));
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
    html.raw(r#"<table class="cards"><thead><tr>"#);
    for word in ["", "what", "document", "state", "shown by"] {
        put!(html, r#"<th scope="col">{}</th>"#, word);
    }
    html.raw("</tr></thead><tbody>");
    for promise in &record.promises {
        put!(html, r#"<tr><th scope="row" class="id">{}</th>"#, promise.id);
        put!(html, r#"<td class="what">{}</td>"#, promise.title);
        put!(html, r#"<td data-is="document">{}</td>"#, promise.document);
        html.raw(r#"<td class="verdict">"#);
        verdict(html, outcome(promise), &promise.state);
        html.raw(r#"</td><td data-is="shown by">"#);
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
        match record.experiments.iter().position(|one| one.name == *name) {
            Some(at) => put!(html, "<a href=\"#{}\">{}</a>", anchor(at, name), name),
            None => put!(html, "{}", name),
        }
    }
}
