//! Seed 003's two graphs. "The first graph shows when a write request was enqueued (red point) and when the notification was received
//! (black point). The second graph shows latencies for individual writes, i.e. notification time minus enqueue time." One pair a run.
//!
//! Points are one path of round dots each, so that a picture of some thousand writes stays small.

use std::fmt::Write as _;

use super::posted::{Run, Told};

/// Size of one graph, and the room around it, in pixels.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 44.0;
const BELOW: f64 = 56.0;

/// Lines across a graph, about.
const TICKS: f64 = 6.0;

const RED: &str = "#c00000";
const BLACK: &str = "#000000";

/// The whole picture.
pub(super) fn svg(told: &Told) -> String {
    let each = TOP + HEIGHT + BELOW;
    let width = LEFT + WIDTH + 30.0;
    let height = 60.0 + told.runs.len() as f64 * 2.0 * each;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{}</text>\n<text x=\"{LEFT}\" y=\"42\">{}</text>\n",
        escaped(&told.headline()),
        escaped(&told.durability_sentence()),
    );
    for (index, run) in told.runs.iter().enumerate() {
        let y = 60.0 + index as f64 * 2.0 * each + TOP;
        times(run).draw(y, &mut out);
        latencies(run).draw(y + each, &mut out);
    }
    out.push_str("</svg>\n");
    out
}

/// A page with the picture and the figures, which needs nothing else.
pub(super) fn html(told: &Told) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>baio latency {}</title>\n\
         <style>body{{font-family:sans-serif;margin:2em}}td,th{{text-align:left;padding:.2em 1em .2em 0}}svg{{max-width:100%;height:auto}}</style>\n\
         <h1>{}</h1>\n<p>{}</p>\n",
        escaped(&told.target),
        escaped(&told.headline()),
        escaped(&told.durability_sentence()),
    );
    out.push_str("<table>\n");
    for run in &told.runs {
        let _ = writeln!(out, "<tr><th colspan=\"2\">{}</th></tr>", escaped(&title(run)));
        for (name, said) in run.lines() {
            let _ = writeln!(out, "<tr><td>{name}</td><td>{}</td></tr>", escaped(&said));
        }
    }
    out.push_str("</table>\n");
    out.push_str(&svg(told));
    out.push_str("</html>\n");
    out
}

/// One graph: dots over the number of the write.
struct Graph {
    title: String,
    legend: &'static [(&'static str, &'static str)],
    /// A colour, and a value in milliseconds for each write that has one.
    series: Vec<(&'static str, Vec<(usize, f64)>)>,
    writes: usize,
}

fn title(run: &Run) -> String {
    let name = run.scheduler.as_ref();
    name.map_or_else(|| "no scheduler known".to_owned(), |name| format!("scheduler {name}"))
}

fn times(run: &Run) -> Graph {
    let of = |pick: fn(&super::posted::Times) -> std::time::Duration| -> Vec<(usize, f64)> {
        let ms = run.times.iter().map(|times| pick(times).as_secs_f64() * 1e3);
        ms.enumerate().collect()
    };
    Graph {
        title: format!("{}: when each write was enqueued, and known complete (ms)", title(run)),
        legend: &[(RED, "enqueued"), (BLACK, "known complete")],
        series: vec![(BLACK, of(|times| times.known)), (RED, of(|times| times.enqueued))],
        writes: run.times.len(),
    }
}

fn latencies(run: &Run) -> Graph {
    let ms = run.times.iter().enumerate().filter(|(_, times)| !times.failed);
    Graph {
        title: format!("{}: latency of each write (ms)", title(run)),
        legend: &[],
        series: vec![(
            BLACK,
            ms.map(|(index, times)| (index, times.latency().as_secs_f64() * 1e3))
                .collect(),
        )],
        writes: run.times.len(),
    }
}

impl Graph {
    /// Draws it with its upper edge at `y`.
    fn draw(&self, y: f64, out: &mut String) {
        let values = self.series.iter().flat_map(|(_, points)| points).map(|point| point.1);
        let most = values.fold(0.0, f64::max).max(1e-6);
        let (step, top) = scale(most);
        let bottom = y + HEIGHT;
        let right = LEFT + WIDTH;
        let last = self.writes.saturating_sub(1).max(1) as f64;
        let x_of = |index: f64| LEFT + index / last * WIDTH;
        let y_of = |value: f64| bottom - value / top * HEIGHT;
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"{:.1}\" font-size=\"13\">{}</text>",
            y - 12.0,
            escaped(&self.title)
        );
        for (index, (colour, name)) in self.legend.iter().enumerate() {
            let x = right - 250.0 + 110.0 * index as f64;
            let _ = writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{:.1}\">{name}</text>",
                y - 16.0,
                x + 8.0,
                y - 12.0,
            );
        }
        let mut value = 0.0;
        while value <= top * 1.0001 {
            let at = y_of(value);
            let _ = writeln!(
                out,
                "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                at + 4.0,
                number(value),
            );
            value += step;
        }
        let (step, _) = scale(last);
        let step = step.max(1.0);
        let mut index = 0.0;
        while index <= last {
            let _ = writeln!(
                out,
                "<path d=\"M{0:.1} {bottom:.1}v4\" stroke=\"#888\"/><text x=\"{0:.1}\" y=\"{1:.1}\" text-anchor=\"middle\">{2}</text>",
                x_of(index),
                bottom + 18.0,
                number(index),
            );
            index += step;
        }
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">write</text>",
            LEFT + WIDTH / 2.0,
            bottom + 36.0
        );
        for (colour, points) in &self.series {
            out.push_str("<path fill=\"none\" stroke-width=\"2.4\" stroke-linecap=\"round\" stroke=\"");
            out.push_str(colour);
            out.push_str("\" d=\"");
            for (index, value) in points {
                let _ = write!(out, "M{:.1} {:.1}h0", x_of(*index as f64), y_of(*value));
            }
            out.push_str("\"/>\n");
        }
    }
}

/// A step of 1, 2 or 5 times a power of ten, and the multiple of it that holds `most`.
fn scale(most: f64) -> (f64, f64) {
    let rough = most / TICKS;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    (step, (most / step).ceil() * step)
}

fn number(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // Not allowed in XML, not even escaped.
            other if other.is_control() => out.push('?'),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_has_round_steps_and_holds_all() {
        for most in [0.001, 0.37, 1.0, 8.3, 60.0, 999.0, 12_345.0] {
            let (step, top) = scale(most);
            assert!(top >= most && top <= most + step * 1.0001, "{most}: {step} {top}");
            assert!((3.0..=7.0).contains(&(top / step).round()), "{most}: {step} {top}");
        }
        assert_eq!(number(0.5), "0.5");
        assert_eq!(number(200.0), "200");
    }

    #[test]
    fn a_hostile_name_does_not_leave_its_place() {
        assert_eq!(escaped("a<b>&\"\u{1b}"), "a&lt;b&gt;&amp;&quot;?");
    }
}
