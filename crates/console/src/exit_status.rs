//! The exit statuses of `baio`, in one place.
//!
//! A script may rely on them: they are part of the interface and never change their meaning.

use std::process::ExitCode;

use crate::interrupt::{self, Interrupt};

/// What the program tells its parent process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitStatus {
    /// Everything asked for was done.
    Success = 0,
    /// The system, the volume or the data stood in the way.
    Failed = 1,
    /// What was typed makes no sense; nothing was touched.
    Usage = 2,
    /// The work was done, but the data read back is not what was written.
    NotVerified = 3,
    /// The work was done, but a threshold that was asked for was missed.
    ThresholdMissed = 4,
    /// SIGINT ended it; what it had is told. As a shell says it.
    Interrupted = 130,
    /// SIGTERM ended it; what it had is told.
    Terminated = 143,
}

impl ExitStatus {
    /// The status of a failure with the error code `code` in the command `operation`.
    ///
    /// A command that a signal has ended ends as a shell says it. Usage errors of `dd` exit with 1, because GNU dd's do and scripts know it so.
    pub fn of_failure(operation: &str, code: &str) -> ExitStatus {
        match code {
            "EUSAGE" if operation == "dd" => ExitStatus::Failed,
            "EUSAGE" => ExitStatus::Usage,
            "EINTR" => interrupt::came().map_or(ExitStatus::Interrupted, Interrupt::exit_status),
            "EVERIFY" => ExitStatus::NotVerified,
            _ => ExitStatus::Failed,
        }
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> ExitCode {
        ExitCode::from(status as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_the_documented_ones() {
        assert_eq!(ExitStatus::Success as u8, 0);
        assert_eq!(ExitStatus::Failed as u8, 1);
        assert_eq!(ExitStatus::Usage as u8, 2);
        assert_eq!(ExitStatus::NotVerified as u8, 3);
        assert_eq!(ExitStatus::ThresholdMissed as u8, 4);
        assert_eq!(ExitStatus::Interrupted as u8, 128 + 2);
        assert_eq!(ExitStatus::Terminated as u8, 128 + 15);
    }

    #[test]
    fn usage_errors_of_dd_exit_as_those_of_gnu_dd() {
        assert_eq!(ExitStatus::of_failure("dd", "EUSAGE"), ExitStatus::Failed);
        assert_eq!(ExitStatus::of_failure("create", "EUSAGE"), ExitStatus::Usage);
    }

    #[test]
    fn what_a_signal_ends_says_so() {
        assert_eq!(ExitStatus::of_failure("stress", "EINTR"), ExitStatus::Interrupted);
    }

    #[test]
    fn only_a_mismatch_of_data_is_not_verified() {
        assert_eq!(ExitStatus::of_failure("dd", "EVERIFY"), ExitStatus::NotVerified);
        assert_eq!(ExitStatus::of_failure("list", "ECORRUPT"), ExitStatus::Failed);
    }
}
