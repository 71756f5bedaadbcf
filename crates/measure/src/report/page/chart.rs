//! A chart: its data for the script that draws it, and its table, which is there without any script.

use serde::Serialize;

use super::experiment::{anchor, called};
use super::markup::{Html, put};
use crate::report::numbers::{NONE, exact, figure};
use crate::report::record::{Axis, Chart, Record};

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
        let at: Vec<f64> = order.iter().map(|&n| chart.at[n]).collect();
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
            x: AxisDrawn {
                logarithmic: chart.x.logarithmic || are_powers(&at),
                ..AxisDrawn::of(&chart.x)
            },
            y: AxisDrawn::of(&chart.y),
            lines: lines.collect(),
            at,
        }
    }

    /// Two places are no curve: their table says as much.
    fn is_drawn(&self) -> bool {
        self.at.len() >= 3 && self.has_points()
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

/// Steps that each are as large as all before them: on an axis of even steps the first ones would be one blot.
fn are_powers(at: &[f64]) -> bool {
    at.len() >= 3 && at[0] > 0.0 && at.windows(2).all(|step| step[1] >= 1.9 * step[0])
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

/// All charts of a report, each with the way to its experiment.
pub(super) fn all(html: &mut Html, record: &Record) {
    let charts = record.experiments.iter().map(|one| one.charts.len()).sum::<usize>();
    if charts == 0 {
        return;
    }
    put!(html, r#"<section id="pictures" data-charts="{}">"#, charts);
    html.raw(r#"<h2>In pictures</h2><div class="pictures">"#);
    for (at, experiment) in record.experiments.iter().enumerate() {
        let to = anchor(at, &experiment.name);
        for (n, chart) in experiment.charts.iter().enumerate() {
            write(html, &format!("c{}-{}", at + 1, n + 1), &to, chart);
        }
    }
    html.raw("</div></section>");
}

/// `id` is ours, and no other chart of the page has it; `to` is where its experiment stands.
fn write(html: &mut Html, id: &str, to: &str, chart: &Chart) {
    let drawn = Drawn::of(chart);
    put!(html, r##"<figure class="chart"><h3><a href="#{}">"##, to);
    put!(
        html,
        r#"{}</a></h3><p class="told">{}</p>"#,
        called(&chart.title),
        chart.here
    );
    if !chart.document.trim().is_empty() {
        put!(html, r#"<p class="told">The document: {}</p>"#, chart.document);
    }
    if drawn.is_drawn() {
        put!(html, r#"<div class="plot" data-of="{}" role="img""#, id);
        put!(html, r#" aria-label="{}"><p class="soft">"#, spoken(&drawn));
        html.raw("A script draws this chart. Its table stands below.</p></div>");
    } else if !drawn.has_points() {
        html.raw(r#"<p class="none">Nothing was measured for this chart.</p>"#);
    }
    put!(html, r#"<p class="tools" data-of="{}" hidden>"#, id);
    html.raw(r#"<button type="button" class="csv">CSV</button>"#);
    if drawn.is_drawn() {
        html.raw(r#"<button type="button" class="whole">Whole range</button>"#);
        html.raw(r#"<span class="soft hint">Drag over a part to enlarge it.</span>"#);
    }
    html.raw("</p>");
    table(html, &drawn);
    put!(html, r#"<script type="application/json" id="{}">"#, id);
    html.data(&drawn);
    html.raw("</script></figure>");
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
    html.raw(match drawn.is_drawn() {
        true => "<details><summary>Table",
        false => "<details open><summary>Table",
    });
    let values = drawn.y.said();
    put!(html, "{}{}", if values.is_empty() { "" } else { ": " }, values);
    html.raw(r#"</summary><div class="scroll" tabindex="0" role="region" aria-label="Table">"#);
    html.raw(r#"<table class="values"><thead><tr>"#);
    put!(html, r#"<th scope="col" class="n">{}</th>"#, drawn.x.said());
    for line in &drawn.lines {
        put!(html, r#"<th scope="col" class="n">{}"#, line.name);
        if line.whose == "document" && !line.name.starts_with("document") {
            html.raw(r#" <span class="soft">(the document)</span>"#);
        }
        html.raw("</th>");
    }
    html.raw("</tr></thead><tbody>");
    for (n, at) in drawn.at.iter().enumerate() {
        put!(html, r#"<tr><th scope="row" class="n">{}</th>"#, exact(*at));
        for line in &drawn.lines {
            let value = line.values.get(n).copied().flatten();
            put!(html, r#"<td class="n">{}</td>"#, value.map_or(NONE.to_owned(), figure));
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
    fn a_chart_of_two_places_or_without_a_point_is_its_table_alone() {
        let shown = |chart: &Chart| {
            let mut html = Html::default();
            write(&mut html, "c1-1", "e1", chart);
            let page = html.finish();
            assert_eq!(
                page.contains("class=\"plot\""),
                page.contains("<details><summary>"),
                "else its table is open"
            );
            page.contains("class=\"plot\"")
        };
        let all = [Some(0.0), Some(0.0), Some(0.0)];
        assert!(shown(&chart(&[1.0, 2.0, 3.0], &all, false)));
        assert!(
            !shown(&chart(&[1.0, 2.0, 3.0], &all, true)),
            "nought is on no logarithmic axis"
        );
        assert!(!shown(&chart(&[1.0, 2.0], &all[1..], false)));
        assert!(!shown(&chart(&[1.0, 2.0, 3.0], &[None; 3], false)));
        assert!(!shown(&chart(&[], &[], false)));
    }

    #[test]
    fn powers_stand_on_a_logarithmic_axis() {
        let is = |at: &[f64]| Drawn::of(&chart(at, &vec![Some(1.0); at.len()], false)).x.logarithmic;
        assert!(is(&[1.0, 8.0, 64.0, 512.0]) && is(&[4.0, 8.0, 16.0]));
        assert!(!is(&[0.0, 25.0, 50.0, 75.0]) && !is(&[1.0, 2.0, 3.0]) && !is(&[1.0, 64.0]));
    }
}
