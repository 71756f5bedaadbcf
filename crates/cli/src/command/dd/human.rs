//! Figures as GNU dd prints them on standard error.

/// The letters of the powers.
const LETTERS: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];

/// Base and mark of a family of units.
#[derive(Clone, Copy)]
struct Family {
    base: u64,
    mark: &'static str,
}

const SI: Family = Family { base: 1000, mark: "B" };
const IEC: Family = Family { base: 1024, mark: "iB" };

/// `5 bytes`, `2048 bytes (2.0 kB, 2.0 KiB)`: as much as is worth saying.
pub(super) fn amount(bytes: u64) -> String {
    let plain = if bytes == 1 {
        "1 byte".to_owned()
    } else {
        format!("{bytes} bytes")
    };
    if bytes < SI.base {
        plain
    } else if bytes < IEC.base {
        format!("{plain} ({})", scaled(bytes, SI))
    } else {
        format!("{plain} ({}, {})", scaled(bytes, SI), scaled(bytes, IEC))
    }
}

/// Rounded to the nearest, ties to even; one decimal below ten.
fn scaled(bytes: u64, family: Family) -> String {
    let mut unit = 1u128;
    let mut power = 0;
    while u128::from(bytes) >= unit * u128::from(family.base) && power + 1 < LETTERS.len() {
        unit *= u128::from(family.base);
        power += 1;
    }
    let tenths = round(u128::from(bytes) * 10, unit);
    let whole = round(u128::from(bytes), unit);
    if power > 0 && tenths < 100 {
        return format!("{}.{} {}", tenths / 10, tenths % 10, unit_name(power, family));
    }
    if whole == u128::from(family.base) && power + 1 < LETTERS.len() {
        return format!("1.0 {}", unit_name(power + 1, family));
    }
    format!("{whole} {}", unit_name(power, family))
}

fn round(value: u128, unit: u128) -> u128 {
    let (quotient, rest) = (value / unit, value % unit);
    let up = rest * 2 > unit || (rest * 2 == unit && quotient % 2 == 1);
    quotient + u128::from(up)
}

fn unit_name(power: usize, family: Family) -> String {
    let letter = LETTERS.get(power).copied().unwrap_or("");
    if power == 0 {
        return "B".to_owned();
    }
    // Only the decimal kilo is small.
    let letter = if family.base == IEC.base {
        letter.to_uppercase()
    } else {
        letter.to_owned()
    };
    format!("{letter}{}", family.mark)
}

/// `1.2 GB/s`. As in GNU dd, less than a thousand bytes a second still count in kB.
pub(super) fn rate(bytes: u64, seconds: f64) -> String {
    if seconds <= 0.0 {
        return "Infinity B/s".to_owned();
    }
    let mut value = bytes as f64 / seconds / 1000.0;
    let mut power = 1;
    while value >= 1000.0 && power + 1 < LETTERS.len() {
        value /= 1000.0;
        power += 1;
    }
    let tenths = format!("{value:.1}");
    let figure = if tenths.len() > 4 {
        format!("{value:.0}")
    } else {
        tenths
    };
    format!("{figure} {}/s", unit_name(power, SI))
}

/// C's `%g`: six significant digits, without zeros at the end.
pub(super) fn six_digits(value: f64) -> String {
    let scientific = format!("{value:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        let decimals = usize::try_from(5 - exponent).unwrap_or(0);
        return without_zeros(&format!("{value:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(digits), exponent.abs())
}

fn without_zeros(digits: &str) -> &str {
    if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each line was printed by GNU dd 9.1.
    #[test]
    fn amounts_as_gnu_dd_prints_them() {
        let table = [
            (0, "0 bytes"),
            (1, "1 byte"),
            (999, "999 bytes"),
            (1000, "1000 bytes (1.0 kB)"),
            (1023, "1023 bytes (1.0 kB)"),
            (1024, "1024 bytes (1.0 kB, 1.0 KiB)"),
            (1049, "1049 bytes (1.0 kB, 1.0 KiB)"),
            (1050, "1050 bytes (1.0 kB, 1.0 KiB)"),
            (1051, "1051 bytes (1.1 kB, 1.0 KiB)"),
            (9950, "9950 bytes (10 kB, 9.7 KiB)"),
            (10240, "10240 bytes (10 kB, 10 KiB)"),
            (20971521, "20971521 bytes (21 MB, 20 MiB)"),
            (999_499, "999499 bytes (999 kB, 976 KiB)"),
            (999_500, "999500 bytes (1.0 MB, 976 KiB)"),
            (1_048_575, "1048575 bytes (1.0 MB, 1.0 MiB)"),
        ];
        for (bytes, expected) in table {
            assert_eq!(amount(bytes), expected);
        }
    }

    #[test]
    fn rates_as_gnu_dd_prints_them() {
        assert_eq!(rate(5, 0.2), "0.0 kB/s");
        assert_eq!(rate(1, 3.5773e-05), "28.0 kB/s");
        assert_eq!(rate(6, 3.3369e-05), "180 kB/s");
        assert_eq!(rate(1 << 30, 1.0), "1.1 GB/s");
        assert_eq!(rate(1, 0.0), "Infinity B/s");
    }

    #[test]
    fn seconds_as_c_prints_them() {
        for (value, expected) in [
            (0.201521, "0.201521"),
            (3.0114e-05, "3.0114e-05"),
            (1.5, "1.5"),
            (0.0, "0"),
            (123456.7, "123457"),
            (1234567.0, "1.23457e+06"),
        ] {
            assert_eq!(six_digits(value), expected);
        }
    }
}
