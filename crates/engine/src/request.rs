//! What a caller asks for. Plain data: what happens next is named by the tag, never by a closure.

use std::time::Duration;

use crate::error::Error;
use crate::file::File;
use crate::memory::Memory;
use crate::policy::{Durability, Policy, Space, Time};

/// One operation. Lengths come from the request's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads into the request's memory, exactly: fewer bytes mean end of file.
    Read {
        /// First byte in the file; `None` reads a stream, which returns what there is.
        offset: Option<u64>,
    },
    /// Writes the request's memory, exactly.
    Write {
        /// First byte in the file; `None` writes to a stream.
        offset: Option<u64>,
    },
    /// Makes every write completed before the submission of this request durable, as far as its policy says.
    Sync,
    /// A sync that starts by itself when every write submitted to the file before it has ended.
    Fence,
    /// Starts and waits for write-back of a range; no flush of the device (sync_file_range(2)), so it proves nothing.
    SyncRange {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Changes how a range is stored.
    Allocate {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// To what.
        space: Space,
    },
    /// Makes a regular file so long: what lies behind is gone, and what is new reads as zeros (ftruncate(2)).
    Truncate {
        /// Bytes.
        len: u64,
    },
    /// Completes when the descriptor is ready; the result is the ready events (poll(2)).
    Poll {
        /// `POLLIN`, `POLLOUT`, ...
        events: u32,
    },
    /// Completes at a moment of engine time.
    Timer {
        /// When.
        at: Time,
    },
    /// Takes the next connection of a listening socket; the completion holds it (accept(2)).
    Accept,
    /// Connects a socket to the address in the request's memory ([`Address::encode`](crate::Address::encode), connect(2)).
    Connect,
    /// Receives what there is into the request's memory; 0 bytes when the other end is closed (recv(2)).
    Receive {
        /// `MSG_*`.
        flags: u32,
    },
    /// Sends the request's memory, all of it (send(2)).
    Send {
        /// `MSG_*`; `MSG_NOSIGNAL` is always added.
        flags: u32,
    },
    /// Copies a range of the file to the request's target, a socket or a pipe, window by window: the request's memory is
    /// the window. Fewer bytes than asked for mean the end of the file.
    Transfer {
        /// First byte in the file.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Completes when somebody signals it ([`Engine::signal`](crate::Engine::signal), [`Signals`](crate::Signals)), with the
    /// value given there. Never reaches a backend.
    Event,
}

impl Op {
    /// The names of all operations, in the order of [`Op::kind`].
    pub(crate) const KINDS: [&'static str; 17] = [
        "read",
        "write",
        "sync",
        "fence",
        "sync range",
        "allocate",
        "zero",
        "discard",
        "poll",
        "timer",
        "accept",
        "connect",
        "receive",
        "send",
        "transfer",
        "event",
        "truncate",
    ];

    /// The word used in messages and statistics.
    #[must_use]
    pub fn name(self) -> &'static str {
        Op::KINDS[self.kind()]
    }

    pub(crate) fn kind(self) -> usize {
        match self {
            Op::Read { .. } => 0,
            Op::Write { .. } => 1,
            Op::Sync => 2,
            Op::Fence => 3,
            Op::SyncRange { .. } => 4,
            Op::Allocate { space, .. } => match space {
                Space::Reserve => 5,
                Space::Zero => 6,
                Space::Discard => 7,
            },
            Op::Poll { .. } => 8,
            Op::Timer { .. } => 9,
            Op::Accept => 10,
            Op::Connect => 11,
            Op::Receive { .. } => 12,
            Op::Send { .. } => 13,
            Op::Transfer { .. } => 14,
            Op::Event => 15,
            Op::Truncate { .. } => 16,
        }
    }

    /// How a backend refuses it ([`Backend::refuses`](crate::Backend::refuses)).
    #[must_use]
    pub fn unsupported_by(self, backend: &'static str) -> Error {
        let operation = self.name();
        Error::Unsupported { operation, backend }
    }

    /// Is it one that a disk could serve, or that needs none? What remains is for streams, sockets and descriptors. For a
    /// backend to say what it refuses.
    #[must_use]
    pub fn is_for_disks(self) -> bool {
        matches!(
            self,
            Op::Read { .. }
                | Op::Write { .. }
                | Op::Sync
                | Op::Fence
                | Op::SyncRange { .. }
                | Op::Allocate { .. }
                | Op::Truncate { .. }
                | Op::Timer { .. }
                | Op::Event
        )
    }

    pub(crate) fn is_write(self) -> bool {
        matches!(self, Op::Write { .. } | Op::Allocate { .. } | Op::Truncate { .. })
    }

    /// Does it move bytes between a file and the request's memory, and nothing else?
    pub(crate) fn moves_bytes(self) -> bool {
        self.fills_memory() || matches!(self, Op::Write { .. } | Op::Send { .. })
    }

    /// Does it write into the request's memory?
    pub(crate) fn fills_memory(self) -> bool {
        matches!(self, Op::Read { .. } | Op::Receive { .. })
    }

    /// Is it about a socket, and nothing else?
    pub(crate) fn is_network(self) -> bool {
        matches!(self, Op::Accept | Op::Connect | Op::Receive { .. } | Op::Send { .. })
    }
}

