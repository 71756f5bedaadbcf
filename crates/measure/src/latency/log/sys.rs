//! The calls of the peers without a thread: Linux native AIO (io_submit(2), io_getevents(2)) and POSIX AIO (aio_write(3), aio_suspend(3)).
//!
//! A batch is kept here from the call that posts it to the one that tells its end, and whoever is dropped waits for all: so no buffer is
//! given back while the kernel, or a thread of glibc's, reads it.

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use super::stream::Batch;

/// Writes under way at most.
pub(super) const WINDOW: usize = 2;

/// A batch whose write has ended, and how many bytes were written.
pub(super) type Ended = (Batch, io::Result<usize>);

/// A way to post a write and to learn of its end.
pub(super) trait Calls {
    /// Posts the first `len` bytes that a batch has, in whole blocks. No more than [`WINDOW`] at a time.
    fn post(&mut self, batch: Batch, block: u64, place: u64) -> io::Result<()>;

    /// Sleeps until a write has ended, or for so long; the writes that have.
    fn ended(&mut self, timeout: Option<Duration>) -> io::Result<Vec<Ended>>;
}

fn open(path: &Path) -> Result<File, String> {
    let flags = libc::O_DIRECT | libc::O_DSYNC;
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path);
    file.map_err(|error| format!("open: {error}"))
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(time.subsec_nanos() as i32),
    }
}

/// Linux native AIO, without a library.
pub(super) struct Native {
    id: libc::c_ulong,
    file: File,
    held: [Option<Batch>; WINDOW],
}

/// `struct iocb` (include/uapi/linux/aio_abi.h), little-endian.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    operation: u64,
    result: i64,
    result2: i64,
}

const _: () = assert!(size_of::<Iocb>() == 64 && size_of::<Event>() == 32);

const PWRITE: u16 = 1;

impl Native {
    pub(super) fn new(path: &Path) -> Result<Native, String> {
        let file = open(path)?;
        let mut id: libc::c_ulong = 0;
        // SAFETY: the pointer is valid for the call, and what it points at is zero, as the kernel wants it.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, WINDOW as libc::c_long, &raw mut id) };
        if made < 0 {
            return Err(format!("io_setup: {}", io::Error::last_os_error()));
        }
        Ok(Native {
            id,
            file,
            held: [const { None }; WINDOW],
        })
    }
}

impl Calls for Native {
    fn post(&mut self, mut batch: Batch, block: u64, place: u64) -> io::Result<()> {
        let slot = free(&self.held)?;
        let bytes = batch.blocks(block);
        let mut operation = Iocb {
            data: slot as u64,
            opcode: PWRITE,
            fd: self.file.as_raw_fd() as u32,
            buffer: bytes.as_ptr() as u64,
            bytes: bytes.len() as u64,
            offset: place as i64,
            ..Iocb::default()
        };
        let mut list = [&raw mut operation];
        // SAFETY: the list has one operation, which the kernel copies. Its buffer stays where it is, in the arena of the batch, which
        // is held until the end of the write is known.
        let posted = unsafe { libc::syscall(libc::SYS_io_submit, self.id, 1 as libc::c_long, list.as_mut_ptr()) };
        if posted != 1 {
            return Err(io::Error::last_os_error());
        }
        self.held[slot] = Some(batch);
        Ok(())
    }

    fn ended(&mut self, timeout: Option<Duration>) -> io::Result<Vec<Ended>> {
        let mut events = [Event::default(); WINDOW];
        let timeout = timeout.map(timespec);
        let until = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: there is room for as many events as are asked for, and the time is valid for the call.
        let got = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.id,
                1 as libc::c_long,
                WINDOW as libc::c_long,
                events.as_mut_ptr(),
                until,
            )
        };
        if got < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted {
                Ok(Vec::new())
            } else {
                Err(error)
            };
        }
        let events = events.into_iter().take(got as usize);
        let ended = events.filter_map(|event| {
            let result = match event.result {
                0.. => Ok(event.result as usize),
                errno => Err(io::Error::from_raw_os_error(-errno as i32)),
            };
            Some((self.held.get_mut(event.data as usize)?.take()?, result))
        });
        Ok(ended.collect())
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and nobody uses it any more. The call waits for what is under way, so the batches may go behind it.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
    }
}

