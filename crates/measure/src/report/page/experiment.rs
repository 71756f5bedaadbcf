//! An experiment on the page: what it shows, its figures in a table, and the commands that run it again. Its charts stand above, with all others.

use super::Room;
use super::markup::{Html, put};
use crate::figures::quoted;
use crate::report::numbers::{NONE, duration, figure, mark, plain, ratio, unit};
use crate::report::record::{Experiment, Row};
use crate::report::tally::{Outcome, Tally, missed_by};

/// The place of an experiment in the page: its number keeps two of a name apart, its name makes the link readable.
pub(super) fn anchor(at: usize, name: &str) -> String {
    let plain = |character: char| match character.is_ascii_alphanumeric() {
        true => character.to_ascii_lowercase(),
        false => '-',
    };
    let slug: String = name.chars().take(40).map(plain).collect();
    format!("e{}-{slug}", at + 1)
}

/// A link must have something to press.
pub(super) fn called(name: &str) -> &str {
    if name.trim().is_empty() { "no name" } else { name }
}

/// A link to an experiment, by its name.
pub(super) fn link(html: &mut Html, at: usize, name: &str) {
    put!(html, "<a href=\"#{}\">{}</a>", anchor(at, name), called(name));
}

/// A word; the style gives it a sign and a colour.
pub(super) fn verdict(html: &mut Html, outcome: Outcome, word: &str) {
    put!(html, "<span class={}>{}</span>", outcome.class(), word);
}

