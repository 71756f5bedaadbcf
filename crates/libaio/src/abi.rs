//! What a program shares with libaio: requests, events, and the live ring in its memory (libaio.h of 0.3.113, include/uapi/linux/aio_abi.h).

/// `struct iocb`: the caller fills it in, mostly by inline functions of libaio.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Iocb {
    /// Handed back with the event.
    pub data: u64,
    #[cfg(target_endian = "little")]
    /// Written by `io_submit`, looked at by `io_cancel`.
    pub key: u32,
    /// `RWF_*`.
    pub rw_flags: i32,
    #[cfg(target_endian = "big")]
    /// Written by `io_submit`, looked at by `io_cancel`.
    pub key: u32,
    /// `IO_CMD_*`.
    pub opcode: u16,
    /// Counts with `IOCB_FLAG_IOPRIO`.
    pub priority: i16,
    /// On what.
    pub fd: u32,
    /// Address of the bytes or of the list, or the events of a poll.
    pub buffer: u64,
    /// Bytes, or parts of the list.
    pub bytes: u64,
    /// First byte in the file.
    pub offset: i64,
    /// Must be 0.
    pub reserved: u64,
    /// `IOCB_FLAG_*`.
    pub flags: u32,
    /// The event fd, with `IOCB_FLAG_RESFD`.
    pub event_fd: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoEvent {
    /// The request's.
    pub data: u64,
    /// The address of the request.
    pub object: u64,
    /// A count, ready events, or a negated error number.
    pub result: i64,
    /// Always 0.
    pub result2: i64,
}

/// `struct aio_ring` (fs/aio.c), which programs know although no header has it: an `io_context_t` points at one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RingHeader {
    /// The kernel's name for it.
    pub id: u32,
    /// Places for events.
    pub nr: u32,
    /// The next event to be taken: moved by whoever takes it, in the library or not.
    pub head: u32,
    /// Where the next event goes: moved when it is there.
    pub tail: u32,
    /// [`RING_MAGIC`].
    pub magic: u32,
    /// 1.
    pub compat_features: u32,
    /// 0: a program may take events by itself.
    pub incompat_features: u32,
    /// Bytes of this.
    pub header_length: u32,
}

/// `AIO_RING_MAGIC`, fs/aio.c.
pub const RING_MAGIC: u32 = 0xa10a_10a1;

/// `IO_CMD_*` of libaio.h.
pub mod command {
    #![allow(missing_docs, reason = "named as there")]
    pub const PREAD: u16 = 0;
    pub const PWRITE: u16 = 1;
    pub const FSYNC: u16 = 2;
    pub const FDSYNC: u16 = 3;
    pub const POLL: u16 = 5;
    pub const NOOP: u16 = 6;
    pub const PREADV: u16 = 7;
    pub const PWRITEV: u16 = 8;
}

/// `IOCB_FLAG_RESFD`.
pub const FLAG_EVENT_FD: u32 = 1;
/// `IOCB_FLAG_IOPRIO`.
pub const FLAG_PRIORITY: u32 = 2;

const _: () = {
    assert!(size_of::<Iocb>() == 64 && size_of::<IoEvent>() == 32 && size_of::<RingHeader>() == 32);
    assert!(std::mem::offset_of!(Iocb, opcode) == 16 && std::mem::offset_of!(Iocb, fd) == 20);
    assert!(std::mem::offset_of!(Iocb, buffer) == 24 && std::mem::offset_of!(Iocb, event_fd) == 60);
};
