//! An experiment on the page: what it shows, its figures in a table, and the commands that run it again. Its charts stand above, with all others.

use super::Room;
use super::markup::Html;
use crate::report::numbers::{NONE, duration, figure, mark, plain, ratio, unit};
use crate::report::record::{Experiment, Row};
use crate::report::tally::{Outcome, Tally, missed_by};

/// The place of an experiment in the page: its number keeps two of a name apart, its name makes the link readable.
pub(super) fn anchor(at: usize, name: &str) -> String {
    let plain = |character: char| {
        if character.is_ascii_alphanumeric() {
            character.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let slug: String = name.chars().take(40).map(plain).collect();
    format!("e{}-{slug}", at + 1)
}

/// A link must have something to press.
pub(super) fn called(name: &str) -> &str {
    if name.trim().is_empty() { "no name" } else { name }
}

/// A word; the style gives it a sign and a colour.
pub(super) fn verdict(html: &mut Html, outcome: Outcome, word: &str) {
    html.raw("<span class=")
        .raw(outcome.class())
        .raw(">")
        .text(word)
        .raw("</span>");
}

pub(super) fn write(html: &mut Html, at: usize, experiment: &Experiment, room: Room) {
    html.raw("<section class=\"experiment\" id=\"")
        .text(&anchor(at, &experiment.name));
    html.raw("\" data-rows=\"").show(experiment.rows.len().min(room.rows()));
    html.raw("\"><h2>").text(called(&experiment.name)).raw("</h2>");
    if !experiment.shows.is_empty() {
        html.raw("<p class=\"shows\">").text(&experiment.shows).raw("</p>");
    }
    state(html, experiment);
    if !experiment.notes.is_empty() {
        html.raw("<ul class=\"notes\">");
        for note in &experiment.notes {
            html.raw("<li>").text(note).raw("</li>");
        }
        html.raw("</ul>");
    }
    match (
        experiment.rows.is_empty(),
        experiment.charts.is_empty() && experiment.disk.is_empty(),
    ) {
        (true, true) => drop(html.raw("<p class=\"none\">This experiment has no figures.</p>")),
        (true, false) => drop(html.raw("<p class=\"none\">Its figures stand above.</p>")),
        (false, _) => table(html, &experiment.rows, room),
    }
    commands(html, experiment, room);
    html.raw("</section>");
}

fn state(html: &mut Html, experiment: &Experiment) {
    let tally = Tally::of_one(experiment);
    html.raw("<p class=\"state\">");
    if !experiment.verified {
        verdict(html, Outcome::Missed, "something did not hold that must hold");
        html.raw(" · ");
    }
    if tally.judged() > 0 {
        let outcome = if tally.missed.is_empty() {
            Outcome::Holds
        } else {
            Outcome::Missed
        };
        verdict(html, outcome, &tally.said());
        html.raw(" · ");
    }
    html.raw("took ").text(&duration(experiment.seconds)).raw("</p>");
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
        1 + 2 * usize::from(self.theirs)
            + usize::from(self.ratio)
            + usize::from(self.spread)
            + 2 * usize::from(self.mark)
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
        html.raw("<p class=none>").show(rows.len() - shown.len());
        html.raw(" rows more would make this page too large; they are in <code>report.json</code>.</p>");
    }
    html.raw("<table class=\"rows cards\"><thead><tr><th scope=col>what<th scope=col>figure<th scope=col class=n>ours");
    if columns.theirs {
        html.raw("<th scope=col class=n>theirs<th scope=col>who");
    }
    if columns.ratio {
        html.raw("<th scope=col class=n>ratio");
    }
    if columns.spread {
        html.raw("<th scope=col class=n>of the rounds");
    }
    if columns.mark {
        html.raw("<th scope=col class=n>mark<th scope=col>verdict");
    }
    html.raw("</thead>");
    // Rows that follow each other and are about the same stand together.
    for group in shown.chunk_by(|a, b| a.what == b.what) {
        html.raw("<tbody>");
        for (n, row) in group.iter().enumerate() {
            html.raw("<tr>");
            if n == 0 {
                html.raw("<th");
                if group.len() > 1 {
                    html.raw(" rowspan=").show(group.len());
                }
                html.raw(">").text(&row.what);
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
    html.raw("<td class=f>").text(&row.figure);
    let unit = unit(&row.figure, &row.unit);
    if !unit.is_empty() {
        html.raw("\u{a0}<span class=soft>").text(&unit).raw("</span>");
    }
    let number = |value: f64| {
        if row.unit.is_empty() {
            plain(value)
        } else {
            figure(value)
        }
    };
    // A reason stands for ours and all that follows, or for the comparison alone.
    if row.ours.is_some() || row.skipped.is_none() {
        html.raw("<td class=o>").text(&row.ours.map_or(NONE.to_owned(), number));
    }
    if let Some(reason) = &row.skipped {
        let left = columns.count() - usize::from(row.ours.is_some());
        html.raw("<td class=open colspan=").show(left.max(1)).raw(">");
        html.raw(if row.ours.is_some() {
            "not compared"
        } else {
            "not measured"
        });
        if !row.peer.is_empty() {
            html.raw(if row.ours.is_some() { " with " } else { " against " })
                .text(&row.peer);
        }
        html.raw(": ").text(reason);
        return;
    }
    if columns.theirs {
        html.raw("<td class=t>").text(&row.theirs.map_or(String::new(), number));
        html.raw("<td class=w>").text(&row.peer);
    }
    if columns.ratio {
        html.raw("<td class=r>").text(&row.ratio.map_or(String::new(), ratio));
    }
    if columns.spread {
        let from_to = |[least, most]: [f64; 2]| format!("{} to {}", ratio(least), ratio(most));
        html.raw("<td class=s>")
            .text(&row.spread.map_or(String::new(), from_to));
    }
    if columns.mark {
        html.raw("<td class=k>")
            .text(&mark(row.mark.as_deref().unwrap_or_default()));
        let outcome = Outcome::of(row);
        html.raw("<td class=").raw(outcome.class()).raw(">");
        match outcome {
            Outcome::Missed | Outcome::Short => html.text(&missed_by(row)),
            other => html.raw(other.word()),
        };
    }
}

/// Each once, however many figures it gave.
fn commands(html: &mut Html, experiment: &Experiment, room: Room) {
    html.raw("<details class=\"commands\"><summary>How to run it again</summary><pre>baio report --only ");
    html.text(&word(&experiment.name)).raw("</pre>");
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
            html.raw("<p class=\"side\">")
                .text(what)
                .raw(" · ")
                .text(who)
                .raw("</p><pre>")
                .text(command)
                .raw("</pre>");
        }
    }
    if room != Room::Enough && !told.is_empty() {
        html.raw("<p>")
            .show(told.len())
            .raw(" commands would make this page too large; they are in <code>report.json</code>.</p>");
    }
    html.raw("</details>");
}

/// A word of a command line, as a shell reads it.
pub(super) fn word(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=".contains(&byte);
    if !name.is_empty() && name.bytes().all(plain) {
        name.to_owned()
    } else {
        format!("'{}'", name.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_word_of_a_shell_and_a_plain_anchor() {
        assert_eq!(word("random-read"), "random-read");
        assert_eq!(word("a b'c"), r"'a b'\''c'");
        assert_eq!(anchor(0, "random-read"), "e1-random-read");
        assert_eq!(anchor(9, "<\"ü>"), "e10-----");
    }
}