/// One operation to be carried out: on what, with which memory, how.
#[derive(Debug)]
pub struct Request {
    /// What.
    pub op: Op,
    /// On which file; only timers and events have none.
    pub file: Option<File>,
    /// Where a transfer goes; nothing else has one.
    pub target: Option<File>,
    /// From or into which memory; comes back with the completion.
    pub memory: Memory,
    /// How.
    pub policy: Policy,
    /// The caller's name for it, handed back untouched.
    pub tag: u64,
}

impl Request {
    /// A read of `memory.len()` bytes at `offset`.
    #[must_use]
    pub fn read(file: &File, offset: u64, memory: impl Into<Memory>, policy: Policy) -> Request {
        let offset = Some(offset);
        Request {
            op: Op::Read { offset },
            file: Some(file.clone()),
            target: None,
            memory: memory.into(),
            policy,
            tag: 0,
        }
    }

    /// A write of `memory.len()` bytes at `offset`.
    #[must_use]
    pub fn write(file: &File, offset: u64, memory: impl Into<Memory>, policy: Policy) -> Request {
        let offset = Some(offset);
        Request {
            op: Op::Write { offset },
            file: Some(file.clone()),
            target: None,
            memory: memory.into(),
            policy,
            tag: 0,
        }
    }

    /// Any operation without memory.
    #[must_use]
    pub fn bare(op: Op, file: Option<&File>, policy: Policy) -> Request {
        Request {
            op,
            file: file.cloned(),
            target: None,
            memory: Memory::None,
            policy,
            tag: 0,
        }
    }

    /// A read of what a stream has, at most `memory.len()` bytes.
    #[must_use]
    pub fn read_stream(stream: &File, memory: impl Into<Memory>) -> Request {
        Request::stream(Op::Read { offset: None }, stream, memory)
    }

    /// A write of the whole memory to a stream.
    #[must_use]
    pub fn write_stream(stream: &File, memory: impl Into<Memory>) -> Request {
        Request::stream(Op::Write { offset: None }, stream, memory)
    }

    /// The next connection of a listening socket.
    #[must_use]
    pub fn accept(listener: &File) -> Request {
        Request::bare(Op::Accept, Some(listener), Policy::kernel())
    }

    /// A connection of `socket` to an encoded address.
    #[must_use]
    pub fn connect(socket: &File, address: impl Into<Memory>) -> Request {
        Request::stream(Op::Connect, socket, address)
    }

    /// What a socket has, at most `memory.len()` bytes.
    #[must_use]
    pub fn receive(socket: &File, memory: impl Into<Memory>) -> Request {
        Request::stream(Op::Receive { flags: 0 }, socket, memory)
    }

    /// The whole memory, into a socket.
    #[must_use]
    pub fn send(socket: &File, memory: impl Into<Memory>) -> Request {
        Request::stream(Op::Send { flags: 0 }, socket, memory)
    }

