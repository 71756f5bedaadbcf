//! What a kernel may lack, and what we do instead: one table.
//!
//! Each line is a system call, a flag or an operation that is younger than Linux 5.4, which everything else here works on. Whoever uses
//! one finds out by doing it, never by a version, and passes what it found through [`has`]. So there is one place that knows what was
//! found lacking ([`lacking`], which `baio doctor` shows), and one where each line can be taken away.
//!
//! `BAIO_KERNEL_LACKS` takes lines away: names of them, or `as on 5.15` for all that are younger. Every old way is tested so on every
//! machine, and who suspects a feature of his kernel can do without it. A word that is no line's makes [`taken_away`] an error.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, StatxFlags};

use crate::fork::Once;

/// The variable that takes lines away.
pub const LACKS: &str = "BAIO_KERNEL_LACKS";

macro_rules! table {
    ($($feature:ident = $name:literal, $since:literal, $what:literal, $found:literal, $instead:literal;)*) => {
        /// Something that a kernel may lack.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Feature {
            $(#[doc = $what] $feature,)*
        }

        /// Every line, the oldest first.
        pub const TABLE: &[Line] = &[
            $(Line {
                feature: Feature::$feature,
                name: $name,
                since: $since,
                what: $what,
                found: $found,
                instead: $instead,
            },)*
        ];
    };
}

/// One line of the table.
#[derive(Debug)]
pub struct Line {
    /// Which.
    pub feature: Feature,
    /// Its name in messages and in the variable.
    pub name: &'static str,
    /// The first kernel that has it.
    pub since: &'static str,
    /// What it is.
    pub what: &'static str,
    /// How it is found out.
    pub found: &'static str,
    /// What is done on a kernel that lacks it.
    pub instead: &'static str,
}

