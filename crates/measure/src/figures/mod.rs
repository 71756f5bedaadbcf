//! Measuring: one shape of result for every tool, taken the same way on every side.
//!
//! A figure counts only as a ratio against a peer that ran in turn with it. So each side is a whole process:
//! our own loops run as a child of the same program ([`stress`], [`appends`], [`worker`]), fio and dd as they are ([`fio`], [`dd`]), and the processor time
//! of either comes from `wait4` ([`command_line`], [`runner`]), with its memory, whole, and beside it less what it takes to start and to end ([`start_up`]).

use baio_stress::Measurement;

pub(crate) mod appends;
pub(crate) mod command_line;
pub(crate) mod dd;
pub(crate) mod fio;
pub(crate) mod interrupt;
pub(crate) mod job;
pub(crate) mod runner;
pub(crate) mod start_up;
pub(crate) mod stress;
pub(crate) mod worker;

/// A word as a shell must be given it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=/.,:+@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The middle one; the mean of the two middle ones of an even number; 0 of none. Where one of them is no number, nothing was measured, and
/// so is the middle: by its sign it would be the best of all or the worst.
pub(crate) fn median(values: &[f64]) -> f64 {
    if values.iter().any(|value| value.is_nan()) {
        return f64::NAN;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        len if len % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

/// The median of a figure over the runs.
pub(crate) fn middle(runs: &[Measurement], of: impl Fn(&Measurement) -> f64) -> f64 {
    median(&runs.iter().map(of).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn nothing_measured_is_no_middle() {
        for nothing in [f64::NAN, -f64::NAN] {
            assert!(median(&[1.0, nothing, 2.0]).is_nan());
        }
    }

    #[test]
    fn a_quoted_word_stays_one_word() {
        assert_eq!(quoted("--bs=4096"), "--bs=4096");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
