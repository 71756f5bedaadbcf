//! What an experiment without a chart has to look at: a strip for each figure, drawn here, readable without scripts.
//!
//! ```text
//! file, uring, depth 64: requests/s      ----|[=====o=====     a ratio: the dot; its rounds: the thin line; the mark and
//!                                                              the side on which it holds: the band
//! ```
//!
//! Positions are parts of the strip's width, so it fills a wide screen and a narrow one, and shapes and text keep their size.

use super::Room;
use super::markup::Html;
use crate::report::numbers::{exact, figure, mark, plain, unit};
use crate::report::record::Row;
use crate::report::tally::{Outcome, measured};

/// Of a strip, in units of its own.
const WIDTH: f64 = 1000.0;

/// On which side of which number a mark holds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mark {
    AtLeast(f64),
    AtMost(f64),
}

impl Mark {
    fn of(row: &Row) -> Option<Mark> {
        let text = row.mark.as_deref()?;
        let number = |rest: &str| {
            let word = rest.split_whitespace().next()?;
            word.parse::<f64>()
                .ok()
                .filter(|bound| bound.is_finite() && *bound >= 0.0)
        };
        match text.split_at_checked(2)? {
            (">=", rest) => number(rest).map(Mark::AtLeast),
            ("<=", rest) => number(rest).map(Mark::AtMost),
            _ => None,
        }
    }

    fn bound(self) -> f64 {
        match self {
            Mark::AtLeast(bound) | Mark::AtMost(bound) => bound,
        }
    }

    /// Measured in the mark itself. A mark of 0 has no parts: what is above it is far off.
    fn part(self, value: f64) -> f64 {
        match self.bound() {
            bound if bound > 0.0 => value / bound,
            _ if value > 0.0 => f64::INFINITY,
            _ => 1.0,
        }
    }

    fn same_at(self, bound: f64) -> Mark {
        match self {
            Mark::AtLeast(_) => Mark::AtLeast(bound),
            Mark::AtMost(_) => Mark::AtMost(bound),
        }
    }
}

/// So many rows are drawn on any page.
const FEW: usize = 20;

/// A dot on a strip.
struct Dot<'a> {
    row: &'a Row,
    at: f64,
    spread: Option<[f64; 2]>,
    mark: Option<Mark>,
}

/// The strips of rows with marks; where none has one, of all that are compared; where nothing is, the figures themselves.
pub(super) fn write(html: &mut Html, rows: &[Row], room: Room) {
    let marked: Vec<&Row> = rows
        .iter()
        .filter(|row| row.mark.is_some() && row.skipped.is_none())
        .collect();
    let all: Vec<&Row> = if marked.is_empty() {
        rows.iter().collect()
    } else {
        marked
    };
    let mut compared: Vec<Dot<'_>> = all.iter().filter_map(|row| compared(row)).collect();
    let mut judged: Vec<Dot<'_>> = all.iter().filter_map(|row| judged_alone(row)).collect();
    if room >= Room::Least && rows.len() > FEW {
        let missed = |dots: &mut Vec<Dot<'_>>| dots.retain(|dot| Outcome::of(dot.row) == Outcome::Missed);
        missed(&mut compared);
        missed(&mut judged);
        compared.truncate(room.rows());
        judged.truncate(room.rows());
        html.raw("<p class=none>Too many figures for this page: only missed marks are drawn, or some of them. <code>report.json</code> has all.</p>");
    } else if compared.is_empty() && judged.is_empty() {
        bars(html, rows);
        return;
    }
    let with_marks = compared.iter().any(|dot| dot.mark.is_some());
    strips(
        html,
        &compared,
        if with_marks {
            "Ours to theirs, beside the marks. A dot within the band holds its mark."
        } else {
            "Ours to theirs: at 1 both are the same."
        },
    );
    strips(
        html,
        &judged,
        "Figures of ours, in parts of their marks. A dot within the band holds its mark.",
    );
}