table! {
    Ring = "ring", "5.11",
        "an io_uring that can be waited for with a time limit (`IORING_ENTER_EXT_ARG`)",
        "the features that its set-up reports, and a no-op that is waited for with a time limit",
        "no uring: Linux AIO, else threads";
    BoundedWorkers = "bounded_workers", "5.15",
        "a limit on a ring's threads in the kernel (`IORING_REGISTER_IOWQ_MAX_WORKERS`)",
        "asked for at the start",
        "the kernel's own limit, which is higher";
    NowaitAtEnd = "nowait_at_end", "5.16",
        "a read that must not wait distinguishes the end of the file from data that is not in the page cache",
        "futex_waitv(2), which came with the same kernel, because one trial read may be right by chance",
        "such a read that ends with nothing is followed by fstat(2)";
    LateEventFd = "late_event_fd", "5.18",
        "an event fd is registered with a ring without waiting for the requests in flight",
        "a set-up flag or an operation (`IORING_OP_MSG_RING`) that came with the same kernel or a later one: on an older kernel a trial of the registration itself would wait for ever",
        "it is registered when the ring is made, and armed by a flag in the ring; it costs a descriptor in programs without an outside loop";
    SubmitAll = "submit_all", "5.18",
        "a refused entry does not end the batch (`IORING_SETUP_SUBMIT_ALL`)",
        "a set-up with the flag",
        "the batch goes on with another system call";
    RegisteredRing = "registered_ring", "5.18",
        "a thread enters its ring by an index that it has registered, not by a descriptor (`IORING_REGISTER_RING_FDS`)",
        "asked for at the start, and the ring is entered by it once",
        "the ring is entered by its descriptor, a little slower";
    RegisteredFiles = "registered_files", "5.19",
        "an empty table of files (`IORING_RSRC_REGISTER_SPARSE`)",
        "asked for at the start",
        "files go by their descriptors, a little slower";
    SingleIssuer = "single_issuer", "6.0",
        "a ring that one thread uses (`IORING_SETUP_SINGLE_ISSUER`)",
        "a set-up with the flag",
        "a ring that any thread could use";
    DeferTaskrun = "defer_taskrun", "6.1",
        "completions are posted when the ring's thread enters the ring (`IORING_SETUP_DEFER_TASKRUN`)",
        "a set-up with the flag",
        "completions interrupt the ring's thread, and its blocking calls may return `EINTR`";
    DirectLimits = "direct_limits", "6.1",
        "what direct I/O on a file must be aligned to (`STATX_DIOALIGN`)",
        "statx(2) of each file that is opened",
        "a device: its sectors (`BLKSSZGET`); a file of ext4 or XFS: the sectors of the device below it (sysfs); any other file: 4096 bytes";
    NoexecSeal = "noexec_seal", "6.3",
        "memory that is shared can never be executed (`MFD_NOEXEC_SEAL`)",
        "asked for when it is made",
        "it is made without";
    NowaitStreams = "nowait_streams", "6.4",
        "pipes and sockets know `RWF_NOWAIT`",
        "a read or write with it says `EOPNOTSUPP`",
        "poll(2) first says whether the descriptor is ready; then what is there is read, and a write goes in pieces that fit (on a socket whole, with `MSG_DONTWAIT`)";
    Cachestat = "cachestat", "6.5",
        "whether bytes are in the page cache (cachestat(2))",
        "the call",
        "a read with `RWF_NOWAIT` tells";
    NoSqarray = "no_sqarray", "6.6",
        "a ring without the array of indices (`IORING_SETUP_NO_SQARRAY`)",
        "a set-up with the flag",
        "the ring has the array";
    Truncate = "truncate", "6.9",
        "a file is truncated by the ring (`IORING_OP_FTRUNCATE`)",
        "`IORING_REGISTER_PROBE`",
        "a thread beside the ring does it, and a cancel comes too late for it";
    SameFile = "same_file", "6.10",
        "whether two descriptors are one open file (`F_DUPFD_QUERY`)",
        "fcntl(2), when a request of libaio names an event fd",
        "kcmp(2) compares them; where a policy forbids that, the event fd's number in /proc does; without /proc each request gets a duplicate of its event fd, and while 64 such requests are in flight, the next one is refused with `EAGAIN`";
    AtomicWrites = "atomic_writes", "6.11",
        "how much a device writes whole or not at all (`STATX_WRITE_ATOMIC`)",
        "statx(2), by `baio doctor`",
        "`baio doctor` does not say it; nothing else uses it";
    Uncached = "uncached", "6.14",
        "reads and writes that leave nothing in the page cache (`RWF_DONTCACHE`)",
        "`File::probe`, or the first request",
        "an uncached request fails with `EOPNOTSUPP`, and `baio doctor` names the kernel that it needs";
    RegisteredLists = "registered_lists", "6.15",
        "lists of registered memory (`IORING_OP_READV_FIXED`, `IORING_OP_WRITEV_FIXED`)",
        "`IORING_REGISTER_PROBE`",
        "lists go unregistered";
    RefusedRights = "refused_rights", "6.16",
        "a socket refuses descriptors that are sent to it (`SO_PASSRIGHTS`)",
        "setsockopt(2), when a broker makes or accepts a socket",
        "the kernel drops descriptors that are sent to a broker: those of a message when the broker reads it, the rest when the session ends";
    NoSignal = "no_signal", "6.18",
        "a write to a pipe or socket without readers raises no signal (`RWF_NOSIGNAL`)",
        "preadv2(2) of a file in memory with the flag, when the library for POSIX AIO makes its ring",
        "such a write may raise SIGPIPE";
}

/// Each line that was found lacking, or taken away where it would be used, by its place in the table.
static LACKING: AtomicU64 = AtomicU64::new(0);

const _: () = assert!(TABLE.len() <= u64::BITS as usize);

impl Feature {
    /// Its line.
    #[must_use]
    pub fn line(self) -> &'static Line {
        &TABLE[self as usize]
    }

    fn bit(self) -> u64 {
        1 << self as usize
    }

    /// Why it is not to be had, for messages.
    #[must_use]
    pub fn missing(self) -> String {
        if is_taken_away(self) {
            return format!("taken away by {LACKS}");
        }
        format!("this kernel has it not; it came with Linux {}", self.line().since)
    }
}

/// May it be used, as far as whoever has just tried it `found`? Keeps the answer for [`lacking`].
pub fn has(feature: Feature, found: bool) -> bool {
    let has = found && !is_taken_away(feature);
    if !has {
        // Relaxed: it tells of nothing but itself.
        LACKING.fetch_or(feature.bit(), Ordering::Relaxed);
    }
    has
}

/// As [`has`], where the trial costs something: a line that was taken away is not tried.
pub fn tried(feature: Feature, trial: impl FnOnce() -> bool) -> bool {
    has(feature, !is_taken_away(feature) && trial())
}

