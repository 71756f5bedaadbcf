//! How much memory a command may take for its buffers. The limit of this process's memory cgroup counts like the machine's memory: the
//! kernel kills a process that goes beyond it.

use baio::Backend;

pub use baio_process::memory_limit::of_cgroup as limit;

/// All buffers of a command together take at most this many bytes.
const MAX: u64 = 1 << 30;

/// The program itself, engines, page tables, and what the kernel caches for it take their part of the limit too.
const PART: u64 = 4;

/// Bytes that all buffers of a command may take, and why no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// At most so many bytes, all buffers together.
    pub bytes: u64,
    cgroup: Option<u64>,
}

impl Room {
    /// What the cgroup of this process leaves, and no more than 1 GiB.
    pub fn here() -> Room {
        Room::within(limit())
    }

    fn within(cgroup: Option<u64>) -> Room {
        // A limit that leaves everything is none.
        let cgroup = cgroup.filter(|limit| limit / PART < MAX);
        Room {
            bytes: cgroup.map_or(MAX, |limit| limit / PART),
            cgroup,
        }
    }

    /// How many buffers of this size have room: one at least, and no more than `most`.
    pub fn buffers(self, each: u64, most: u32) -> u32 {
        let fit = self.bytes.checked_div(each).unwrap_or(u64::MAX);
        u32::try_from(fit).unwrap_or(u32::MAX).clamp(1, most)
    }

    /// What writes through the kernel's page cache go by, where `asked` leaves that open. The kernel makes whoever dirties pages wait for
    /// write-back before it kills for lack of memory, but not its own workers, by which io_uring writes what would block (`mm/vmscan.c`,
    /// `reclaim_throttle`): in a small cgroup a copy of ours was killed for pages that only had to be written.
    pub fn backend_of_page_cache(self, asked: Backend) -> Backend {
        match (asked, self.cgroup) {
            (Backend::Auto, Some(_)) => Backend::Threads,
            _ => asked,
        }
    }

    /// What is needed of whoever asks for more.
    pub fn need(self) -> String {
        match self.cgroup {
            None => format!("at most {} bytes", self.bytes),
            Some(limit) => format!(
                "at most {} bytes: the memory cgroup of this process allows {limit}",
                self.bytes
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_leave_room_for_the_rest() {
        let room = Room::within(Some(64 << 20));
        assert_eq!(room.buffers(1 << 20, 32), 16);
        assert_eq!(room.buffers(4096, 32), 32);
        assert_eq!(room.buffers(1 << 40, 32), 1);
        assert_eq!(room.buffers(0, 32), 32);
        assert!(room.need().contains("memory cgroup"));
        assert_eq!(room.backend_of_page_cache(Backend::Auto), Backend::Threads);
        assert_eq!(room.backend_of_page_cache(Backend::Uring), Backend::Uring);
        assert_eq!(Room::within(None).backend_of_page_cache(Backend::Auto), Backend::Auto);
        // What version 1 calls no limit.
        assert_eq!(Room::within(Some(9_223_372_036_854_771_712)), Room::within(None));
        assert_eq!(Room::within(None).bytes, MAX);
    }
}
