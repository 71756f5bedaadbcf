//! The numbers of GNU dd's operands, which differ from every other size in this program.
//!
//! ```text
//! number = factor { 'x' factor }                 2x512 is 1024
//! factor = [digits] [unit] ['B']                 a unit alone counts once: M is 1M
//! unit   = c (1) | w (2) | b (512) | k K M G T P E Z Y R Q, each with nothing or iB (powers of 1024)
//!                                                        or with B (powers of 1000)
//! ```
//!
//! A `B` anywhere makes a count, skip or seek count bytes instead of blocks (coreutils 9.1): `100KiB` is bytes, `100K`
//! is blocks.

use std::fmt;

/// The letters of the powers; `k` is another spelling of `K`.
const LETTERS: &str = "KMGTPEZYRQ";

/// The largest number: it must still be a file offset.
pub(super) const NUMBER_MAX: u64 = i64::MAX as u64;

/// A number as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) value: u64,
    /// A `B` says that bytes are meant.
    pub(super) in_bytes: bool,
}

/// Why a text is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberError {
    Malformed,
    TooLarge,
    /// `0x10` is zero times ten to dd, and sixteen to everybody else.
    LooksHexadecimal,
}

impl fmt::Display for NumberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NumberError::Malformed => "not a number with the units of dd",
            NumberError::TooLarge => "too large for a file offset",
            NumberError::LooksHexadecimal => "'0x' is a zero multiplier; write '00x' if that is intended",
        })
    }
}

/// Parses a number of dd.
pub(super) fn parse(text: &str) -> Result<Number, NumberError> {
    if text.starts_with("0x") {
        return Err(NumberError::LooksHexadecimal);
    }
    let mut value = 1u64;
    for typed in text.split('x') {
        let product = value.checked_mul(factor(typed)?);
        value = product.ok_or(NumberError::TooLarge)?;
    }
    if value > NUMBER_MAX {
        return Err(NumberError::TooLarge);
    }
    Ok(Number {
        value,
        in_bytes: text.contains('B'),
    })
}

fn factor(text: &str) -> Result<u64, NumberError> {
    let (digits, unit) = baio_console::size::split_digits(text);
    let number = match digits {
        // As in GNU dd, a unit counts once on its own; the mark for bytes is no unit.
        "" if unit.is_empty() || unit == "B" => return Err(NumberError::Malformed),
        "" => 1,
        _ => digits.parse().map_err(|_| NumberError::TooLarge)?,
    };
    let (base, power) = parse_unit(unit).ok_or(NumberError::Malformed)?;
    if number == 0 {
        return Ok(0);
    }
    base.checked_pow(power)
        .and_then(|each| each.checked_mul(number))
        .ok_or(NumberError::TooLarge)
}

/// The base and the power of a unit, which one mark for bytes may follow.
fn parse_unit(text: &str) -> Option<(u64, u32)> {
    let unmarked = text.strip_suffix('B').filter(|rest| !rest.ends_with('B'));
    bare_unit(text).or_else(|| bare_unit(unmarked?))
}

fn bare_unit(text: &str) -> Option<(u64, u32)> {
    match text {
        "" | "c" => return Some((1, 1)),
        "w" => return Some((2, 1)),
        "b" => return Some((512, 1)),
        _ => {}
    }
    let mut characters = text.chars();
    let letter = match characters.next()? {
        'k' => 'K',
        other => other,
    };
    let power = (1..).zip(LETTERS.chars()).find(|pair| pair.1 == letter)?.0;
    match characters.as_str() {
        "" | "iB" => Some((1024, power)),
        "B" => Some((1000, power)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> u64 {
        parse(text).unwrap().value
    }

    #[test]
    fn every_unit_of_gnu_dd() {
        let table = [
            ("7", 7),
            ("7c", 7),
            ("7w", 14),
            ("7b", 3584),
            ("7k", 7168),
            ("7K", 7168),
            ("7KiB", 7168),
            ("7kB", 7000),
            ("7KB", 7000),
            ("1M", 1 << 20),
            ("1MB", 1_000_000),
            ("1G", 1 << 30),
            ("1GB", 1_000_000_000),
            ("1T", 1 << 40),
            ("1P", 1 << 50),
            ("1E", 1 << 60),
            ("0Q", 0),
        ];
        for (text, expected) in table {
            assert_eq!(value(text), expected, "{text}");
        }
    }

    #[test]
    fn products() {
        assert_eq!(value("2x512"), 1024);
        assert_eq!(value("2x3x4k"), 24 << 10);
        assert_eq!(value("2xM"), 2 << 20);
        assert_eq!(value("M"), 1 << 20);
        assert_eq!(value("00x10"), 0);
    }

    #[test]
    fn a_b_anywhere_means_bytes() {
        for text in ["5B", "5kB", "5KiB", "5bB", "2x5B", "2Bx5"] {
            assert!(parse(text).unwrap().in_bytes, "{text}");
        }
        assert_eq!(value("2Bx5"), 10);
        assert_eq!(value("5bB"), 2560);
        assert!(!parse("5K").unwrap().in_bytes);
    }

    #[test]
    fn garbage_is_malformed() {
        for text in [
            "", "x", "2x", "x2", "-1", "B", "5BB", "5kBB", "5KiBB", "5q", "5 ", "5Ki", "5g", "1.5",
        ] {
            assert_eq!(parse(text), Err(NumberError::Malformed), "{text}");
        }
    }

    #[test]
    fn the_largest_number_is_a_file_offset() {
        assert_eq!(value("9223372036854775807"), NUMBER_MAX);
        for text in [
            "9223372036854775808",
            "8E",
            "1Z",
            "3037000500x3037000500",
            "99999999999999999999",
        ] {
            assert_eq!(parse(text), Err(NumberError::TooLarge), "{text}");
        }
    }

    #[test]
    fn hexadecimal_is_not_silently_zero() {
        assert_eq!(parse("0x10"), Err(NumberError::LooksHexadecimal));
    }
}
