//! Setting up a ring: with every flag that this kernel takes; or the reason why there is none, and the cure.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};

use baio_process::descriptor;
use baio_process::kernel::{self, Feature};
use io_uring::{Builder, IoUring};

use crate::affinity::Affinity;
use crate::backend::BATCH_MAX;
use crate::error::{Errno, SetupError};

/// A set-up flag, and how to ask for it; for which rings.
type Flag = (Feature, fn(&mut Builder), For);

#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    All,
    /// Those that one thread uses, and no other ever.
    OneThread,
    /// Those of one thread whose outside loop sleeps by an event fd.
    OneThreadByEventFd,
}

/// Newest first: a kernel that lacks one has all that come after it or also lacks them.
const FLAGS: [Flag; 4] = [
    (
        Feature::NoSqarray,
        |b| {
            b.setup_no_sqarray();
        },
        For::All,
    ),
    (
        Feature::DeferTaskrun,
        |b| {
            b.setup_defer_taskrun().setup_taskrun_flag();
        },
        For::OneThreadByEventFd,
    ),
    (
        Feature::SingleIssuer,
        |b| {
            b.setup_single_issuer();
        },
        For::OneThread,
    ),
    (
        Feature::SubmitAll,
        |b| {
            b.setup_submit_all();
        },
        For::All,
    ),
];

pub(super) type Features = Vec<(&'static str, Result<(), String>)>;

/// Every request in flight and the doorbell fit, and half as many cancellations again; more of those at once wait in the
/// kernel, and `must_enter` fetches them. The queue counts against RLIMIT_MEMLOCK: that of the default 1024 slots must stay
/// at 2048 entries, because 4096 do not fit into the 64 KiB that an ordinary user may have.
fn completions_for(slots: u32) -> u32 {
    slots
        .saturating_add(slots / 2)
        .saturating_add(8)
        .min(1 << 30)
        .next_power_of_two()
}

/// Sets up a ring with every flag that this kernel takes, for the threads that shall use it. COOP_TASKRUN is none of them: with
/// it a thread that has submitted and goes on computing keeps the others' turns waiting. `unsignalled` says why no event fd would tell an
/// outside loop what has ended (`ready.rs`): the ring's own descriptor, which is slept on then, misses completions under DEFER_TASKRUN.
pub(super) fn build(
    slots: u32,
    affinity: Affinity,
    unsignalled: Option<&str>,
) -> Result<(IoUring, Features), SetupError> {
    let entries = slots.clamp(8, BATCH_MAX as u32).next_power_of_two();
    let completions = completions_for(slots);
    let mut dropped = 0;
    loop {
        let mut builder = IoUring::builder();
        builder.setup_clamp().setup_cqsize(completions);
        for (feature, ask, rings) in &FLAGS[dropped..] {
            if unsuited(*rings, affinity, unsignalled).is_none() && !kernel::is_taken_away(*feature) {
                ask(&mut builder);
            }
        }
        match builder.build(entries).map_err(|error| Errno::of(&error)) {
            Ok(ring) => {
                if !kernel::has(Feature::Ring, ring.params().is_feature_ext_arg()) {
                    return Err(explain_refusal(Errno::ENOSYS));
                }
                let ring = above_standard(ring).map_err(|error| explain_refusal(Errno::of(&error)))?;
                return Ok((ring, told(dropped, affinity, unsignalled)));
            }
            Err(Errno::EINVAL) if dropped < FLAGS.len() => dropped += 1,
            Err(errno) => return Err(explain_refusal(errno)),
        }
    }
}

/// The same ring by a number that is no standard stream's, which the program may have closed.
fn above_standard(ring: IoUring) -> io::Result<IoUring> {
    if ring.as_raw_fd() > libc::STDERR_FILENO {
        return Ok(ring);
    }
    // SAFETY: the ring is open here, by `ring`.
    let fd = descriptor::duplicate(unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) })?;
    // SAFETY: another descriptor of the ring whose parameters these are, given away here. Both map the same queues, and the first is not
    // used any more.
    unsafe { IoUring::from_fd(fd.into_raw_fd(), ring.params().clone()) }
}

/// Why a flag is not asked for.
fn unsuited(rings: For, affinity: Affinity, unsignalled: Option<&str>) -> Option<String> {
    let why = match (rings, affinity, unsignalled) {
        (For::All, ..) => return None,
        (_, Affinity::AnyThread, _) => "any thread may use this engine",
        (For::OneThreadByEventFd, _, Some(why)) => why,
        (For::OneThread | For::OneThreadByEventFd, Affinity::OneThread, _) => return None,
    };
    Some(format!("not asked for: {why}"))
}

fn told(dropped: usize, affinity: Affinity, unsignalled: Option<&str>) -> Features {
    let tell = |(index, (feature, _, rings)): (usize, &Flag)| {
        if let Some(why) = unsuited(*rings, affinity, unsignalled) {
            return (feature.line().name, Err(why));
        }
        feature_of(*feature, index >= dropped)
    };
    FLAGS.iter().enumerate().map(tell).collect()
}

/// Is the flag among those that the ring was set up with?
pub(super) fn was_taken(features: &Features, flag: Feature) -> bool {
    let is_it = |(name, had): &(&str, Result<(), String>)| *name == flag.line().name && had.is_ok();
    features.iter().any(is_it)
}

/// What `explain` says of a feature that this kernel was `found` to have, or not.
pub(super) fn feature_of(feature: Feature, found: bool) -> (&'static str, Result<(), String>) {
    let had = kernel::has(feature, found).then_some(());
    (feature.line().name, had.ok_or_else(|| feature.missing()))
}

pub(super) fn explain_refusal(errno: Errno) -> SetupError {
    let error = SetupError::new("start the uring backend", "an io_uring".into(), errno);
    match errno {
        // io_uring_disabled=2 and seccomp filters both say EPERM; some filters say ENOSYS.
        Errno::EPERM | Errno::EACCES => error.cure(
            "try `sysctl -w kernel.io_uring_disabled=0`; in a container, a seccomp profile that allows io_uring_*",
        ),
        Errno::ENOSYS => {
            let since = Feature::Ring.line().since;
            error.cure(format!(
                "a kernel with io_uring ({since} or newer), or a seccomp profile that allows io_uring_*"
            ))
        }
        Errno::ENOMEM => error.cure("raise RLIMIT_MEMLOCK (`ulimit -l`), or use fewer slots"),
        Errno::EMFILE | Errno::ENFILE => error.cure("raise RLIMIT_NOFILE (`ulimit -n`)"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::completions_for;

    #[test]
    fn the_default_ring_fits_into_little_locked_memory() {
        assert_eq!(completions_for(1024), 2048);
        assert!((1..4096).all(|slots| completions_for(slots) > slots));
        completions_for(u32::MAX);
    }
}