pub(super) fn write(html: &mut Html, at: usize, experiment: &Experiment, room: Room) {
    let rows = experiment.rows.len().min(room.rows());
    put!(
        html,
        r#"<section class="experiment" id="{}""#,
        anchor(at, &experiment.name)
    );
    put!(html, r#" data-rows="{}"><h2>{}</h2>"#, rows, called(&experiment.name));
    if !experiment.shows.is_empty() {
        put!(html, r#"<p class="shows">{}</p>"#, experiment.shows);
    }
    state(html, experiment);
    if !experiment.notes.is_empty() {
        html.raw(r#"<ul class="notes">"#);
        for note in &experiment.notes {
            put!(html, "<li>{}</li>", note);
        }
        html.raw("</ul>");
    }
    let stands_above = !experiment.charts.is_empty() || !experiment.disk.is_empty();
    match (experiment.rows.is_empty(), stands_above) {
        (true, false) => html.raw(r#"<p class="none">This experiment has no figures.</p>"#),
        (true, true) => html.raw(r#"<p class="none">Its figures stand above.</p>"#),
        (false, _) => table(html, &experiment.rows, room),
    }
    commands(html, experiment, room);
    html.raw("</section>");
}

fn state(html: &mut Html, experiment: &Experiment) {
    let tally = Tally::of_one(experiment);
    html.raw(r#"<p class="state">"#);
    if !experiment.verified {
        verdict(html, Outcome::Missed, "something did not hold that must hold");
        html.raw(" · ");
    }
    if tally.judged() > 0 {
        verdict(html, tally.outcome(), &tally.said());
        html.raw(" · ");
    }
    put!(html, "took {}</p>", duration(experiment.seconds));
}

/// The columns that an experiment has something in.
struct Columns {
    theirs: bool,
    ratio: bool,
    spread: bool,
    mark: bool,
}

impl Columns {
    fn of(rows: &[Row], room: Room) -> Columns {
        Columns {
            theirs: rows.iter().any(|row| row.theirs.is_some() || !row.peer.is_empty()),
            ratio: rows.iter().any(|row| row.ratio.is_some()),
            spread: room < Room::NoRounds && rows.iter().any(|row| row.spread.is_some()),
            mark: rows.iter().any(|row| row.mark.is_some()),
        }
    }

    /// Those after `what` and `figure`.
    fn count(&self) -> usize {
        let twice = usize::from(self.theirs) + usize::from(self.mark);
        1 + 2 * twice + usize::from(self.ratio) + usize::from(self.spread)
    }
}

/// A report has hundreds of rows: end tags that HTML does not ask for are left out, and classes are letters. `assets/page.css` says
/// what each is.
fn table(html: &mut Html, rows: &[Row], room: Room) {
    let columns = Columns::of(rows, room);
    if !columns.spread && rows.iter().any(|row| row.spread.is_some()) {
        html.raw("<p class=none>What single rounds gave would make this page too large; it is in <code>report.json</code>.</p>");
    }
    let shown = telling(rows, room.rows());
    if shown.len() < rows.len() {
        put!(html, "<p class=none>{}", rows.len() - shown.len());
        html.raw(" rows more would make this page too large; they are in <code>report.json</code>.</p>");
    }
    html.raw(
        r#"<table class="rows cards"><thead><tr><th scope=col>what<th scope=col>figure<th scope=col class=n>ours"#,
    );
    for (is_there, heading) in [
        (columns.theirs, "<th scope=col class=n>theirs<th scope=col>who"),
        (columns.ratio, "<th scope=col class=n>ratio"),
        (columns.spread, "<th scope=col class=n>of the rounds"),
        (columns.mark, "<th scope=col class=n>mark<th scope=col>verdict"),
    ] {
        html.raw(if is_there { heading } else { "" });
    }
    html.raw("</thead>");
    // Rows that follow each other and are about the same stand together.
    for group in shown.chunk_by(|a, b| a.what == b.what) {
        html.raw("<tbody>");
        for (n, row) in group.iter().enumerate() {
            html.raw("<tr>");
            match (n, group.len()) {
                (0, 1) => put!(html, "<th>{}", row.what),
                (0, rows) => put!(html, "<th rowspan={}>{}", rows, row.what),
                _ => {}
            }
            figures(html, row, &columns);
        }
    }
    html.raw("</table>");
}

/// At most so many rows, in their order: missed marks before all others, and then those that hold.
fn telling(rows: &[Row], most: usize) -> Vec<&Row> {
    let mut places: Vec<usize> = (0..rows.len()).collect();
    places.sort_by_key(|&at| match Outcome::of(&rows[at]) {
        Outcome::Missed | Outcome::Short => 0,
        _ if rows[at].mark.is_some() => 1,
        _ => 2,
    });
    places.truncate(most);
    places.sort_unstable();
    places.into_iter().map(|at| &rows[at]).collect()
}

fn figures(html: &mut Html, row: &Row, columns: &Columns) {
    put!(html, "<td class=f>{}", row.figure);
    let unit = unit(&row.figure, &row.unit);
    if !unit.is_empty() {
        put!(html, "\u{a0}<span class=soft>{}</span>", unit);
    }
    let number = |value: f64| match row.unit.is_empty() {
        true => plain(value),
        false => figure(value),
    };
    // A reason stands for ours and all that follows, or for the comparison alone.
    if row.ours.is_some() || row.skipped.is_none() {
        put!(html, "<td class=o>{}", row.ours.map_or(NONE.to_owned(), number));
    }
    if let Some(reason) = &row.skipped {
        let left = columns.count() - usize::from(row.ours.is_some());
        let (not, with) = match row.ours {
            Some(_) => ("not compared", " with "),
            None => ("not measured", " against "),
        };
        let peer = Some(&row.peer[..]).filter(|peer| !peer.is_empty());
        put!(html, "<td class=open colspan={}>{}", left.max(1), not);
        put!(html, "{}{}", peer.map_or("", |_| with), peer.unwrap_or_default());
        return put!(html, ": {}", reason);
    }
    if columns.theirs {
        let theirs = row.theirs.map_or(String::new(), number);
        put!(html, "<td class=t>{}<td class=w>{}", theirs, row.peer);
    }
    if columns.ratio {
        put!(html, "<td class=r>{}", row.ratio.map_or(String::new(), ratio));
    }
    if columns.spread {
        let from_to = |[least, most]: [f64; 2]| format!("{} to {}", ratio(least), ratio(most));
        put!(html, "<td class=s>{}", row.spread.map_or(String::new(), from_to));
    }
    if columns.mark {
        let outcome = Outcome::of(row);
        let said = match outcome {
            Outcome::Missed | Outcome::Short => missed_by(row),
            other => other.word().to_owned(),
        };
        put!(html, "<td class=k>{}", mark(row.mark.as_deref().unwrap_or_default()));
        put!(html, "<td class={}>{}", outcome.class(), said);
    }
}

/// Each once, however many figures it gave.
fn commands(html: &mut Html, experiment: &Experiment, room: Room) {
    html.raw(r#"<details class="commands"><summary>How to run it again</summary>"#);
    put!(html, "<pre>baio report --only {}</pre>", quoted(&experiment.name));
    let sides = experiment.rows.iter().flat_map(|row| {
        let peer = if row.peer.is_empty() { "the peer" } else { &row.peer };
        [("ours", &row.what, &row.command), (peer, &row.what, &row.peers_command)]
    });
    let mut told: Vec<&str> = Vec::new();
    for (who, what, command) in sides {
        if command.is_empty() || told.contains(&command.as_str()) {
            continue;
        }
        if told.is_empty() {
            html.raw("<p>Each side alone, while files of those names exist:</p>");
        }
        told.push(command);
        if room == Room::Enough {
            put!(html, r#"<p class="side">{} · {}</p><pre>{}</pre>"#, what, who, command);
        }
    }
    if room != Room::Enough && !told.is_empty() {
        put!(html, "<p>{}", told.len());
        html.raw(" commands would make this page too large; they are in <code>report.json</code>.</p>");
    }
    html.raw("</details>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_plain_anchor() {
        assert_eq!(anchor(0, "random-read"), "e1-random-read");
        assert_eq!(anchor(9, "<\"ü>"), "e10-----");
    }
}
