//! A figure in a line of the terminal.

use crate::report::record::Row;
use crate::report::tally::Outcome;
use crate::report::terminal::cut;

/// How a line ends that is loud.
pub(super) const MISSED: &str = "MISSED";

/// One line of the table: the figure, ours, the peer and its figure, their ratio, the mark and what became of it.
pub(super) fn cells(row: &Row) -> [String; 6] {
    let theirs = row
        .theirs
        .map_or_else(String::new, |value| format!(" {}", short(value, "")));
    // The name gives way: the figure is read.
    let name = cut(&spoken(&row.peer), 18_usize.saturating_sub(theirs.chars().count()));
    let verdict = match Outcome::of(row) {
        Outcome::Missed => MISSED,
        other => other.word(),
    };
    [
        format!("    {}", spoken(&row.figure)),
        row.ours.map_or_else(String::new, |value| short(value, &row.unit)),
        format!("{name}{theirs}"),
        row.ratio.map_or_else(String::new, |ratio| short(ratio, "")),
        row.mark.clone().unwrap_or_default(),
        verdict.to_owned(),
    ]
}

/// A number of three digits, with its unit.
fn short(value: f64, unit: &str) -> String {
    let size = value.abs();
    let said = match size {
        _ if !value.is_finite() => return "-".into(),
        1e9.. => format!("{:.3e}", value),
        1e8.. => format!("{:.0}M", value / 1e6),
        1e7.. => format!("{:.1}M", value / 1e6),
        1e6.. => format!("{:.2}M", value / 1e6),
        1e5.. => format!("{:.0}k", value / 1e3),
        1e4.. => format!("{:.1}k", value / 1e3),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        0.001.. => format!("{value:.2}"),
        _ => format!("{value:.0e}"),
    };
    match unit {
        "" | "1/s" => said,
        unit => format!("{said} {unit}"),
    }
}

/// Fewer words, where there is a column for them.
fn spoken(said: &str) -> String {
    let said = said.replace(", the kernel's cache", ", kernel");
    let said = said.strip_prefix("fio ").unwrap_or(&said);
    said.strip_suffix(" a request").unwrap_or(said).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_fewer_words_and_short_numbers() {
        let line = cells(&Row {
            figure: "CPU a request".into(),
            ours: Some(123_456.0),
            peer: "fio io_uring".into(),
            theirs: Some(100.0),
            mark: Some("<= 0.75".into()),
            holds: Some(false),
            ..Row::default()
        });
        assert_eq!(line, ["    CPU", "123k", "io_uring 100", "", "<= 0.75", "MISSED"]);
    }

    #[test]
    fn numbers_have_three_digits_and_their_unit() {
        let said = [0.0, 0.5, 9.876, 12.34, 999.4, 12_345.0, 234_567.0, 1_234_567.0].map(|value| short(value, ""));
        assert_eq!(said, ["0", "0.50", "9.88", "12.3", "999", "12.3k", "235k", "1.23M"]);
        assert_eq!((short(5.0, "us"), short(5.0, "1/s")), ("5 us".into(), "5".into()));
        assert_eq!(short(f64::NAN, "us"), "-");
    }
}
