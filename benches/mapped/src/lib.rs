//! Memory that a broker has and its clients map: the calls that the experiment needs, and no more.
//!
//! | file | what it holds |
//! |---|---|
//! | `lib.rs` | memory, mappings, processes |
//! | `table.rs` | which page lies in which frame, for readers that take no lock |
//! | `fixed.rs` | the least of an io_uring: reads into registered memory |
//! | `main.rs` | the figures |
//! | `tests/` | the attacks, each with what it gets |

pub mod fixed;
pub mod table;

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a page, and of the frame that holds it.
pub const PAGE: usize = 4096;

/// What a call that answers -1 for a failure said.
pub fn check(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(answer)
    }
}

/// A new descriptor, or why there is none.
pub fn descriptor(answer: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the caller passes what open(2) or a call like it has just made; nobody else has it.
    check(answer).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A memfd, as the broker holds it.
pub struct Memory {
    fd: OwnedFd,
    pages: usize,
}

impl Memory {
    /// Of so many pages, for its owner alone (0600): as it comes, who has any descriptor of it could open it again to write.
    pub fn new(pages: usize) -> io::Result<Memory> {
        // SAFETY: the name is a string of C.
        let made = unsafe { libc::memfd_create(c"frames".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        let memory = Memory {
            fd: descriptor(made)?,
            pages,
        };
        memory.resize(pages)?;
        memory.permit(0o600)?;
        Ok(memory)
    }

    pub fn raw(&self) -> libc::c_int {
        self.fd.as_raw_fd()
    }

    pub fn permit(&self, mode: libc::mode_t) -> io::Result<()> {
        // SAFETY: a descriptor and a number.
        check(unsafe { libc::fchmod(self.raw(), mode) }).map(drop)
    }

    pub fn resize(&self, pages: usize) -> io::Result<()> {
        // SAFETY: a descriptor and a number.
        check(unsafe { libc::ftruncate(self.raw(), (pages * PAGE) as libc::off_t) }).map(drop)
    }

    pub fn seal(&self, seals: libc::c_int) -> io::Result<()> {
        // SAFETY: a descriptor and a number.
        check(unsafe { libc::fcntl(self.raw(), libc::F_ADD_SEALS, seals) }).map(drop)
    }

    /// Takes pages away from everybody; what is read there afterwards is zero.
    pub fn punch(&self, page: usize, pages: usize) -> io::Result<()> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let (at, len) = ((page * PAGE) as libc::off_t, (pages * PAGE) as libc::off_t);
        // SAFETY: a descriptor and numbers.
        check(unsafe { libc::fallocate(self.raw(), mode, at, len) }).map(drop)
    }

    /// What a client would be given: a descriptor that can only read.
    pub fn for_a_client(&self) -> io::Result<OwnedFd> {
        open_again(self.raw(), libc::O_RDONLY)
    }

    /// Pages that take memory now.
    pub fn present(&self) -> io::Result<u64> {
        // SAFETY: all zeroes is a value of the structure, which fstat fills.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        check(unsafe { libc::fstat(self.raw(), &raw mut found) })?;
        Ok(found.st_blocks as u64 * 512 / PAGE as u64)
    }

    /// The broker's own mapping of all of it.
    pub fn map(&self) -> io::Result<Map> {
        Map::of(
            self.raw(),
            self.pages,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
        )
    }
}

/// Opens what a descriptor names once more, through /proc.
pub fn open_again(fd: libc::c_int, flags: libc::c_int) -> io::Result<OwnedFd> {
    let path = std::ffi::CString::new(format!("/proc/self/fd/{fd}")).expect("no zero byte in it");
    // SAFETY: the path is a string of C.
    descriptor(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) })
}

/// Mapped pages. Others may change or take them at any moment, so their bytes are copied, never borrowed.
pub struct Map {
    base: NonNull<u8>,
    pages: usize,
}

