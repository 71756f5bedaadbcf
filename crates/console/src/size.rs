//! Sizes as people type and read them, in IEC units.
//!
//! `4096`, `4K` and `4KiB` are one size. `4kB` is refused instead of guessed at: half of the world means 4000 by it and
//! the other half 4096, and a volume of the wrong size is noticed late. Only the operands of `dd` follow another
//! grammar, that of GNU dd; see `operands.rs` of the program.

use std::str::FromStr;

/// The unit letters; each is 1024 times the one before it.
const LETTERS: [char; 5] = ['K', 'M', 'G', 'T', 'P'];

/// A number of bytes, as typed with an optional IEC unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

impl Size {
    /// The size in bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl From<u64> for Size {
    fn from(bytes: u64) -> Size {
        Size(bytes)
    }
}

impl FromStr for Size {
    /// What is wrong, and what to write.
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let malformed = || {
            format!("'{text}' is not a size; write a whole number with an optional unit, as in 4096, 4K, 16MiB or 1G")
        };
        let (digits, unit) = split_digits(text);
        if digits.is_empty() {
            return Err(malformed());
        }
        let unit = Unit::parse(unit).ok_or_else(malformed)?;
        let number = digits.parse::<u64>().ok();
        let bytes = number.and_then(|number| number.checked_mul(unit.bytes()));
        let bytes = bytes.ok_or_else(|| format!("'{text}' is more than {} bytes", u64::MAX))?;
        match unit {
            Unit::Decimal(power) => {
                let clear = format!("{digits}{}", letter(power));
                Err(format!(
                    "'{text}' could mean two sizes; write {clear} or {clear}iB for {bytes} bytes"
                ))
            }
            Unit::Bytes | Unit::Iec(_) => Ok(Size(bytes)),
        }
    }
}

/// Splits `text` behind its leading decimal digits.
pub fn split_digits(text: &str) -> (&str, &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at(digits)
}

/// What may stand behind the number.
#[derive(Clone, Copy)]
enum Unit {
    Bytes,
    /// `K`, `k` or `KiB`: this power of 1024.
    Iec(u32),
    /// `kB`: could mean two things.
    Decimal(u32),
}

impl Unit {
    fn parse(text: &str) -> Option<Unit> {
        let mut characters = text.chars();
        let Some(first) = characters.next() else {
            return Some(Unit::Bytes);
        };
        let power = (1..)
            .zip(LETTERS)
            .find(|(_, letter)| *letter == first.to_ascii_uppercase())?
            .0;
        match characters.as_str() {
            "" | "iB" => Some(Unit::Iec(power)),
            "B" | "b" => Some(Unit::Decimal(power)),
            _ => None,
        }
    }

    /// The bytes in one unit; for an ambiguous one, of its IEC reading.
    fn bytes(self) -> u64 {
        match self {
            Unit::Bytes => 1,
            Unit::Iec(power) | Unit::Decimal(power) => 1 << (10 * power),
        }
    }
}

/// The letter of a power of 1024 that [`Unit::parse`] found.
fn letter(power: u32) -> char {
    let index = power.saturating_sub(1) as usize;
    LETTERS.get(index).copied().unwrap_or('?')
}

/// A size for people: exact where it is a whole number of the largest unit that fits, else with one decimal.
pub fn format_size(bytes: u64) -> String {
    let mut unit = 1u128;
    let mut power = 0;
    // The rounded figure decides, so that a byte less than 1 MiB is 1.0 MiB and not 1024.0 KiB.
    while tenths(bytes, unit) >= 10240 && power < LETTERS.len() as u32 {
        unit *= 1024;
        power += 1;
    }
    if power == 0 {
        return format!("{bytes} B");
    }
    let letter = letter(power);
    let exact = u128::from(bytes);
    if exact.is_multiple_of(unit) {
        return format!("{} {letter}iB", exact / unit);
    }
    let tenths = tenths(bytes, unit);
    format!("{}.{} {letter}iB", tenths / 10, tenths % 10)
}