/// Is it taken away by the variable?
#[must_use]
pub fn is_taken_away(feature: Feature) -> bool {
    matches!(taken(), Ok(lines) if lines & feature.bit() != 0)
}

/// The lines that this process has found lacking so far.
pub fn lacking() -> impl Iterator<Item = &'static Line> {
    let bits = LACKING.load(Ordering::Relaxed);
    TABLE.iter().filter(move |line| bits & line.feature.bit() != 0)
}

/// The lines that the variable takes away.
///
/// # Errors
/// It holds a word that is no line's; which, and which there are.
pub fn taken_away() -> Result<Vec<&'static Line>, &'static str> {
    let bits = taken()?;
    Ok(TABLE.iter().filter(|line| bits & line.feature.bit() != 0).collect())
}

fn taken() -> Result<u64, &'static str> {
    static TAKEN: Once<Result<u64, String>> = Once::new();
    let taken = TAKEN.get_or_make(|| match std::env::var(LACKS) {
        Ok(words) => lines_of(&words),
        Err(std::env::VarError::NotPresent) => Ok(0),
        Err(std::env::VarError::NotUnicode(_)) => Err("it is not text".into()),
    });
    taken.as_ref().map(|bits| *bits).map_err(String::as_str)
}

/// The lines that are named, separated by commas, or younger than the kernel in `as on 5.15`.
fn lines_of(words: &str) -> Result<u64, String> {
    let mut bits = 0;
    for word in words.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let older = word.strip_prefix("as on ").and_then(version);
        let named = |line: &&Line| match older {
            Some(kernel) => version(line.since).is_some_and(|since| since > kernel),
            None => line.name == word,
        };
        let lines: u64 = TABLE.iter().filter(named).map(|line| line.feature.bit()).sum();
        if lines == 0 && older.is_none() {
            let names: Vec<_> = TABLE.iter().map(|line| line.name).collect();
            return Err(format!(
                "`{word}` is none of {}, nor `as on` a version",
                names.join(", ")
            ));
        }
        bits |= lines;
    }
    Ok(bits)
}

/// What direct I/O must be aligned to, in bytes, as statx(2) tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Of memory; 0 where the file has no direct I/O.
    pub memory: u32,
    /// Of offsets and lengths; 0 likewise.
    pub offset: u32,
}

/// `None` where this kernel, or the file system, does not tell.
pub fn direct_alignment(fd: impl AsFd) -> Option<Alignment> {
    if is_taken_away(Feature::DirectLimits) {
        has(Feature::DirectLimits, false);
        return None;
    }
    let told = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    (told.stx_mask & StatxFlags::DIOALIGN.bits() != 0).then_some(Alignment {
        memory: told.stx_dio_mem_align,
        offset: told.stx_dio_offset_align,
    })
}

/// Of the table and of the variable; what runs here is never asked.
fn version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stands_at_its_number_and_an_older_one_before_it() {
        for (place, line) in TABLE.iter().enumerate() {
            assert_eq!(line.feature as usize, place, "{}", line.name);
        }
        let versions: Vec<_> = TABLE.iter().map(|line| version(line.since).unwrap()).collect();
        assert!(versions.is_sorted(), "{versions:?}");
        let mut names: Vec<_> = TABLE.iter().map(|line| line.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
    }

    #[test]
    fn lines_are_taken_away_by_name_and_by_kernel() {
        let bits = |features: &[Feature]| Ok(features.iter().map(|feature| feature.bit()).sum());
        assert_eq!(lines_of(""), Ok(0));
        assert_eq!(
            lines_of("truncate, cachestat"),
            bits(&[Feature::Truncate, Feature::Cachestat])
        );
        assert_eq!(
            lines_of("as on 6.15"),
            bits(&[Feature::RefusedRights, Feature::NoSignal])
        );
        assert_eq!(lines_of("as on 6.18"), Ok(0));
        let old = lines_of("as on 5.15").unwrap();
        assert_eq!(old & Feature::BoundedWorkers.bit(), 0);
        assert_ne!(old & Feature::LateEventFd.bit(), 0);
        for wrong in ["trunkate", "as on", "as on x.y", "5.15"] {
            let told = lines_of(wrong).unwrap_err();
            assert!(told.contains(wrong) && told.contains("registered_lists"), "{told}");
        }
    }
}
