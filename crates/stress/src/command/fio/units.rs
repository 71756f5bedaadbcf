//! Numbers as fio reads them: `4k` is 4096, and a bare time is seconds.

use std::ops::RangeInclusive;
use std::time::Duration;

use baio_console::size::split_digits;

use super::Refusal;
use super::file::Word;

fn refused(word: &Word, need: &str) -> Refusal {
    let said = match &word.value {
        Some(value) => format!("'{}={value}' cannot be read", word.name),
        None => format!("'{}' has no value", word.name),
    };
    Refusal::new(word.line, said, need)
}

fn value(word: &Word) -> &str {
    word.value.as_deref().unwrap_or_default()
}

/// A whole number in `range`.
pub(super) fn number(word: &Word, range: RangeInclusive<u64>) -> Result<u64, Refusal> {
    let found = value(word).parse().ok().filter(|found| range.contains(found));
    found.ok_or_else(|| refused(word, &format!("a number from {} to {}", range.start(), range.end())))
}

/// An option that is on without a value.
pub(super) fn switch(word: &Word) -> Result<bool, Refusal> {
    match word.value.as_deref() {
        None | Some("1") => Ok(true),
        Some("0") => Ok(false),
        Some(_) => Err(refused(word, "1 or 0")),
    }
}

/// Bytes. `4Ki` is refused: fio takes it for 4000 unless it is told otherwise, and everybody else for 4096.
pub(super) fn size(word: &Word) -> Result<u64, Refusal> {
    let (digits, unit) = split_digits(value(word));
    let power = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => Some(0),
        "k" | "kb" => Some(1),
        "m" | "mb" => Some(2),
        "g" | "gb" => Some(3),
        "t" | "tb" => Some(4),
        "p" | "pb" => Some(5),
        _ => None,
    };
    let bytes = power.and_then(|power| digits.parse::<u64>().ok()?.checked_mul(1 << (10 * power)));
    let bytes = bytes.filter(|&bytes| bytes > 0);
    bytes.ok_or_else(|| refused(word, "one number of bytes, as in 4096, 4k, 16m or 1g"))
}

/// A time; a bare number is seconds.
pub(super) fn time(word: &Word) -> Result<Duration, Refusal> {
    let (digits, unit) = split_digits(value(word));
    let microseconds = match unit {
        "us" | "usec" => Some(1),
        "ms" | "msec" => Some(1000),
        "" | "s" | "sec" => Some(1_000_000),
        "m" => Some(60_000_000),
        "h" => Some(3_600_000_000),
        "d" => Some(86_400_000_000),
        _ => None,
    };
    let time = microseconds.and_then(|each| digits.parse::<u64>().ok()?.checked_mul(each));
    let time = time.filter(|&time| time > 0).map(Duration::from_micros);
    time.ok_or_else(|| refused(word, "a time, as in 60, 500ms or 5m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(value: &str) -> Word {
        Word {
            line: 1,
            name: "x".into(),
            value: Some(value.to_owned()),
        }
    }

    #[test]
    fn sizes_and_times_are_fios() {
        assert_eq!(size(&word("4k")).unwrap(), 4096);
        assert_eq!(size(&word("10G")).unwrap(), 10 << 30);
        assert_eq!(size(&word("512")).unwrap(), 512);
        assert_eq!(size(&word("2mb")).unwrap(), 2 << 20);
        for wrong in [
            "",
            "k",
            "0",
            "4Ki",
            "4kib",
            "50%",
            "1.5g",
            "-1",
            "4k,8k",
            "99999999999p",
        ] {
            assert!(size(&word(wrong)).is_err(), "{wrong}");
        }
        assert_eq!(time(&word("900")).unwrap(), Duration::from_secs(900));
        assert_eq!(time(&word("2h")).unwrap(), Duration::from_secs(7200));
        for wrong in ["", "0", "s", "5x", "99999999999999999d"] {
            assert!(time(&word(wrong)).is_err(), "{wrong}");
        }
    }
}
