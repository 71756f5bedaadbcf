//! The broker's socket and those of its clients: who is there, messages in, messages out.
//!
//! Nothing here waits. A message is received with recv(2), which throws descriptors away that came with it: no client can make the
//! broker hold one. Those of messages that are not read would be open all the same, so none may be sent where the system can say so
//! ([`groups::refuse_rights`]), and what is never read is thrown away ([`stop_hearing`]).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use baio_engine::{Errno, SetupError};
use baio_words::session::DOORBELL;
use baio_words::{Identity, NO_GROUP};
use rustix::event::{PollFd, PollFlags, epoll};
use rustix::fs::{AtFlags, CWD, FileType, Mode};
use rustix::io::Errno as Said;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType,
};

use super::groups;

/// A socket that clients connect to.
#[derive(Debug)]
pub struct Listener {
    pub(super) fd: OwnedFd,
    /// Where it was bound by us: removed at the end, if it is still ours.
    bound: Option<Bound>,
}

#[derive(Debug)]
struct Bound {
    path: PathBuf,
    inode: (u64, u64),
}

/// Connections that wait to be accepted, as many as the system allows.
const BACKLOG: i32 = 4096;

impl Listener {
    /// Binds `path`, of which nothing may be there but the socket of a broker that has ended. `mode` says who may connect.
    /// There is a moment at which it is not there, and none at which somebody else may connect to it.
    ///
    /// # Errors
    /// Somebody serves there; something else is there; or what the system said.
    pub fn bind(path: &Path, mode: u32) -> Result<Listener, SetupError> {
        let failed = |errno: Errno| SetupError::new("listen on", path.display().to_string(), errno);
        clear(path)?;
        // Bound under another name and shown when its mode is right. The name is ours: nobody else of this process binds here.
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}", std::process::id()));
        let beside = PathBuf::from(beside);
        let make = || -> Result<Listener, Errno> {
            let kind = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let fd = baio_process::descriptor::socket(AddressFamily::UNIX, SocketType::SEQPACKET, kind, None)?;
            let _ = rustix::fs::unlink(&beside);
            baio_process::descriptor::bind(&fd, &beside, Mode::from_raw_mode(mode))?;
            groups::refuse_rights(fd.as_fd());
            rustix::net::listen(&fd, BACKLOG)?;
            let inode = inode_of(&beside)?;
            rustix::fs::rename(&beside, path)?;
            let path = path.to_owned();
            let bound = Some(Bound { path, inode });
            Ok(Listener { fd, bound })
        };
        make().map_err(|errno| {
            let _ = rustix::fs::unlink(&beside);
            failed(errno)
                .need("a directory that may be written, and a path of at most 90 bytes")
                .cure("choose another --socket")
        })
    }

    /// A socket that somebody else has bound and hands over, as systemd does.
    ///
    /// # Errors
    /// It is no listening Unix socket of sequenced packets.
    pub fn adopt(fd: OwnedFd) -> Result<Listener, SetupError> {
        let failed = |errno: Errno| {
            SetupError::new("serve on", "the socket that was handed over".into(), errno)
                .need("a listening Unix socket of type SOCK_SEQPACKET")
                .cure("in a unit: ListenSequentialPacket=PATH")
        };
        let looked = || -> Result<bool, Said> {
            let is_packets = rustix::net::sockopt::socket_type(&fd)? == SocketType::SEQPACKET;
            let is_unix = rustix::net::sockopt::socket_domain(&fd)? == AddressFamily::UNIX;
            let listens = rustix::net::sockopt::socket_acceptconn(&fd)?;
            rustix::io::ioctl_fionbio(&fd, true)?;
            Ok(is_packets && is_unix && listens)
        };
        match looked() {
            Ok(true) => {
                groups::refuse_rights(fd.as_fd());
                Ok(Listener { fd, bound: None })
            }
            Ok(false) => Err(failed(Errno::EPROTOTYPE)),
            Err(errno) => Err(failed(errno.into())),
        }
    }

    /// The next connection, if one waits.
    ///
    /// # Errors
    /// What accept(2) said.
    pub(super) fn accept(&self) -> Result<Option<OwnedFd>, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match baio_process::descriptor::accept(&self.fd, flags) {
            Ok(fd) => {
                // Who came before an adopted socket refused any may have sent some already.
                groups::refuse_rights(fd.as_fd());
                Ok(Some(fd))
            }
            // Who has left again is nobody.
            Err(Said::AGAIN | Said::INTR | Said::CONNABORTED) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(Bound { path, inode }) = &self.bound {
            // A successor may have bound the path already.
            if inode_of(path) == Ok(*inode) {
                let _ = rustix::fs::unlink(path);
            }
        }
    }
}

