//! What to do when native AIO cannot be had.

use crate::error::{Errno, SetupError};

/// Explains why no context could be set up for `operations`, or why nothing goes round in it.
pub(crate) fn explain_refusal(errno: Errno, operations: u32) -> SetupError {
    let error = SetupError::new(
        "start the aio backend",
        format!("an AIO context for {operations}"),
        errno,
    );
    match errno {
        // All users together may have so many operations (io_setup(2)).
        Errno::EAGAIN => used_up(error, operations),
        Errno::EINVAL => error
            .need("polls by io_submit, which came with Linux 4.18, and not too many slots")
            .cure("a newer kernel, or fewer slots"),
        Errno::ENOSYS | Errno::EPERM | Errno::EACCES => {
            error.cure("a kernel with CONFIG_AIO; in a container, a seccomp profile that allows io_setup and io_submit")
        }
        Errno::ENOMEM => error.cure("free some memory, or use fewer slots"),
        _ => error,
    }
}

fn used_up(error: SetupError, operations: u32) -> SetupError {
    let number = |name: &str| -> Option<u64> {
        std::fs::read_to_string(format!("/proc/sys/fs/{name}"))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    let (Some(used), Some(most)) = (number("aio-nr"), number("aio-max-nr")) else {
        return error.cure("raise fs.aio-max-nr, or use fewer slots");
    };
    let enough = used
        .saturating_add(u64::from(operations))
        .max(1 << 16)
        .saturating_mul(2);
    error
        .need(format!(
            "{operations} operations; fs.aio-nr says that {used} are taken, of fs.aio-max-nr = {most}"
        ))
        .cure(format!("`sysctl -w fs.aio-max-nr={enough}`, or fewer slots"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_up_operations_are_told_with_figures_and_a_cure_that_is_enough() {
        let error = explain_refusal(Errno::EAGAIN, 5_000_000);
        let (need, cure) = (error.need.unwrap(), error.cure.unwrap());
        assert!(need.contains("aio-nr") && need.contains("aio-max-nr"), "{need}");
        let figure = cure.split(['=', '`']).find_map(|word| word.parse::<u64>().ok());
        assert!(figure.unwrap() >= 5_000_000, "{cure}");
    }
}