fn compared(row: &Row) -> Option<Dot<'_>> {
    Some(Dot {
        row,
        at: row.ratio.filter(|ratio| !ratio.is_nan())?,
        spread: row.spread,
        mark: Mark::of(row),
    })
}

/// A figure that its mark judges without a peer.
fn judged_alone(row: &Row) -> Option<Dot<'_>> {
    // Beside a peer the mark is of the ratio, which there is not.
    if row.ratio.is_some() || !row.peer.is_empty() {
        return None;
    }
    let (ours, mark) = (row.ours.filter(|ours| !ours.is_nan())?, Mark::of(row)?);
    Some(Dot {
        row,
        at: mark.part(ours),
        spread: None,
        mark: Some(mark.same_at(1.0)),
    })
}

/// A logarithmic axis with 1 on it. What lies beyond its ends stands at them.
struct Axis {
    least: f64,
    most: f64,
}

impl Axis {
    /// Further than this from 1, a strip would show nothing else.
    const FAR: f64 = 100.0;

    fn of(dots: &[Dot<'_>]) -> Axis {
        let (mut least, mut most) = (0.8_f64, 1.25_f64);
        for dot in dots {
            let spread = dot.spread.unwrap_or([dot.at; 2]);
            for value in [dot.at, spread[0], spread[1], dot.mark.map_or(1.0, Mark::bound)] {
                if value > 0.0 && value.is_finite() {
                    least = least.min(value);
                    most = most.max(value);
                }
            }
        }
        Axis {
            least: (least / 1.1).max(1.0 / Self::FAR),
            most: (most * 1.1).min(Self::FAR),
        }
    }

    /// On the strip, which keeps a little room at both ends.
    fn place(&self, value: f64) -> f64 {
        let part = (value / self.least).ln() / (self.most / self.least).ln();
        // A value of 0 is at the left end.
        let part = if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) };
        (20.0 + (WIDTH - 40.0) * part).round()
    }

    fn beyond(&self, value: f64) -> bool {
        !(self.least..=self.most).contains(&value)
    }

    fn ticks(&self) -> Vec<f64> {
        let steps: &[f64] = match self.most / self.least {
            20.0.. => &[0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0],
            3.0.. => &[0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0],
            _ => &[0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 2.5],
        };
        steps.iter().copied().filter(|tick| !self.beyond(*tick)).collect()
    }
}

