//! Which threads may use an engine: what it is started with, and what its backend must know.

/// Which threads may use an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Affinity {
    /// The one that started it, which is fastest. In others it refuses requests and turns as
    /// [`OtherThread`](crate::Error::OtherThread).
    #[default]
    OneThread,
    /// Any of them, one at a time: it may be moved, or be used under a lock.
    ///
    /// On uring the kernel then ends requests in the thread that has submitted them, when that makes its next system call, or
    /// by interrupting it: a blocking call there that io_uring knows nothing of may end with `EINTR`.
    AnyThread,
}
