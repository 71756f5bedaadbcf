//! Each system call, flag and registration that the engine uses and that is younger than Linux 5.4, as a filter sees it, and what refuses it:
//! the kernel, a container or a policy. What no filter sees, operations and set-up flags of a ring, are lines of `kernel::TABLE`. What only the
//! drop-in libraries use is refused in their own tests.

#![allow(dead_code, reason = "each test binary includes this file and uses a part of it")]

use baio_engine::Errno;

use crate::filter::{Which, forbid_from, forbid_some};

/// What a kernel without it says, and what policies say.
pub(crate) const WORDS: &[Errno] = &[Errno::ENOSYS, Errno::EINVAL, Errno::EPERM];
/// The C library goes on by another call after this word only.
const MISSING: &[Errno] = &[Errno::ENOSYS];
/// Of a flag of a read or write.
const UNKNOWN: &[Errno] = &[Errno::EOPNOTSUPP];

const ENTER: libc::c_long = libc::SYS_io_uring_enter;
const REGISTER: libc::c_long = libc::SYS_io_uring_register;
const CACHESTAT: libc::c_long = 451;
const DIOALIGN: u32 = 0x2000;
const WRITE_ATOMIC: u32 = 0x1_0000;
const NOEXEC_SEAL: u32 = 8;
const EXT_ARG: u32 = 8;
const REGISTERED_RING: u32 = 16;
const NOWAIT: Which = Which::Bits(5, libc::RWF_NOWAIT as u32);
const DONTCACHE: Which = Which::Bits(5, libc::RWF_DONTCACHE as u32);

/// `IORING_REGISTER_*` (include/uapi/linux/io_uring.h) by their numbers.
const fn registers(what: u32) -> Which {
    Which::Argument(1, what)
}

/// What it is, the call, which of them, and the words that refuse it.
pub(crate) type Young = (&'static str, libc::c_long, Which, &'static [Errno]);

#[rustfmt::skip]
pub(crate) const YOUNG: &[Young] = &[
    ("io_uring_setup, with an argument of 5.11", libc::SYS_io_uring_setup, Which::All, WORDS),
    ("a ring waited for with a limit", ENTER, Which::Bits(3, EXT_ARG), WORDS),
    ("a ring entered by its place", ENTER, Which::Bits(3, REGISTERED_RING), WORDS),
    ("io_uring_register", REGISTER, Which::All, WORDS),
    ("a registered arena", REGISTER, registers(0), WORDS),
    ("files registered no longer", REGISTER, registers(3), WORDS),
    ("an event fd", REGISTER, registers(4), WORDS),
    ("an event fd registered no longer", REGISTER, registers(5), WORDS),
    ("an update of registered files", REGISTER, registers(6), WORDS),
    ("a probe of operations", REGISTER, registers(8), WORDS),
    ("an empty table of files", REGISTER, registers(13), WORDS),
    ("a limit of workers", REGISTER, registers(19), WORDS),
    ("a registered ring", REGISTER, registers(20), WORDS),
    ("a ring registered no longer", REGISTER, registers(21), WORDS),
    ("statx", libc::SYS_statx, Which::All, MISSING),
    ("what direct I/O needs", libc::SYS_statx, Which::Bits(3, DIOALIGN), WORDS),
    ("atomic writes", libc::SYS_statx, Which::Bits(3, WRITE_ATOMIC), WORDS),
    ("cachestat", CACHESTAT, Which::All, WORDS),
    ("epoll_pwait2", libc::SYS_epoll_pwait2, Which::All, WORDS),
    ("memory that cannot be executed", libc::SYS_memfd_create, Which::Bits(1, NOEXEC_SEAL), WORDS),
    ("RWF_NOWAIT of a read", libc::SYS_preadv2, NOWAIT, UNKNOWN),
    ("RWF_NOWAIT of a write", libc::SYS_pwritev2, NOWAIT, UNKNOWN),
    ("RWF_DONTCACHE of a read", libc::SYS_preadv2, DONTCACHE, UNKNOWN),
    ("RWF_DONTCACHE of a write", libc::SYS_pwritev2, DONTCACHE, UNKNOWN),
    ("clone3", libc::SYS_clone3, Which::All, MISSING),
    ("close_range", libc::SYS_close_range, Which::All, WORDS),
    ("openat2", libc::SYS_openat2, Which::All, WORDS),
    ("faccessat2", libc::SYS_faccessat2, Which::All, WORDS),
    ("pidfd_open", libc::SYS_pidfd_open, Which::All, WORDS),
    ("futex_waitv", libc::SYS_futex_waitv, Which::All, WORDS),
];

