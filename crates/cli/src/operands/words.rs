//! The words that operands are made of, and what is said about one that is none of them: what it is near.

use std::ffi::OsStr;
use std::fmt;

use baio_engine::Choice;

/// The names of operands.
const OPERANDS: [&str; 18] = [
    "if", "of", "bs", "ibs", "obs", "count", "skip", "iseek", "seek", "oseek", "iflag", "oflag", "conv", "status",
    "iodepth", "backend", "mode", "verify",
];

/// The flags of `iflag=`.
pub(super) const INPUT_FLAGS: [&str; 13] = [
    "append",
    "count_bytes",
    "direct",
    "directory",
    "dsync",
    "fullblock",
    "noatime",
    "nocache",
    "noctty",
    "nofollow",
    "nonblock",
    "skip_bytes",
    "sync",
];

/// The flags of `oflag=`.
pub(super) const OUTPUT_FLAGS: [&str; 11] = [
    "append",
    "direct",
    "directory",
    "dsync",
    "noatime",
    "nocache",
    "noctty",
    "nofollow",
    "nonblock",
    "seek_bytes",
    "sync",
];

/// The words of `conv=`.
pub(super) const CONVERSIONS: [&str; 11] = [
    "excl",
    "fdatasync",
    "fsync",
    "lcase",
    "nocreat",
    "noerror",
    "notrunc",
    "sparse",
    "swab",
    "sync",
    "ucase",
];

/// Those of punched cards and EBCDIC, which are left to GNU dd.
pub(super) const CONVERSIONS_OF_GNU_DD: [&str; 5] = ["ascii", "block", "ebcdic", "ibm", "unblock"];

/// The words of `status=`, `mode=` and `verify=`.
pub(super) const STATUS_LEVELS: [&str; 3] = ["none", "noxfer", "progress"];
pub(super) const MODES: [&str; 4] = ["direct", "cached", "kernel", "uncached"];
pub(super) const VERIFICATIONS: [&str; 2] = ["blake3", "none"];

/// Is it the name of an operand?
pub(crate) fn is_one(name: &str) -> bool {
    OPERANDS.contains(&name)
}

/// Operands as they can be typed: `bs=`, and with each word where only some can be, `conv=fsync`.
pub(crate) fn completions() -> impl Iterator<Item = String> {
    let backends = Choice::ALL.map(Choice::name);
    OPERANDS.into_iter().flat_map(move |name| {
        let words: &[&str] = match name {
            "iflag" => &INPUT_FLAGS,
            "oflag" => &OUTPUT_FLAGS,
            "conv" => &CONVERSIONS,
            "status" => &STATUS_LEVELS,
            "backend" => &backends,
            "mode" => &MODES,
            "verify" => &VERIFICATIONS,
            _ => &[""],
        };
        words.iter().map(|word| format!("{name}={word}")).collect::<Vec<_>>()
    })
}

/// What is wrong with the operands, in the words of GNU dd where it has some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OperandError(String);

impl OperandError {
    pub(super) fn unrecognized(operand: &OsStr) -> OperandError {
        let operand = operand.to_string_lossy();
        let name = operand.split('=').next().unwrap_or_default();
        let hint = hint(name, &OPERANDS, "=");
        OperandError(format!("unrecognized operand '{operand}'{hint}"))
    }

    pub(super) fn invalid(what: &str, word: &str, known: &[&str]) -> OperandError {
        OperandError(format!("invalid {what}: '{word}'{}", hint(word, known, "")))
    }

    pub(super) fn invalid_number(text: &str, why: &dyn fmt::Display) -> OperandError {
        OperandError(format!("invalid number: '{text}': {why}"))
    }

    /// What this program has not.
    pub(super) fn of_gnu_dd(what: &str) -> OperandError {
        OperandError(format!(
            "{what} is not done here: use GNU dd for it, in a pipe before or behind this one"
        ))
    }

    pub(super) fn combined(several: &str) -> OperandError {
        OperandError(format!("cannot combine {several}"))
    }

    pub(super) fn beyond(name: &str) -> OperandError {
        OperandError(format!("{name}= points beyond the largest file offset"))
    }
}

impl fmt::Display for OperandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OperandError {}

/// `; near it is 'lcase'`, or nothing when nothing is near.
fn hint(word: &str, known: &[&str], behind: &str) -> String {
    let near = known
        .iter()
        .map(|other| (strsim::levenshtein(word, other), other))
        .min();
    match near {
        // More mistakes than a third of the letters make another word.
        Some((mistakes, other)) if mistakes <= word.chars().count() / 3 => {
            format!("; near it is '{other}{behind}'")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_is_named() {
        assert_eq!(hint("lcas", &CONVERSIONS, ""), "; near it is 'lcase'");
        assert_eq!(hint("ibss", &OPERANDS, "="), "; near it is 'ibs='");
        assert_eq!(hint("elephant", &CONVERSIONS, ""), "");
        assert_eq!(hint("", &CONVERSIONS, ""), "");
    }
}
