//! Durations as people type them: `200us`, `500ms`, `3s`, `2m`.
//!
//! The unit is not optional: a bare `5` would be seconds to one tool's user and milliseconds to another's. Only how long a measurement runs
//! may be a bare number ([`parse_runtime`]): everybody who knows fio types seconds there.

use std::time::Duration;

use crate::size::split_digits;

/// Parses a whole number with one of the units `us`, `ms`, `s` and `m`.
///
/// # Errors
/// What is wrong, and what to write.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let refused = |said| format!("'{text}' {said}; write a whole number with us, ms, s or m, as in 500ms, 3s or 2m");
    let (digits, unit) = split_digits(text);
    let microseconds_each = match unit {
        "us" => 1,
        "ms" => 1000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "" => return Err(refused("has no unit of time")),
        _ => return Err(refused("is not a duration")),
    };
    if digits.is_empty() {
        return Err(refused("is not a duration"));
    }
    let number = digits.parse::<u64>().ok();
    let microseconds = number.and_then(|number| number.checked_mul(microseconds_each));
    microseconds
        .map(Duration::from_micros)
        .ok_or_else(|| refused("is too long a duration"))
}

/// The same; a bare number is seconds.
///
/// # Errors
/// As there.
pub fn parse_runtime(text: &str) -> Result<Duration, String> {
    match split_digits(text) {
        (digits, "") if !digits.is_empty() => parse_duration(&format!("{digits}s")),
        _ => parse_duration(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_units() {
        assert_eq!(parse_duration("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("3s"), Ok(Duration::from_secs(3)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("0s"), Ok(Duration::ZERO));
    }

    #[test]
    fn everything_else_is_named_and_refused() {
        for text in [
            "",
            "s",
            "3",
            "-3s",
            "1.5s",
            "3 s",
            "3S",
            "3min",
            "99999999999999999999s",
        ] {
            let said = parse_duration(text).unwrap_err();
            assert!(said.starts_with(&format!("'{text}' ")), "{said}");
        }
    }

    #[test]
    fn a_runtime_without_a_unit_is_seconds() {
        assert_eq!(parse_runtime("60"), Ok(Duration::from_secs(60)));
        assert_eq!(parse_runtime("60ms"), Ok(Duration::from_millis(60)));
        for text in ["", "s", "-1", "99999999999999999999"] {
            assert!(parse_runtime(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_missing_unit_says_so() {
        let said = parse_duration("3").unwrap_err();
        assert!(said.contains("has no unit"), "{said}");
    }

    #[test]
    fn overflow_is_an_error() {
        let said = parse_duration("18446744073709551615m").unwrap_err();
        assert!(said.contains("too long"));
    }
}