/// Rows that the ring may be lost to: without them there is none (the line `ring` of the table). All else that is refused costs speed.
const OF_THE_RING: usize = 2;

/// What is refused: a row of the table, or all that is young.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    row: Option<usize>,
    word: Errno,
}

impl Refusal {
    /// Every row in every word, and then all at once.
    pub(crate) fn each() -> impl Iterator<Item = Refusal> {
        let row = |(row, young): (usize, &'static Young)| young.3.iter().map(move |&word| (Some(row), word));
        let rows = YOUNG.iter().enumerate().flat_map(row);
        let refusal = |(row, word)| Refusal { row, word };
        rows.chain(WORDS.iter().map(|&word| (None, word))).map(refusal)
    }

    /// Does it refuse all at once, or a row in the last of its words? A policy's, where there is one.
    pub(crate) fn is_last_word(self) -> bool {
        self.row.is_none_or(|row| YOUNG[row].3.last() == Some(&self.word))
    }

    /// Of those, the ones that refuse the most: all at once, or what the ring is lost to.
    pub(crate) fn is_of_the_worst(self) -> bool {
        self.is_last_word() && (self.row.is_none() || self.may_cost_the_ring())
    }

    pub(crate) fn name(self) -> String {
        let what = self.row.map_or("all that is young", |row| YOUNG[row].0);
        format!("{what} refused with {}", self.word)
    }

    pub(crate) fn may_cost_the_ring(self) -> bool {
        self.row.is_some_and(|row| row < OF_THE_RING)
    }

    /// Is it of a flag that files know since Linux 4.14, and only pipes and sockets since 6.4? A kernel finds what else is wrong with a request
    /// first, a filter does not: the contract is kept as on 6.1 instead (`environment::ALL`).
    pub(crate) fn is_of_streams(self) -> bool {
        self.row.is_some_and(|row| YOUNG[row].0.starts_with("RWF_NOWAIT"))
    }

    /// In this thread, and in those that it starts.
    pub(crate) fn begin(self) {
        match self.row {
            Some(row) => forbid_some(&[(YOUNG[row].1, YOUNG[row].2)], self.word.raw()),
            None => forbid_all(self.word.raw()),
        }
    }
}

/// Every call that is younger than Linux 5.4, and every flag and number of the older ones that we use or might: also those to come.
/// Only a ring's limit is left, without which there would be no ring to look at. Numbers of calls have been the same on all architectures
/// since.
fn forbid_all(errno: i32) {
    #[rustfmt::skip]
    const FLAGS: &[(libc::c_long, Which)] = &[
        (libc::SYS_preadv2, Which::Bits(5, !0x1f)),
        (libc::SYS_pwritev2, Which::Bits(5, !0x1f)),
        (libc::SYS_statx, Which::Bits(3, !0xfff)),
        (libc::SYS_memfd_create, Which::Bits(1, 0x03ff_fff8)),
        (libc::SYS_fallocate, Which::Bits(1, !0x7f)),
        (libc::SYS_madvise, Which::From(2, 22)),
        (libc::SYS_prctl, Which::From(0, 57)),
        (libc::SYS_getsockopt, Which::From(2, 69)),
        (libc::SYS_setsockopt, Which::From(2, 69)),
        (REGISTER, Which::From(1, 6)),
        (ENTER, Which::Bits(3, !(EXT_ARG | 0x7))),
    ];
    forbid_some(FLAGS, errno);
    forbid_from(libc::SYS_close_range, errno);
}