fn inode_of(path: &Path) -> Result<(u64, u64), Errno> {
    let stat = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Is the path free for us? A socket that nobody listens on is.
fn clear(path: &Path) -> Result<(), SetupError> {
    let name = || path.display().to_string();
    let stat = match rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Said::NOENT) => return Ok(()),
        Err(errno) => return Err(SetupError::new("look at", name(), errno.into())),
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        let error = SetupError::new("listen on", name(), Errno::EEXIST);
        return Err(error
            .need("a path that does not exist yet")
            .cure("choose another --socket, or remove what is there"));
    }
    match connect(path) {
        Err(Said::CONNREFUSED) => Ok(()),
        _ => Err(SetupError::new("listen on", name(), Errno::EADDRINUSE)
            .need("a path at which no broker serves")
            .cure("end the broker that serves there, or choose another --socket")),
    }
}

fn connect(path: &Path) -> Result<OwnedFd, Said> {
    let kind = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = baio_process::descriptor::socket(AddressFamily::UNIX, SocketType::SEQPACKET, kind, None)?;
    rustix::net::connect(&fd, &SocketAddrUnix::new(path.as_os_str().as_bytes())?)?;
    Ok(fd)
}

/// What the kernel shows for all users, and for all groups, that this process's user namespace does not know; `None` where it knows all of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unknown {
    user: Option<u32>,
    group: Option<u32>,
}

impl Unknown {
    /// Read once, while there are descriptors for it: clients can use them up.
    pub(super) fn read() -> Unknown {
        Unknown {
            user: (!knows_all("uid_map")).then(|| stand_in("overflowuid")),
            group: (!knows_all("gid_map")).then(|| stand_in("overflowgid")),
        }
    }

    /// Who is at the other end, without the groups beside its own ([`Unknown::groups_of`]): the kernel's word, as this process's user namespace
    /// sees it.
    ///
    /// # Errors
    /// `EACCES` for a user that this namespace does not know: all of those look alike, and so does `nobody` where there are such.
    pub(super) fn peer(self, socket: BorrowedFd<'_>) -> Result<Identity, Errno> {
        let credentials = rustix::net::sockopt::socket_peercred(socket)?;
        let (uid, gid) = (credentials.uid.as_raw(), credentials.gid.as_raw());
        if uid == u32::MAX || Some(uid) == self.user {
            return Err(Errno::EACCES);
        }
        Ok(Identity::new(uid, known(gid, self.group)))
    }

    /// The other groups that it is in. A list may have 256 KiB, so it is asked for when its user has a place.
    ///
    /// # Errors
    /// What getsockopt(2) said.
    pub(super) fn groups_of(self, socket: BorrowedFd<'_>) -> Result<Vec<u32>, Errno> {
        let mut groups = groups::of_peer(socket)?;
        groups.retain(|gid| known(*gid, self.group) != NO_GROUP);
        Ok(groups)
    }
}

/// A group as the kernel shows it, where all that this process's user namespace does not know are shown as `unknown`: members of one of those
/// are not members of the others.
fn known(gid: u32, unknown: Option<u32>) -> u32 {
    match Some(gid) == unknown {
        true => NO_GROUP,
        false => gid,
    }
}

/// What the kernel shows for users or groups that a namespace does not know (`/proc/sys/kernel/overflowuid`, `overflowgid`).
fn stand_in(name: &str) -> u32 {
    let told = std::fs::read_to_string(Path::new("/proc/sys/kernel").join(name));
    told.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(65534)
}

/// Does this process's user namespace know every user or group, as the machine's own does (`/proc/self/uid_map`, `gid_map`)? Then none is shown
/// as another.
fn knows_all(map: &str) -> bool {
    let told = std::fs::read_to_string(Path::new("/proc/self").join(map));
    told.is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
}

/// A descriptor to be given up when there is no other.
pub(super) fn spare() -> Option<OwnedFd> {
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    baio_process::descriptor::open("/", flags, Mode::empty()).ok()
}