/// POSIX AIO as glibc does it, by threads of its own.
pub(super) struct Posix {
    file: File,
    held: [Option<Batch>; WINDOW],
    /// glibc keeps pointers to them while they are under way, so they stay where they are.
    blocks: [Box<libc::aiocb>; WINDOW],
}

impl Posix {
    pub(super) fn new(path: &Path) -> Result<Posix, String> {
        // SAFETY: all-zero is a valid `aiocb`.
        let block = || Box::new(unsafe { std::mem::zeroed::<libc::aiocb>() });
        Ok(Posix {
            file: open(path)?,
            held: [const { None }; WINDOW],
            blocks: [block(), block()],
        })
    }
}

impl Calls for Posix {
    fn post(&mut self, mut batch: Batch, block: u64, place: u64) -> io::Result<()> {
        let slot = free(&self.held)?;
        let bytes = batch.blocks(block);
        let control = &mut self.blocks[slot];
        // SAFETY: all-zero is a valid `aiocb`; nothing is under way with this one.
        **control = unsafe { std::mem::zeroed() };
        control.aio_fildes = self.file.as_raw_fd();
        control.aio_buf = bytes.as_ptr().cast_mut().cast();
        control.aio_nbytes = bytes.len();
        control.aio_offset = place as libc::off_t;
        control.aio_sigevent.sigev_notify = libc::SIGEV_NONE;
        // SAFETY: control block and buffer stay where they are until the end of the write is known: the one in its box, the other in
        // the arena of the batch, which is held. The buffer is only read.
        if unsafe { libc::aio_write(&raw mut **control) } != 0 {
            return Err(io::Error::last_os_error());
        }
        self.held[slot] = Some(batch);
        Ok(())
    }

    fn ended(&mut self, timeout: Option<Duration>) -> io::Result<Vec<Ended>> {
        let mut list = [std::ptr::null::<libc::aiocb>(); WINDOW];
        for ((entry, held), control) in list.iter_mut().zip(&self.held).zip(&self.blocks) {
            if held.is_some() {
                *entry = &raw const **control;
            }
        }
        let timeout = timeout.map(timespec);
        let until = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the list has control blocks that are under way, and null, which is passed over; the time is valid for the call.
        if unsafe { libc::aio_suspend(list.as_ptr(), WINDOW as i32, until) } != 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(Vec::new()),
                _ => Err(error),
            };
        }
        let mut ended = Vec::new();
        for (held, control) in self.held.iter_mut().zip(&mut self.blocks) {
            if held.is_none() {
                continue;
            }
            let control = &raw mut **control;
            // SAFETY: the control block was posted, and its result not taken.
            let errno = unsafe { libc::aio_error(control) };
            if errno == libc::EINPROGRESS {
                continue;
            }
            // SAFETY: its write has ended, and this is the one time that the result is taken.
            let bytes = unsafe { libc::aio_return(control) };
            let result = if errno == 0 {
                Ok(bytes as usize)
            } else {
                Err(io::Error::from_raw_os_error(errno))
            };
            ended.extend(held.take().map(|batch| (batch, result)));
        }
        Ok(ended)
    }
}

impl Drop for Posix {
    fn drop(&mut self) {
        while self.held.iter().any(Option::is_some) {
            if self.ended(None).is_err() {
                // Nothing tells when they end: what they use is left alone for good.
                std::mem::forget(std::mem::take(&mut self.held));
                self.blocks.iter_mut().for_each(|block| {
                    // SAFETY: all-zero is a valid `aiocb`.
                    let fresh = Box::new(unsafe { std::mem::zeroed() });
                    std::mem::forget(std::mem::replace(block, fresh));
                });
            }
        }
    }
}

fn free(held: &[Option<Batch>; WINDOW]) -> io::Result<usize> {
    let free = held.iter().position(Option::is_none);
    free.ok_or_else(|| io::Error::other("more writes than the window"))
}