fn strips(html: &mut Html, dots: &[Dot<'_>], caption: &'static str) {
    if dots.is_empty() {
        return;
    }
    let axis = Axis::of(dots);
    html.raw("<figure class=strips><figcaption>")
        .raw(caption)
        .raw("</figcaption><ul>");
    for dot in dots {
        strip(html, &axis, dot);
    }
    html.raw("</ul><div class=axis aria-hidden=true><svg class=strip height=20>");
    for tick in axis.ticks() {
        html.raw("<text text-anchor=middle y=14 x=\"")
            .show(axis.place(tick) / 10.0)
            .raw("%\">");
        html.text(&exact(tick)).raw("</text>");
    }
    html.raw("</svg></div></figure>");
}

/// All shapes are lines, and lines keep their width however wide the strip is; a line of no length is a dot with a round cap.
fn strip(html: &mut Html, axis: &Axis, dot: &Dot<'_>) {
    let outcome = Outcome::of(dot.row);
    html.raw("<li><span class=label>");
    label(html, dot.row);
    begin_strip(html);
    html.text(&measured(dot.row));
    if let Some(text) = &dot.row.mark {
        html.raw(", mark ").text(&mark(text)).raw(": ").raw(outcome.word());
    }
    html.raw("\">");
    // Where both are the same.
    stroke(html, "one", axis.place(1.0), 'V');
    if let Some(mark) = dot.mark {
        let at = axis.place(mark.bound());
        let (from, to) = match mark {
            Mark::AtLeast(_) => (at, WIDTH),
            Mark::AtMost(_) => (0.0, at),
        };
        html.raw("<path class=band d=\"M")
            .show(from)
            .raw(" 4V18H")
            .show(to)
            .raw("V4Z\"/>");
        stroke(html, "bound", at, 'V');
    }
    if let Some([least, most]) = dot.spread {
        html.raw("<path class=spread d=\"M")
            .show(axis.place(least))
            .raw(" 11H")
            .show(axis.place(most))
            .raw("\"/>");
    }
    let at = axis.place(dot.at);
    let class = if outcome == Outcome::Missed { "miss" } else { "dot" };
    match axis.beyond(dot.at) {
        false => stroke(html, class, at, 'H'),
        true => arrow(html, class, at, if dot.at < axis.least { 16.0 } else { -16.0 }),
    }
    html.raw("</svg><span class=\"value ")
        .raw(outcome.class())
        .raw("\" aria-hidden=true>");
    html.text(&measured(dot.row));
    if let Some(text) = &dot.row.mark {
        html.raw(" <span class=soft>").text(&mark(text)).raw("</span>");
    }
    html.raw("</span>");
}

/// Up to the text that says what is drawn, for those who do not see it.
fn begin_strip(html: &mut Html) {
    html.raw(
        "</span><svg class=strip viewBox=\"0 0 1000 22\" preserveAspectRatio=none height=22 role=img aria-label=\"",
    );
}

/// Across the strip, or a dot on its middle.
fn stroke(html: &mut Html, class: &'static str, at: f64, way: char) {
    html.raw("<path class=").raw(class).raw(" d=\"M").show(at);
    html.raw(if way == 'V' { " 2V20\"/>" } else { " 11h0\"/>" });
}

/// The value lies beyond the end at which this stands.
fn arrow(html: &mut Html, class: &'static str, at: f64, back: f64) {
    html.raw("<path class=\"")
        .raw(class)
        .raw(" beyond\" d=\"M")
        .show(at + back)
        .raw(" 5L")
        .show(at);
    html.raw(" 11L").show(at + back).raw(" 17\"/>");
}

fn label(html: &mut Html, row: &Row) {
    html.text(&row.what);
    if !row.figure.is_empty() {
        html.raw(": ").text(&row.figure);
    }
    if !row.peer.is_empty() {
        html.raw(" <span class=soft>against ").text(&row.peer).raw("</span>");
    }
}

/// What is compared with nobody: bars from nought, each kind of figure on a scale of its own.
fn bars(html: &mut Html, rows: &[Row]) {
    let mut kinds: Vec<(&str, &str)> = Vec::new();
    for row in rows
        .iter()
        .filter(|row| row.skipped.is_none() && row.ours.is_some_and(f64::is_finite))
    {
        if !kinds.contains(&(&row.figure, &row.unit)) {
            kinds.push((&row.figure, &row.unit));
        }
    }
    if kinds.is_empty() {
        if !rows.is_empty() {
            html.raw("<p class=\"none\">Nothing was measured. The table says why.</p>");
        }
        return;
    }
    for (kind, in_unit) in kinds {
        let of_kind = || {
            rows.iter()
                .filter(move |row| row.figure == kind && row.unit == in_unit && row.skipped.is_none())
        };
        let sides = |row: &Row| {
            [row.ours, row.theirs]
                .into_iter()
                .flatten()
                .filter(|value| value.is_finite())
                .fold(0.0, f64::max)
        };
        let most = of_kind().map(sides).fold(0.0, f64::max);
        html.raw("<figure class=strips><figcaption>").text(kind);
        if !unit(kind, in_unit).is_empty() {
            html.raw(", ").text(&unit(kind, in_unit));
        }
        html.raw("</figcaption><ul>");
        for row in of_kind() {
            let peer = if row.peer.is_empty() { "theirs" } else { &row.peer };
            bar(html, row, None, row.ours, most);
            if row.theirs.is_some() {
                bar(html, row, Some(peer), row.theirs, most);
            }
        }
        html.raw("</ul></figure>");
    }
}

fn bar(html: &mut Html, row: &Row, peer: Option<&str>, value: Option<f64>, most: f64) {
    let Some(value) = value.filter(|value| value.is_finite()) else {
        return;
    };
    let said = if row.unit.is_empty() {
        plain(value)
    } else {
        figure(value)
    };
    html.raw("<li><span class=label>").text(&row.what);
    if let Some(peer) = peer {
        html.raw(" <span class=soft>").text(peer).raw("</span>");
    }
    let part = if most > 0.0 {
        (value / most).clamp(0.0, 1.0)
    } else {
        0.0
    };
    begin_strip(html);
    // Nothing is still to be seen.
    let to = (part * WIDTH).round().max(4.0);
    html.text(&said)
        .raw("\"><path class=")
        .raw(if peer.is_some() { "theirs" } else { "ours" });
    html.raw(" d=\"M0 5V17H")
        .show(to)
        .raw("V5Z\"/></svg><span class=value aria-hidden=true>");
    html.text(&said).raw("</span>");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(mark: &str, ratio: Option<f64>, ours: Option<f64>) -> Row {
        Row {
            what: "file".into(),
            figure: "requests/s".into(),
            mark: Some(mark.into()),
            holds: Some(true),
            ratio,
            ours,
            ..Row::default()
        }
    }

    fn drawn(rows: &[Row]) -> String {
        let mut html = Html::default();
        write(&mut html, rows, Room::Enough);
        html.finish()
    }

    #[test]
    fn the_band_is_on_the_side_where_the_mark_holds() {
        let axis = Axis { least: 0.1, most: 10.0 };
        assert_eq!(axis.place(1.0), 500.0);
        assert!(axis.place(0.0) == 20.0 && axis.place(1e9) == 980.0 && axis.beyond(0.0));
        // From 0.8 / 1.1 to 1.25 * 1.1, the mark and the dot at 1 lie in the middle.
        let at_least = drawn(&[row(">= 1", Some(1.0), None)]);
        let at_most = drawn(&[row("<= 1", Some(1.0), None)]);
        assert!(at_least.contains("class=band d=\"M500 4V18H1000V4Z\""), "{at_least}");
        assert!(at_most.contains("class=band d=\"M0 4V18H500V4Z\""), "{at_most}");
        assert!(
            at_most.contains("class=dot d=\"M500 11h0\"") && at_most.contains("mark ≤\u{a0}1: holds"),
            "{at_most}"
        );
    }

    #[test]
    fn a_figure_without_a_peer_is_shown_in_parts_of_its_mark() {
        let mark = |text: &str| Mark::of(&row(text, None, None));
        assert_eq!(mark(">= 0.97"), Some(Mark::AtLeast(0.97)));
        assert_eq!(mark("<= 5 us"), Some(Mark::AtMost(5.0)));
        assert_eq!([mark("as it was"), mark("≥ 1"), mark(">= x"), mark("")], [None; 4]);
        assert_eq!(Mark::AtMost(0.5).part(0.25), 0.5);
        assert_eq!(
            [Mark::AtMost(0.0).part(0.0), Mark::AtMost(0.0).part(1.0)],
            [1.0, f64::INFINITY]
        );
        assert!(
            drawn(&[row("<= 0", None, Some(3.0))]).contains("L980 11L964 17"),
            "far off, at the right end"
        );
        let without_a_ratio = Row {
            peer: "fio".into(),
            ..row(">= 0.97", None, Some(150_000.0))
        };
        assert!(
            !drawn(&[without_a_ratio]).contains("class=band"),
            "its mark is of no figure of ours"
        );
    }

    #[test]
    fn without_marks_and_peers_there_are_bars() {
        let alone = Row {
            ours: Some(0.0),
            ..Row::default()
        };
        assert!(drawn(&[alone]).contains("class=ours"));
        let skipped = Row {
            skipped: Some("no fio".into()),
            ..Row::default()
        };
        assert!(drawn(&[skipped]).contains("Nothing was measured"));
        assert_eq!(drawn(&[]), "");
    }
}