/// What a socket had to say.
pub(super) enum Heard {
    /// A message, or a doorbell: so many bytes.
    Message(usize),
    /// Nothing now.
    Nothing,
    /// The other end has gone.
    Gone,
}

pub(super) fn receive(socket: BorrowedFd<'_>, into: &mut [u8]) -> Heard {
    match rustix::net::recv(socket, &mut *into, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
        Ok((_, 0)) => Heard::Gone,
        Ok((_, len)) => Heard::Message(len),
        Err(Said::AGAIN | Said::INTR) => Heard::Nothing,
        Err(_) => Heard::Gone,
    }
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Whole,
    /// The other end has not read what it has.
    Full,
    /// As many of our descriptors are under way to clients as may be. Those of connections that have ended count too.
    TooMany,
    Gone,
}

/// Sends one message, with a descriptor if there is one.
pub(super) fn send(socket: BorrowedFd<'_>, message: &[u8], with: Option<BorrowedFd<'_>>) -> Sent {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = match with {
        None => rustix::net::send(socket, message, flags),
        Some(fd) => {
            let fds = [fd];
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            control.push(SendAncillaryMessage::ScmRights(&fds));
            rustix::net::sendmsg(socket, &[std::io::IoSlice::new(message)], &mut control, flags)
        }
    };
    match sent {
        Ok(_) => Sent::Whole,
        // Or no memory: the other end has to read some.
        Err(Said::AGAIN | Said::INTR | Said::NOBUFS | Said::NOMEM) => Sent::Full,
        Err(Said::TOOMANYREFS) => Sent::TooMany,
        Err(_) => Sent::Gone,
    }
}

/// Tells the other end that the session is over: by an empty datagram, which looks like the end to who receives it. The direction to it stays
/// open, so that one end of the socket tells when the other one is closed ([`is_closed`]): our half shut and theirs would look the same. False:
/// there is no room for it before the other end has read something.
pub(super) fn say_end(socket: BorrowedFd<'_>) -> bool {
    send(socket, &[], None) != Sent::Full
}

/// Nothing more is heard of the other end, whose sends fail from now on. What it has sent is thrown away, with the descriptors in it: if that very
/// end is among them, it is open for as long as it lies here, whoever else has closed it.
pub(super) fn stop_hearing(socket: BorrowedFd<'_>) {
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Read);
    throw_away(socket);
}

/// Reads all that has come, for nobody. No more can come, and a socket holds little.
fn throw_away(socket: BorrowedFd<'_>) {
    // An empty message reads as the end does. Whose sender is asked for has that with it, and no room for it here.
    let _ = rustix::net::sockopt::set_socket_passcred(socket, true);
    let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    let mut has_failed = false;
    loop {
        match rustix::net::recvmsg(socket, &mut [], &mut RecvAncillaryBuffer::default(), flags) {
            Ok(read) if read.bytes > 0 || read.flags.contains(ReturnFlags::CTRUNC) => {}
            Ok(_) | Err(Said::AGAIN) => break,
            Err(Said::INTR) => {}
            // That the other end has gone is said once, before what it has sent.
            Err(_) if !has_failed => has_failed = true,
            Err(_) => break,
        }
    }
    let _ = rustix::net::sockopt::set_socket_passcred(socket, false);
}

/// Has the other side closed its end, so that nothing of what it was sent is there any more? Who shuts down what it receives by and keeps its
/// end looks alike to poll(2), and has what it has not read.
pub(super) fn is_closed(socket: BorrowedFd<'_>) -> bool {
    shows(socket, PollFlags::empty(), PollFlags::HUP | PollFlags::ERR) && !groups::has_unread(socket)
}

/// Of each of these whether [`is_closed`] may say so: it is asked for all at once.
pub(super) fn closed<'a>(sockets: &mut dyn Iterator<Item = BorrowedFd<'a>>) -> Vec<bool> {
    let mut polled: Vec<_> = sockets
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::empty()))
        .collect();
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let is_told = rustix::event::poll(&mut polled, Some(&now)).is_ok();
    let is_closed = |polled: &PollFd<'_>| is_told && polled.revents().intersects(PollFlags::HUP | PollFlags::ERR);
    polled.iter().map(is_closed).collect()
}

/// Does the other side send nothing more?
pub(super) fn is_half_closed(socket: BorrowedFd<'_>) -> bool {
    shows(socket, PollFlags::RDHUP, PollFlags::RDHUP)
}

