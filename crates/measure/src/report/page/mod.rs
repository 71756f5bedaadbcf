//! `report.html`: the report as one file that needs no network, with the machine first.
//!
//! ```text
//! record ----> first       the machine, its disk in figures, ours beside the others in counts, with names
//!         ---> chart       all charts
//!         ---> project     marks, and which are missed; contents
//!              experiment  figures, commands; once for each
//!              closing     what the documents ask for, how to run it again
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `markup.rs` | the one way in for text: nothing from the record can become markup |
//! | `chart.rs` | what a script draws, with its table |
//! | `assets/` | style, script, and uPlot, which draws the charts |
//! | `records/` | reports that the tests make pages of; `tests/page.py` of the repository looks at those in a browser |
//!
//! docs/inside/decisions/0028-the-page-of-the-report.md says why it is made so.

use crate::report::record::Record;
use crate::report::tally::Tally;
use markup::{Html, put};

mod chart;
mod closing;
mod experiment;
mod first;
mod markup;
mod project;
#[cfg(test)]
mod tests;

/// A page is to be smaller than this: it goes by mail, and opens on a phone.
const BYTES_MAX: usize = 400_000;

/// How much a page can take. Each leaves out what those before it do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Room {
    Enough,
    /// Commands, which are the longest and in `report.json` too, are left out.
    Little,
    /// So is what single rounds gave.
    NoRounds,
    /// A table has so many rows, missed marks first; so has the list of those.
    Rows(usize),
}

impl Room {
    /// How many rows a table may have.
    fn rows(self) -> usize {
        match self {
            Room::Rows(most) => most,
            _ => usize::MAX,
        }
    }
}

/// The page of a report.
pub(crate) fn html(record: &Record) -> String {
    let mut page = page(record, Room::Enough);
    let fewer = [256, 128, 64, 32, 16, 8, 4, 2, 1].map(Room::Rows);
    for room in [Room::Little, Room::NoRounds].into_iter().chain(fewer) {
        if page.len() >= BYTES_MAX {
            page = self::page(record, room);
        }
    }
    page.finish()
}

fn page(record: &Record, room: Room) -> Html {
    let tally = Tally::of(record);
    let nonce = nonce(record);
    let mut html = Html::default();
    html.raw(r#"<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">"#);
    // Nothing is loaded from anywhere, and no script runs but those that this program wrote.
    html.raw(
        r#"<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; base-uri 'none'; "#,
    );
    html.raw("form-action 'none'; style-src 'unsafe-inline'; ");
    put!(html, "script-src 'nonce-{}'\">", nonce);
    html.raw(r#"<meta name="viewport" content="width=device-width, initial-scale=1">"#);
    html.raw(r#"<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"><title>baio report"#);
    if let Some(device) = &record.machine.device {
        put!(html, " · {}", device);
    }
    html.raw("</title><style>");
    html.raw(include_str!("assets/uplot-1.6.32.min.css"));
    html.raw(include_str!("assets/page.css"));
    html.raw("</style></head><body><main>");
    first::write(&mut html, record, room);
    chart::all(&mut html, record);
    project::write(&mut html, record, &tally, room);
    html.raw("</main>");
    if record.experiments.iter().any(|one| !one.charts.is_empty()) {
        put!(html, "<script nonce=\"{}\">/*! uPlot 1.6.32\n", nonce);
        html.raw(include_str!("assets/uplot-LICENSE"));
        html.raw("*/\n");
        html.raw(include_str!("assets/uplot-1.6.32.min.js"));
        html.raw("</script>");
    }
    put!(html, "<script nonce=\"{}\">", nonce);
    html.raw(include_str!("assets/page.js"));
    html.raw("</script></body></html>\n");
    html
}

/// Known to our scripts and to nothing in the record: it is a hash of it.
fn nonce(record: &Record) -> String {
    let bytes = serde_json::to_vec(record).unwrap_or_default();
    blake3::hash(&bytes).to_hex()[..32].to_owned()
}