// SAFETY: a mapping is an address range; all accesses to its bytes are copies by `copy_racing`, or atomic.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    pub fn of(fd: libc::c_int, pages: usize, protection: libc::c_int, flags: libc::c_int) -> io::Result<Map> {
        // SAFETY: a new mapping, where nothing else is.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), pages * PAGE, protection, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Map { base, pages })
    }

    /// A client's: shared, to be read.
    pub fn to_read(fd: &OwnedFd, pages: usize) -> io::Result<Map> {
        Map::of(fd.as_raw_fd(), pages, libc::PROT_READ, libc::MAP_SHARED)
    }

    pub fn private(pages: usize) -> io::Result<Map> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        Map::of(-1, pages, libc::PROT_READ | libc::PROT_WRITE, flags)
    }

    pub fn at(&self, page: usize) -> *mut u8 {
        assert!(page < self.pages);
        self.base.as_ptr().wrapping_add(page * PAGE)
    }

    pub fn void(&self, page: usize) -> *mut c_void {
        self.at(page).cast()
    }

    /// The word at its place of the mapping, if nobody touches it otherwise.
    pub fn word(&self, word: usize) -> &AtomicU64 {
        assert!(word < self.pages * PAGE / 8);
        // SAFETY: aligned, inside of the mapping, which lives as long as `self`; words are touched by atomics only.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().cast::<u64>().wrapping_add(word)) }
    }

    /// Copies a page out.
    pub fn read(&self, page: usize, to: &mut [u8; PAGE]) {
        // SAFETY: both are pages, of which only the other is ours alone.
        unsafe { copy_racing(self.at(page), to.as_mut_ptr()) };
    }

    /// Copies a page in. Only on memory that may be written.
    pub fn write(&self, page: usize, from: &[u8; PAGE]) {
        // SAFETY: both are pages, of which only the other is ours alone.
        unsafe { copy_racing(from.as_ptr(), self.at(page)) };
    }

    /// The first byte of a page.
    pub fn peek(&self, page: usize) -> u8 {
        // SAFETY: inside of the mapping; volatile, as it may change.
        unsafe { self.at(page).read_volatile() }
    }

    pub fn advise(&self, page: usize, pages: usize, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: pages of this mapping, to whose bytes there are no references.
        check(unsafe { libc::madvise(self.void(page), pages * PAGE, advice) }).map(drop)
    }

    pub fn protect(&self, page: usize, pages: usize, protection: libc::c_int) -> io::Result<()> {
        // SAFETY: as above.
        check(unsafe { libc::mprotect(self.void(page), pages * PAGE, protection) }).map(drop)
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by us, and nobody has a reference into it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.pages * PAGE) };
    }
}

/// Copies a page of which one side may be written at the same time by another process. What arrives may be torn.
///
/// # Safety
/// Both sides are mapped, for a page.
#[cfg(target_arch = "x86_64")]
pub unsafe fn copy_racing(from: *const u8, to: *mut u8) {
    // SAFETY: the caller's. Not a memcpy, since no Rust access may race; this one the compiler does not look into.
    unsafe {
        std::arch::asm!("rep movsb", inout("rcx") PAGE => _, inout("rsi") from => _, inout("rdi") to => _,
            options(nostack, preserves_flags));
    }
}

/// As above.
///
/// # Safety
/// Both sides are mapped, for a page, at multiples of 8.
#[cfg(not(target_arch = "x86_64"))]
pub unsafe fn copy_racing(from: *const u8, to: *mut u8) {
    let (from, to) = (from.cast::<u64>().cast_mut(), to.cast::<u64>());
    for word in 0..PAGE / 8 {
        // SAFETY: the caller's.
        let (from, to) = unsafe { (AtomicU64::from_ptr(from.add(word)), AtomicU64::from_ptr(to.add(word))) };
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Makes what was read before this call be read before whatever is read behind it.
pub fn reads_are_over() {
    std::sync::atomic::fence(Ordering::Acquire);
}

/// Another process. Killed and waited for when it is dropped.
pub struct Child {
    pid: libc::pid_t,
    /// A socket to it, with datagrams.
    pub socket: OwnedFd,
}

impl Child {
    /// Runs `work` in a new process, with the other end of the socket. What it returns is the status that it ends with.
    pub fn run(work: impl FnOnce(&OwnedFd) -> u8) -> io::Result<Child> {
        let mut ends = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: room for two descriptors.
        check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
        let [ours, its] = [descriptor(ends[0])?, descriptor(ends[1])?];
        // SAFETY: the child does nothing but `work`, which makes system calls, and ends by _exit. Of the locks that another
        // thread may hold at this moment it needs malloc's at most, which the C library sees to.
        match check(unsafe { libc::fork() })? {
            0 => {
                drop(ours);
                // SAFETY: nobody but the child asks that it die with its parent.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                let status = work(&its);
                // SAFETY: ends the process.
                unsafe { libc::_exit(status.into()) }
            }
            pid => Ok(Child { pid, socket: ours }),
        }
    }

    /// How it ended: its status, or minus the signal that killed it.
    pub fn end(self) -> io::Result<i32> {
        let mut status = 0;
        // SAFETY: our own child, once: `drop` is not run.
        let waited = check(unsafe { libc::waitpid(self.pid, &raw mut status, 0) });
        std::mem::forget(self);
        waited?;
        let signalled = libc::WIFSIGNALED(status);
        Ok(if signalled {
            -libc::WTERMSIG(status)
        } else {
            libc::WEXITSTATUS(status)
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: our own child, which nobody has waited for.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// Sends one byte.
pub fn say(socket: &OwnedFd) -> io::Result<()> {
    // SAFETY: one byte.
    let sent = unsafe { libc::send(socket.as_raw_fd(), b"!".as_ptr().cast(), 1, libc::MSG_NOSIGNAL) };
    check(sent as libc::c_int).map(drop)
}

/// Waits for one byte. False at the other side's end.
pub fn hear(socket: &OwnedFd) -> io::Result<bool> {
    let mut byte = [0_u8];
    // SAFETY: one byte.
    let got = unsafe { libc::recv(socket.as_raw_fd(), byte.as_mut_ptr().cast(), 1, 0) };
    check(got as libc::c_int).map(|got| got == 1)
}

/// Now, in ns.
pub fn now() -> u64 {
    // SAFETY: all zeroes is a value of the structure, which the call fills.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time);
        time
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
