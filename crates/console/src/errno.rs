//! The names of the system's error numbers, as error codes print them (`ENOENT`, not 2).

/// Maps each listed constant of `libc` to its own name.
macro_rules! names {
    ($number:expr; $($name:ident)*) => {
        match $number {
            $(libc::$name => Some(stringify!($name)),)*
            _ => None,
        }
    };
}

/// The name of the error number `errno`; `None` for one that Linux does not define.
///
/// Numbers with two names appear once, under the name that the manual pages of the I/O calls use.
pub fn name(errno: i32) -> Option<&'static str> {
    names! { errno;
        EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT
        ENOTBLK EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG
        ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY
        ELOOP ENODATA ETIME EREMOTE ENOLINK EPROTO EBADMSG EOVERFLOW EREMCHG EILSEQ EUSERS ENOTSOCK
        EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT EOPNOTSUPP EAFNOSUPPORT
        EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH ECONNABORTED ECONNRESET ENOBUFS EISCONN
        ENOTCONN ETIMEDOUT ECONNREFUSED EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS ESTALE EUCLEAN
        EREMOTEIO EDQUOT ENOMEDIUM EMEDIUMTYPE ECANCELED ENOKEY EOWNERDEAD ENOTRECOVERABLE EHWPOISON
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_io_calls_return() {
        assert_eq!(name(libc::ENOENT), Some("ENOENT"));
        assert_eq!(name(libc::ENOSPC), Some("ENOSPC"));
        assert_eq!(name(libc::EOPNOTSUPP), Some("EOPNOTSUPP"));
    }

    #[test]
    fn does_not_invent_a_name() {
        assert_eq!(name(0), None);
        assert_eq!(name(-2), None);
        assert_eq!(name(4095), None);
    }
}
