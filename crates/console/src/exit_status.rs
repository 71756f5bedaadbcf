//! The exit statuses of `baio`, in one place.
//!
//! A script may rely on them: they are part of the interface and never change their meaning.

use std::process::ExitCode;

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
}
