//! Numbers for what the system says.

use std::fmt;

/// An error number of the system (`errno(3)`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

macro_rules! errnos {
    ($($name:ident)*) => {
        #[allow(missing_docs, reason = "the names are errno(3)'s")]
        impl Errno {
            $(pub const $name: Errno = Errno(libc::$name);)*

            /// The symbolic name, `"EIO"`; `"E?"` for a number that Linux does not define. Of two names of one number, the one in the
            /// manual pages of the I/O calls.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self.0 {
                    $(libc::$name => stringify!($name),)*
                    _ => "E?",
                }
            }
        }
    };
}

errnos! {
    EPERM ENOENT EINTR EIO ENXIO EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL
    ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EPIPE ERANGE ENAMETOOLONG ENOSYS ENODATA ETIME EOVERFLOW
    EOPNOTSUPP ETIMEDOUT ESTALE EDQUOT ECANCELED ELOOP EALREADY ENOBUFS EREMOTEIO EDEADLK ECHILD EHOSTUNREACH
    ENETUNREACH ECONNREFUSED ECONNRESET ECONNABORTED ENOTCONN EISCONN EINPROGRESS EADDRINUSE EADDRNOTAVAIL
    EAFNOSUPPORT ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOTEMPTY EILSEQ ESRCH E2BIG ENOEXEC ENOTBLK EMLINK EDOM
    ENOLCK EREMOTE ENOLINK EPROTO EBADMSG EREMCHG EUSERS ENOPROTOOPT EPROTONOSUPPORT ENETDOWN EHOSTDOWN EUCLEAN
    ENOMEDIUM EMEDIUMTYPE ENOKEY EOWNERDEAD ENOTRECOVERABLE EHWPOISON
}

impl Errno {
    /// From a positive error number.
    #[must_use]
    pub const fn from_raw(raw: i32) -> Errno {
        Errno(raw)
    }

    /// The positive error number.
    #[must_use]
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// What the calling thread's last system call left behind.
    #[must_use]
    pub fn last() -> Errno {
        Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// What the system said with an error of `std`.
    #[must_use]
    pub fn of(error: &std::io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl Errno {
    /// The kind that `std` has for this number.
    #[must_use]
    pub fn kind(self) -> std::io::ErrorKind {
        std::io::Error::from(self).kind()
    }
}

impl std::error::Error for Errno {}

impl From<Errno> for std::io::Error {
    /// As if the system had just said it: `raw_os_error` is the number.
    fn from(errno: Errno) -> std::io::Error {
        std::io::Error::from_raw_os_error(errno.0)
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Errno {
        Errno(errno.raw_os_error())
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = std::io::Error::from_raw_os_error(self.0).to_string();
        let text = text.split(" (os error").next().unwrap_or("");
        write!(f, "{} ({text})", self.name())
    }
}