    /// A copy of `len` bytes of `file` from `offset` on to `target`, a socket or pipe, in windows of the memory's size.
    #[must_use]
    pub fn transfer(
        file: &File,
        offset: u64,
        len: u64,
        target: &File,
        window: impl Into<Memory>,
        policy: Policy,
    ) -> Request {
        Request {
            op: Op::Transfer { offset, len },
            file: Some(file.clone()),
            target: Some(target.clone()),
            memory: window.into(),
            policy,
            tag: 0,
        }
    }

    /// An event that somebody will signal.
    #[must_use]
    pub fn event() -> Request {
        Request::bare(Op::Event, None, Policy::kernel())
    }

    fn stream(op: Op, stream: &File, memory: impl Into<Memory>) -> Request {
        Request {
            op,
            file: Some(stream.clone()),
            target: None,
            memory: memory.into(),
            policy: Policy::kernel(),
            tag: 0,
        }
    }

    /// A sync that makes completed writes durable as far as `durability` says.
    #[must_use]
    pub fn sync(file: &File, durability: Durability) -> Request {
        Request::bare(Op::Sync, Some(file), Policy::direct().durable(durability))
    }

    /// A sync that starts by itself when every write submitted to the file before it has ended.
    #[must_use]
    pub fn fence(file: &File, durability: Durability) -> Request {
        Request::bare(Op::Fence, Some(file), Policy::direct().durable(durability))
    }

    /// Makes a range read as zeros, and keeps its space: `EOPNOTSUPP` where the file system cannot. On a device it always works:
    /// the kernel writes zeros where the device knows nothing better.
    #[must_use]
    pub fn zero(file: &File, offset: u64, len: u64, durability: Durability) -> Request {
        Request::space(file, offset, len, Space::Zero, durability)
    }

    /// Gives the space of a range back. It reads as zeros from then on, also on a device: one that cannot promise that says
    /// `EOPNOTSUPP`. Never makes a file longer.
    #[must_use]
    pub fn discard(file: &File, offset: u64, len: u64, durability: Durability) -> Request {
        Request::space(file, offset, len, Space::Discard, durability)
    }

    /// Sets space aside for a range; what is there stays, and what is behind the end of a file makes it longer.
    #[must_use]
    pub fn reserve(file: &File, offset: u64, len: u64, durability: Durability) -> Request {
        Request::space(file, offset, len, Space::Reserve, durability)
    }

    /// Makes a regular file so long, shorter or longer: `EINVAL` on anything else, and on a file that was opened for reading.
    #[must_use]
    pub fn truncate(file: &File, len: u64, durability: Durability) -> Request {
        Request::bare(Op::Truncate { len }, Some(file), Policy::direct().durable(durability))
    }

    fn space(file: &File, offset: u64, len: u64, space: Space, durability: Durability) -> Request {
        let op = Op::Allocate { offset, len, space };
        Request::bare(op, Some(file), Policy::direct().durable(durability))
    }

    /// The same with this tag.
    #[must_use]
    pub fn tagged(mut self, tag: u64) -> Request {
        self.tag = tag;
        self
    }
}

/// Names a request in flight. A stale one is an error, never another's result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RequestId {
    pub(crate) slot: u32,
    /// How often the slot had been used before: never the same again, as 32 bits would be after an hour of a busy slot.
    pub(crate) generation: u64,
}

impl RequestId {
    /// What the kernel calls it while it is in flight; [`Slots::named`](crate::slot::Slots::named) finds the id again. It
    /// needs no more of the generation: of the requests in flight no two have the same slot.
    pub(crate) fn to_bits(self) -> u64 {
        self.generation << 32 | u64::from(self.slot)
    }
}

/// How long a turn may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until `count` requests have completed, the deadline has passed, or the doorbell rings.
    Until {
        /// How many completions to wait for.
        count: u32,
        /// Unless zero: after this long, one completion is enough.
        min_wait: Duration,
        /// Engine time to give up at.
        deadline: Option<Time>,
    },
}

impl Wait {
    /// Until one request has completed.
    #[must_use]
    pub fn one() -> Wait {
        Wait::for_count(1)
    }

    /// Until `count` requests have completed.
    #[must_use]
    pub fn for_count(count: u32) -> Wait {
        Wait::Until {
            count,
            min_wait: Duration::ZERO,
            deadline: None,
        }
    }
}