/// Does the socket show any of these, if it is asked for so much?
fn shows(socket: BorrowedFd<'_>, asked: PollFlags, any_of: PollFlags) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(socket, asked)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().intersects(any_of)
}

/// Nothing more goes either way. Who hangs up and leaves anything unread resets the connection, and the other end is told that before
/// it can read what it was sent; so all of it is read first, and thrown away.
pub(super) fn hang_up(socket: BorrowedFd<'_>) {
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
    throw_away(socket);
}

/// Wakes whoever sleeps on the other end. One that has messages to read wakes by those.
pub(super) fn ring(socket: BorrowedFd<'_>) {
    let _ = send(socket, &DOORBELL, None);
}

/// A socket and its other end, for whoever a handle is handed on to.
///
/// # Errors
/// What socketpair(2) said.
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) =
        baio_process::descriptor::socket_pair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    groups::refuse_rights(ours.as_fd());
    Ok((ours, theirs))
}

/// All sockets of the broker, for one poll of the engine.
pub(super) struct Set {
    fd: OwnedFd,
    events: Vec<epoll::Event>,
}

/// Sockets that are told of in one round: all of them, so that none is hidden behind another user's. What is heard of each user is dealt out.
const EVENTS_MAX: usize = 4096;

impl Set {
    pub(super) fn new() -> Result<Set, SetupError> {
        let failed = |errno: Said| SetupError::new("make", "a set of sockets".into(), errno.into());
        Ok(Set {
            fd: baio_process::descriptor::epoll().map_err(failed)?,
            events: Vec::with_capacity(EVENTS_MAX),
        })
    }

    /// The descriptor that is readable when any of them has something.
    pub(super) fn descriptor(&self) -> Result<OwnedFd, SetupError> {
        let failed = |errno: Said| SetupError::new("copy", "a descriptor".into(), errno.into());
        baio_process::descriptor::duplicate(&self.fd).map_err(failed)
    }

    pub(super) fn add(&self, socket: &impl AsFd, word: u64) -> Result<(), Errno> {
        let data = epoll::EventData::new_u64(word);
        Ok(epoll::add(&self.fd, socket, data, epoll::EventFlags::IN)?)
    }

    /// Tells of this one when the other side does something with its end or reads from it, once for each time.
    pub(super) fn add_ending(&self, socket: &impl AsFd, word: u64) -> Result<(), Errno> {
        let data = epoll::EventData::new_u64(word);
        let flags = epoll::EventFlags::RDHUP | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        Ok(epoll::add(&self.fd, socket, data, flags)?)
    }

    /// What is waited for on it from now on. For who has to read first, that it hangs up too: that is not read then.
    pub(super) fn wait_for(&self, socket: &impl AsFd, word: u64, readable: bool, writable: bool) {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, readable);
        flags.set(epoll::EventFlags::OUT | epoll::EventFlags::RDHUP, writable);
        let _ = epoll::modify(&self.fd, socket, epoll::EventData::new_u64(word), flags);
    }

    pub(super) fn remove(&self, socket: &impl AsFd) {
        let _ = epoll::delete(&self.fd, socket);
    }

    /// The words of those that have something now, some of them at least.
    pub(super) fn ready(&mut self, into: &mut Vec<u64>) {
        self.events.clear();
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let spare = rustix::buffer::spare_capacity(&mut self.events);
        if epoll::wait(&self.fd, spare, Some(&now)).is_ok() {
            into.extend(self.events.iter().map(|event| event.data.u64()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever is in a group that the broker's namespace does not know would be in all of those.
    #[test]
    fn a_group_that_is_not_known_is_none() {
        assert_eq!([known(7, Some(65534)), known(65534, Some(65534))], [7, NO_GROUP]);
        assert_eq!([known(7, None), known(65534, None)], [7, 65534]);
    }

    /// Where the kernel refuses any, it does so before the broker accepts: what is in its socket then would lie there with the rest unread.
    #[test]
    fn who_is_not_accepted_yet_sends_no_descriptors() {
        use baio_process::kernel::{Feature, lacking};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _listener = Listener::bind(&path, 0o600).unwrap();
        let (client, any) = (connect(&path).unwrap(), spare().unwrap());
        let is_lacking = lacking().any(|line| line.feature == Feature::RefusedRights);
        let expected = if is_lacking { Sent::Whole } else { Sent::Gone };
        assert_eq!(send(client.as_fd(), &[1], Some(any.as_fd())), expected);
    }
}
