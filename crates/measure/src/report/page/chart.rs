//! A chart: its data for the script that draws it, and its table, which is there without any script.

use serde::Serialize;

use super::markup::Html;
use crate::report::numbers::{NONE, exact, figure};
use crate::report::record::{Axis, Chart};

/// What the script draws: the chart with all lines as long as its axis, and only what can be drawn.
#[derive(Serialize)]
struct Drawn<'a> {
    title: &'a str,
    x: AxisDrawn<'a>,
    y: AxisDrawn<'a>,
    at: Vec<f64>,
    lines: Vec<LineDrawn<'a>>,
}

#[derive(Serialize)]
struct AxisDrawn<'a> {
    title: &'a str,
    unit: &'a str,
    logarithmic: bool,
}

#[derive(Serialize)]
struct LineDrawn<'a> {
    name: &'a str,
    whose: &'a str,
    values: Vec<Option<f64>>,
}

impl<'a> Drawn<'a> {
    fn of(chart: &'a Chart) -> Drawn<'a> {
        // The drawing wants rising places; a file may hold others.
        let mut order: Vec<usize> = (0..chart.at.len()).filter(|&n| chart.at[n].is_finite()).collect();
        order.sort_by(|&a, &b| chart.at[a].total_cmp(&chart.at[b]));
        let lines = chart.lines.iter().map(|line| LineDrawn {
            name: &line.name,
            whose: &line.whose,
            values: order
                .iter()
                .map(|&n| line.values.get(n).copied().flatten().filter(|value| value.is_finite()))
                .collect(),
        });
        Drawn {
            title: &chart.title,
            x: AxisDrawn::of(&chart.x),
            y: AxisDrawn::of(&chart.y),
            lines: lines.collect(),
            at: order.iter().map(|&n| chart.at[n]).collect(),
        }
    }

    /// Is there a point that its axes can show?
    fn has_points(&self) -> bool {
        let shown = |axis: &AxisDrawn<'_>, value: f64| !axis.logarithmic || value > 0.0;
        let point = |(&x, y): (&f64, &Option<f64>)| y.is_some_and(|y| shown(&self.x, x) && shown(&self.y, y));
        self.lines
            .iter()
            .any(|line| self.at.iter().zip(&line.values).any(point))
    }
}

impl<'a> AxisDrawn<'a> {
    fn of(axis: &'a Axis) -> AxisDrawn<'a> {
        AxisDrawn {
            title: &axis.title,
            unit: if axis.unit == "us" { "µs" } else { &axis.unit },
            logarithmic: axis.logarithmic,
        }
    }

    fn said(&self) -> String {
        match (self.title, self.unit) {
            (title, "") => title.to_owned(),
            (title, "1/s") if title.ends_with("a second") => title.to_owned(),
            (title, unit) if title.ends_with(unit) => title.to_owned(),
            (title, unit) => format!("{title}, {unit}"),
        }
    }
}

/// `id` is ours, and no other chart of the page has it.
pub(super) fn write(html: &mut Html, id: &str, chart: &Chart) {
    let drawn = Drawn::of(chart);
    html.raw("<figure class=\"chart\"><h3>")
        .text(&chart.title)
        .raw("</h3><dl class=\"told\"><dt>The document</dt><dd>");
    html.text(or(&chart.document, "not measured"))
        .raw("</dd><dt>Here</dt><dd>");
    html.text(or(&chart.here, "not told")).raw("</dd></dl>");
    if drawn.has_points() {
        html.raw("<div class=\"plot\" data-of=\"")
            .text(id)
            .raw("\" role=\"img\" aria-label=\"");
        html.text(&spoken(&drawn))
            .raw("\"><p class=\"soft\">A script draws this chart. Its table stands below.</p></div>");
    } else {
        html.raw("<p class=\"none\">Nothing was measured for this chart.</p>");
    }
    html.raw("<p class=\"tools\" data-of=\"")
        .text(id)
        .raw("\" hidden><button type=\"button\" class=\"csv\">CSV</button>");
    if drawn.has_points() {
        html.raw("<button type=\"button\" class=\"whole\">Whole range</button>");
        html.raw("<span class=\"soft hint\">Drag over a part to enlarge it.</span>");
    }
    html.raw("</p>");
    table(html, &drawn);
    html.raw("<script type=\"application/json\" id=\"")
        .text(id)
        .raw("\">")
        .data(&drawn)
        .raw("</script></figure>");
}

fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.trim().is_empty() { otherwise } else { text }
}

/// What somebody hears who does not see the drawing. The figures are in the table.
fn spoken(drawn: &Drawn<'_>) -> String {
    let names: Vec<&str> = drawn.lines.iter().map(|line| line.name).collect();
    format!(
        "Chart: {}. {} over {}, lines: {}. The table below has the values.",
        drawn.title,
        drawn.y.said(),
        drawn.x.said(),
        names.join("; ")
    )
}

fn table(html: &mut Html, drawn: &Drawn<'_>) {
    html.raw("<details><summary>Table");
    if !drawn.y.said().is_empty() {
        html.raw(": ").text(&drawn.y.said());
    }
    html.raw("</summary>");
    html.raw(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table\"><table class=\"values\"><thead><tr>",
    );
    html.raw("<th scope=\"col\" class=\"n\">")
        .text(&drawn.x.said())
        .raw("</th>");
    for line in &drawn.lines {
        html.raw("<th scope=\"col\" class=\"n\">").text(line.name);
        if line.whose == "document" && !line.name.starts_with("document") {
            html.raw(" <span class=\"soft\">(the document)</span>");
        }
        html.raw("</th>");
    }
    html.raw("</tr></thead><tbody>");
    for (n, at) in drawn.at.iter().enumerate() {
        html.raw("<tr><th scope=\"row\" class=\"n\">")
            .text(&exact(*at))
            .raw("</th>");
        for line in &drawn.lines {
            html.raw("<td class=\"n\">");
            html.text(&line.values.get(n).copied().flatten().map_or(NONE.to_owned(), figure))
                .raw("</td>");
        }
        html.raw("</tr>");
    }
    html.raw("</tbody></table></div></details>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::record::Line;

    fn chart(at: &[f64], values: &[Option<f64>], logarithmic: bool) -> Chart {
        Chart {
            at: at.to_vec(),
            y: Axis {
                logarithmic,
                ..Axis::default()
            },
            lines: vec![Line {
                values: values.to_vec(),
                ..Line::default()
            }],
            ..Chart::default()
        }
    }

    #[test]
    fn lines_are_as_long_as_the_axis_and_places_rise() {
        let crooked = chart(
            &[4.0, f64::NAN, 1.0, 2.0],
            &[Some(40.0), None, None, Some(f64::INFINITY)],
            false,
        );
        let drawn = Drawn::of(&crooked);
        assert_eq!(drawn.at, [1.0, 2.0, 4.0]);
        assert_eq!(drawn.lines[0].values, [None, None, Some(40.0)]);
        assert!(drawn.has_points());
    }

    #[test]
    fn a_chart_without_a_point_is_not_drawn() {
        let shown = |chart: &Chart| {
            let mut html = Html::default();
            write(&mut html, "c1-1", chart);
            html.finish().contains("class=\"plot\"")
        };
        assert!(shown(&chart(&[1.0], &[Some(0.0)], false)));
        assert!(
            !shown(&chart(&[1.0], &[Some(0.0)], true)),
            "nought is on no logarithmic axis"
        );
        assert!(!shown(&chart(&[1.0], &[None], false)));
        assert!(!shown(&chart(&[], &[], false)));
    }
}
