//! What `rustix` has no call for: the supplementary groups of a peer, how much it has not read, and that it sends no descriptors.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

use baio_engine::Errno;
use baio_process::kernel::{self, Feature};

/// As many as a process can be in (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65536;

/// Of socket(7), as almost all architectures number it (`include/uapi/asm-generic/socket.h`).
const SO_PEERGROUPS: libc::c_int = 59;

/// The groups that whoever connected was in then (`SO_PEERGROUPS`, socket(7)).
///
/// # Errors
/// What getsockopt(2) said.
pub(super) fn of_peer(socket: BorrowedFd<'_>) -> Result<Vec<u32>, Errno> {
    let mut groups = vec![0_u32; 64];
    loop {
        let mut bytes = (groups.len() * size_of::<u32>()) as libc::socklen_t;
        // SAFETY: the kernel writes at most `bytes` bytes to `groups`, which has that many, and the length to `bytes`; both
        // live through the call.
        let said = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let errno = if said == 0 { None } else { Some(Errno::last()) };
        match errno {
            None => {
                groups.truncate(bytes as usize / size_of::<u32>());
                return Ok(groups);
            }
            Some(Errno::ERANGE) if groups.len() < GROUPS_MAX => groups.resize(groups.len() * 4, 0),
            Some(errno) => return Err(errno),
        }
    }
}

/// Of `include/uapi/asm-generic/socket.h` too.
const SO_PASSRIGHTS: libc::c_int = 83;

/// From now on a message to this socket that has descriptors with it is refused to whoever sends it (`EPERM`), if the system can do that; so is
/// one to a socket of who connects to it from now on.
///
/// A descriptor that lies unread in a socket is open. If it is the other end of that very socket, nobody ever hears that its owner has gone.
pub(super) fn refuse_rights(socket: BorrowedFd<'_>) {
    kernel::tried(Feature::RefusedRights, || {
        let off: libc::c_int = 0;
        // SAFETY: the kernel reads one integer from `off`, which lives through the call.
        let said = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_PASSRIGHTS,
                (&raw const off).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        said == 0
    });
}

/// Less than the least message takes of a socket. While the kernel wakes whoever waits for room it still counts a byte of what was just read.
const NO_MESSAGE: libc::c_int = 16;

/// Does the peer have anything to read that we have sent, and perhaps descriptors with it (`SIOCOUTQ`, unix(7))? Where the system does not
/// say, it does.
pub(super) fn has_unread(socket: BorrowedFd<'_>) -> bool {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one integer to `bytes`, which lives through the call.
    let said = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    said != 0 || bytes > NO_MESSAGE
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_was_not_read_is_known() {
        use std::io::{Read, Write};
        let (mut here, mut there) = UnixStream::pair().unwrap();
        assert!(!super::has_unread(here.as_fd()));
        here.write_all(b"word").unwrap();
        assert!(super::has_unread(here.as_fd()));
        there.read_exact(&mut [0; 4]).unwrap();
        assert!(!super::has_unread(here.as_fd()));
    }

    #[test]
    fn a_peer_of_this_process_is_in_its_groups() {
        let (here, _there) = UnixStream::pair().unwrap();
        let mut told = super::of_peer(here.as_fd()).unwrap();
        let mut ours: Vec<u32> = rustix::process::getgroups()
            .unwrap()
            .into_iter()
            .map(|gid| gid.as_raw())
            .collect();
        told.sort_unstable();
        ours.sort_unstable();
        assert_eq!(told, ours);
    }
}
