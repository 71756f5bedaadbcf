//! What the service manager is told: sd_notify(3), a datagram to the socket that `NOTIFY_SOCKET` names.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;

use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

/// Who wants to know, if anybody does.
#[derive(Clone, Debug)]
pub(super) struct Manager(Option<OsString>);

impl Manager {
    pub(super) fn of_environment() -> Manager {
        Manager(std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()))
    }

    /// Tells it a line, such as `READY=1`.
    pub(super) fn tell(&self, line: &str) -> io::Result<()> {
        let Some(name) = &self.0 else { return Ok(()) };
        let to = match name.as_bytes() {
            // A name without a file.
            [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
            path => SocketAddrUnix::new(path)?,
        };
        // Nobody waits for a manager that does not listen.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = baio_process::descriptor::socket(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        rustix::net::sendto(socket, line.as_bytes(), SendFlags::NOSIGNAL, &to)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    use super::*;

    fn hears(socket: &UnixDatagram, name: &str) {
        Manager(Some(name.into())).tell("READY=1").unwrap();
        let mut bytes = [0; 64];
        let len = socket.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..len], b"READY=1");
    }

    #[test]
    fn the_manager_hears_it_by_path_and_by_name() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("notify");
        hears(&UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap());
        let name = format!("baio-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        hears(&UnixDatagram::bind_addr(&address).unwrap(), &format!("@{name}"));
    }

    #[test]
    fn nobody_need_listen() {
        assert!(Manager(None).tell("READY=1").is_ok());
        assert!(Manager(Some("/nowhere/at/all".into())).tell("READY=1").is_err());
    }
}
