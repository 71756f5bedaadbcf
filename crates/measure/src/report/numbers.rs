//! Numbers with few digits, for people. The exact ones are in `report.json`.

/// What stands where there is no number.
pub(super) const NONE: &str = "–";

/// A measured value: three digits or four, with commas.
pub(crate) fn figure(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        NONE.to_owned()
    } else if size == 0.0 {
        "0".to_owned()
    } else if !(1e-4..1e15).contains(&size) {
        format!("{value:.2e}")
    } else if size >= 9_999.5 {
        // Four digits that tell something, and noughts.
        let step = 10f64.powi(size.log10().floor() as i32 - 3);
        grouped(&format!("{:.0}", (value / step).round() * step))
    } else {
        let decimals = match size {
            999.5.. => return grouped(&format!("{value:.0}")),
            99.95.. => 0,
            9.995.. => 1,
            0.9995.. => 2,
            0.09995.. => 3,
            0.009995.. => 4,
            _ => 5,
        };
        format!("{value:.decimals$}")
    }
}

/// A ratio: always three decimals where it is about one, so that a column of them can be read, and a narrow miss be seen.
pub(crate) fn ratio(value: f64) -> String {
    match value.abs() {
        0.0995..9.9995 => format!("{value:.3}"),
        _ => figure(value),
    }
}

/// A number without a unit: a count, or near a mark as often as ratios are.
pub(super) fn plain(value: f64) -> String {
    if value.fract() == 0.0 {
        exact(value)
    } else {
        ratio(value)
    }
}

/// A number that somebody chose, such as a depth: all its digits.
pub(super) fn exact(value: f64) -> String {
    match value.abs() {
        1e-4..1e15 => grouped(&value.to_string()),
        0.0 => "0".to_owned(),
        size if size.is_finite() => format!("{value:e}"),
        _ => NONE.to_owned(),
    }
}

/// Seconds, in the words that one would say.
pub(super) fn duration(seconds: f64) -> String {
    match seconds {
        7200.0.. => format!("{:.1} h", seconds / 3600.0),
        120.0.. => format!("{:.0} min", seconds / 60.0),
        10.0.. => format!("{seconds:.0} s"),
        _ => format!("{seconds:.1} s"),
    }
}

pub(super) fn bytes(count: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, shift)| count >> shift > 0) {
        Some((unit, shift)) => format!("{} {unit}", figure(count as f64 / (1u64 << shift) as f64)),
        None => format!("{count} bytes"),
    }
}

/// A unit as it is printed; none for `requests/s` in `1/s`, which says it twice.
pub(super) fn unit(figure: &str, unit: &str) -> String {
    match unit {
        "1/s" if figure.ends_with("/s") => String::new(),
        "us" => "µs".to_owned(),
        other => cut(other),
    }
}

/// `>= 0.97` as it is printed, in one piece.
pub(super) fn mark(mark: &str) -> String {
    cut(&mark.replace(">=", "≥").replace("<=", "≤").replace(' ', "\u{a0}"))
}

/// What stands beside numbers, and is not to push them off the page.
fn cut(text: &str) -> String {
    match text.char_indices().nth(20) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Commas between the thousands.
fn grouped(digits: &str) -> String {
    let whole = digits.find('.').unwrap_or(digits.len());
    let first = digits.bytes().take_while(|byte| !byte.is_ascii_digit()).count();
    let mut out = String::with_capacity(digits.len() + 4);
    for (at, character) in digits.char_indices() {
        if at > first && at < whole && (whole - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(character);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_digits_are_enough() {
        let shown = [
            (0.0, "0"),
            (0.000012, "1.20e-5"),
            (0.00123, "0.00123"),
            (0.0456, "0.0456"),
            (0.5, "0.500"),
            (1.0, "1.00"),
            (42.123, "42.1"),
            (99.97, "100"),
            (999.7, "1,000"),
            (1024.0, "1,024"),
            (152_341.7, "152,300"),
            (-41_213.0, "-41,210"),
            (1e18, "1.00e18"),
            (f64::NAN, "–"),
        ];
        for (value, expected) in shown {
            assert_eq!(figure(value), expected, "{value}");
        }
    }

    #[test]
    fn ratios_stand_in_a_column_and_chosen_numbers_are_whole() {
        assert_eq!(
            [0.966, 1.0, 9.5, 12.34, 0.0].map(ratio),
            ["0.966", "1.000", "9.500", "12.3", "0"]
        );
        assert_eq!(
            [1.0, 262_144.0, 0.25, -1048.5].map(exact),
            ["1", "262,144", "0.25", "-1,048.5"]
        );
        assert_eq!([3.0, 600.0, 9000.0].map(duration), ["3.0 s", "10 min", "2.5 h"]);
        assert_eq!(
            [512, 1 << 20, 8_370_000_000].map(bytes),
            ["512 bytes", "1.00 MiB", "7.80 GiB"]
        );
    }

    #[test]
    fn units_and_marks_stay_short() {
        assert_eq!([unit("requests/s", "1/s"), unit("CPU", "us")], ["", "µs"]);
        assert_eq!([2.0, 1.0042, 48_217.0].map(plain), ["2", "1.004", "48,217"]);
        assert_eq!(mark(">= 0.97"), "≥\u{a0}0.97");
        assert_eq!(mark(&"ü".repeat(21)), "ü".repeat(20) + "…");
    }
}