/// The text with a size for people behind each number of bytes: `4194304 bytes` becomes `4194304 bytes (4 MiB)`.
///
/// What is below 10 KiB is read as easily as it stands, and what is explained already stays.
pub fn with_sizes(text: &str) -> String {
    const WORD: &str = " bytes";
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(WORD) {
        let (before, behind) = rest.split_at(at);
        let behind = behind.get(WORD.len()..).unwrap_or_default();
        told.push_str(before);
        told.push_str(WORD);
        let digits = before.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (before, digits) = before.split_at(before.len() - digits);
        // The tail of a name or of a fraction is no number.
        let stands_alone = !before.ends_with(|c: char| c.is_alphanumeric() || c == '.' || c == '_');
        let ends = !behind.starts_with(|c: char| c.is_alphanumeric()) && !behind.starts_with(" (");
        match digits.parse::<u64>() {
            Ok(bytes) if bytes >= 10 << 10 && stands_alone && ends => {
                told.push_str(&format!(" ({})", format_size(bytes)));
            }
            _ => {}
        }
        rest = behind;
    }
    told + rest
}

/// How many tenths of `unit` the bytes are, rounded.
fn tenths(bytes: u64, unit: u128) -> u128 {
    (u128::from(bytes) * 10 + unit / 2) / unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> u64 {
        text.parse::<Size>().unwrap().bytes()
    }

    fn refusal(text: &str) -> String {
        text.parse::<Size>().unwrap_err()
    }

    #[test]
    fn iec_units_are_powers_of_1024() {
        assert_eq!(bytes("0"), 0);
        assert_eq!(bytes("4096"), 4096);
        assert_eq!(bytes("4K"), 4096);
        assert_eq!(bytes("4KiB"), 4096);
        assert_eq!(bytes("1M"), 1 << 20);
        assert_eq!(bytes("2GiB"), 2 << 30);
        assert_eq!(bytes("8T"), 8 << 40);
        assert_eq!(bytes("1PiB"), 1 << 50);
    }

    #[test]
    fn lower_case_is_iec_too() {
        assert_eq!(bytes("4k"), 4096);
        assert_eq!(bytes("1m"), 1 << 20);
        assert_eq!(bytes("1g"), 1 << 30);
    }

    #[test]
    fn decimal_units_are_refused_with_what_to_write() {
        let hint = "write 4K or 4KiB for 4096 bytes";
        for text in ["4kB", "4KB", "4kb", "4Kb"] {
            let said = refusal(text);
            assert!(said.contains(text) && said.contains(hint), "{said}");
        }
        assert!(refusal("4MB").contains("write 4M or 4MiB for 4194304 bytes"));
    }

    #[test]
    fn garbage_is_named() {
        for text in [
            "", "K", "-1", "+1", "1.5G", "4 K", "4Ki", "4KIB", "4X", "4KiBB", "0x10", "4B", "４K",
        ] {
            let said = refusal(text);
            assert!(said.starts_with(&format!("'{text}' is not a size")), "{said}");
        }
    }

    #[test]
    fn overflow_is_an_error() {
        assert_eq!(bytes("18446744073709551615"), u64::MAX);
        for text in ["18446744073709551616", "16384P", "99999999999999999999999K", "16384PB"] {
            assert!(refusal(text).contains("is more than"), "{text}");
        }
    }

    #[test]
    fn people_read_whole_units_where_they_fit() {
        assert_eq!(format_size(0), "0 B");
        assert_eq!(format_size(1023), "1023 B");
        assert_eq!(format_size(4096), "4 KiB");
        assert_eq!(format_size(1 << 30), "1 GiB");
        assert_eq!(format_size(u64::MAX), "16384.0 PiB");
    }

    #[test]
    fn numbers_of_bytes_are_explained() {
        for (text, told) in [
            ("asked for 10737418240 bytes", "asked for 10737418240 bytes (10 GiB)"),
            (
                "1048576 bytes, 4096 bytes, 20480 bytes.",
                "1048576 bytes (1 MiB), 4096 bytes, 20480 bytes (20 KiB).",
            ),
            ("at byte 1048576", "at byte 1048576"),
            ("1048576 bytes (1 MiB)", "1048576 bytes (1 MiB)"),
            ("a1048576 bytes, 1.1048576 bytes", "a1048576 bytes, 1.1048576 bytes"),
            ("no bytes", "no bytes"),
            ("99999999999999999999999 bytes", "99999999999999999999999 bytes"),
            ("ü 65536 bytes", "ü 65536 bytes (64 KiB)"),
        ] {
            assert_eq!(with_sizes(text), told);
        }
    }

    #[test]
    fn people_read_one_decimal_elsewhere() {
        assert_eq!(format_size(1536), "1.5 KiB");
        assert_eq!(format_size((1 << 20) + 4096), "1.0 MiB");
        assert_eq!(format_size((1 << 20) - 1), "1.0 MiB");
        assert_eq!(format_size(1023 * 1024 + 512), "1023.5 KiB");
    }
}
