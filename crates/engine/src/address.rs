//! Socket addresses as the kernel reads them.
//!
//! A connect request carries its address in its memory, like any other bytes: so the slot keeps it alive until the kernel
//! has read it, and requests without an address are no larger for it.

use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::error::Errno;
use crate::memory::{Arena, Memory};

/// Where a socket can be connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An internet address and port.
    Internet(SocketAddr),
    /// A Unix socket in the file system.
    Local(PathBuf),
}

/// `sizeof(sun_path)` (unix(7)), one of which is the closing zero.
const PATH_MAX: usize = 108;

impl Address {
    /// The bytes of the address, in memory for [`Request::connect`](crate::Request::connect).
    ///
    /// # Errors
    /// `ENAMETOOLONG` for a path of more than 107 bytes, `EINVAL` for one with a zero byte, `ENOMEM` when the arena is
    /// used up.
    pub fn encode(&self, arena: &std::sync::Arc<Arena>) -> Result<Memory, Errno> {
        let bytes = self.bytes()?;
        let mut buffer = arena.buffer(bytes.len()).ok_or(Errno::ENOMEM)?;
        buffer.copy_from_slice(&bytes);
        Ok(buffer.into())
    }

    fn bytes(&self) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::with_capacity(2 + PATH_MAX);
        match self {
            // struct sockaddr_in (ip(7)): family, port and address in network order, 8 bytes of padding.
            Address::Internet(SocketAddr::V4(to)) => {
                bytes.extend((libc::AF_INET as u16).to_ne_bytes());
                bytes.extend(to.port().to_be_bytes());
                bytes.extend(to.ip().octets());
                bytes.extend([0; 8]);
            }
            // struct sockaddr_in6 (ipv6(7)): family, port, flow information, address, scope.
            Address::Internet(SocketAddr::V6(to)) => {
                bytes.extend((libc::AF_INET6 as u16).to_ne_bytes());
                bytes.extend(to.port().to_be_bytes());
                bytes.extend(to.flowinfo().to_ne_bytes());
                bytes.extend(to.ip().octets());
                bytes.extend(to.scope_id().to_ne_bytes());
            }
            Address::Local(path) => {
                let path = path.as_os_str().as_bytes();
                if path.len() >= PATH_MAX {
                    return Err(Errno::ENAMETOOLONG);
                }
                if path.contains(&0) || path.is_empty() {
                    return Err(Errno::EINVAL);
                }
                bytes.extend((libc::AF_UNIX as u16).to_ne_bytes());
                bytes.extend(path);
                bytes.push(0);
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_the_kernels() {
        let size = |to: &str| Address::Internet(to.parse().unwrap()).bytes().unwrap().len();
        assert_eq!(size("127.0.0.1:80"), size_of::<libc::sockaddr_in>());
        assert_eq!(size("[::1]:80"), size_of::<libc::sockaddr_in6>());
        let path = |len: usize| Address::Local("p".repeat(len).into()).bytes();
        assert_eq!(path(107).unwrap().len(), size_of::<libc::sockaddr_un>());
        assert_eq!(path(108), Err(Errno::ENAMETOOLONG));
        assert_eq!(path(0), Err(Errno::EINVAL));
    }
}
