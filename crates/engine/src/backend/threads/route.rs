//! Which part of a backend runs an iteration: one table, by the kind of file, the operation and the mode.
//!
//! | iteration | way |
//! |---|---|
//! | direct read or write at an offset, sync of a file or device | the kernel's own queue where there is one (`aio`), else the pool |
//! | any other read of a file or device, direct write | the pool's wide class: many wait for the device side by side |
//! | cached write, sync, range sync, allocation, truncation | the pool's narrow class: they wait for one another's locks and for memory |
//! | read and write of streams, accept, connect, receive, send | tried, and tried again when ready |
//! | poll | waits until ready |
//! | timer | waits for its moment |

use crate::device::Kind;
use crate::policy::Caching;
use crate::sys::Action;

/// Who runs an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The kernel, asynchronously by itself.
    Kernel,
    /// A worker thread.
    Pool(Class),
    /// The owner, without blocking, as soon as the stream is ready.
    Stream,
    /// Nobody: it waits for a time.
    Timer,
}

/// What workers are rationed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Waits for the device only, so the more the better.
    Wide,
    /// More of these at a time would only wait for each other.
    Narrow,
    /// On a stream that cannot be tried without blocking.
    Stream,
}

pub(crate) const CLASSES: usize = 3;

/// What a backend can leave to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Nothing.
    None,
    /// Direct transfers and syncs on files and devices.
    Direct,
}

pub(crate) fn route(kernel: Kernel, kind: Kind, caching: Caching, action: &Action) -> Way {
    let stream = kind == Kind::Stream;
    let direct = caching == Caching::Direct && !stream;
    match action {
        Action::Timer { .. } => Way::Timer,
        Action::Poll { .. } | Action::Accept | Action::Connect { .. } => Way::Stream,
        Action::Receive { .. } | Action::Send { .. } => Way::Stream,
        Action::Read { .. } | Action::Write { .. } if stream => Way::Stream,
        // A negative offset means the file's own position, which only readv(2) and writev(2) know.
        Action::Read { offset, .. } | Action::Write { offset, .. }
            if kernel == Kernel::Direct && direct && *offset >= 0 =>
        {
            Way::Kernel
        }
        Action::Sync { .. } if kernel == Kernel::Direct && !stream => Way::Kernel,
        Action::Read { .. } => Way::Pool(Class::Wide),
        Action::Write { .. } if direct => Way::Pool(Class::Wide),
        Action::Write { .. } | Action::Sync { .. } => Way::Pool(Class::Narrow),
        Action::SyncRange { .. } | Action::Allocate { .. } | Action::Truncate { .. } => Way::Pool(Class::Narrow),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Window;
    use crate::policy::Time;

    #[test]
    fn every_iteration_has_its_way() {
        let window = Window::Flat {
            pointer: std::ptr::null_mut(),
            len: 1,
        };
        let read = Action::Read { window, offset: 0 };
        let write = Action::Write { window, offset: 0 };
        let here = Action::Read { window, offset: -1 };
        let sync = Action::Sync { data_only: true };
        let (wide, narrow) = (Way::Pool(Class::Wide), Way::Pool(Class::Narrow));
        for kind in [Kind::Regular, Kind::Block] {
            let threads = |caching, action| route(Kernel::None, kind, caching, action);
            assert_eq!(threads(Caching::Direct, &read), wide);
            assert_eq!(threads(Caching::Direct, &write), wide);
            assert_eq!(threads(Caching::Kernel, &read), wide);
            assert_eq!(threads(Caching::Kernel, &write), narrow);
            assert_eq!(threads(Caching::Uncached, &write), narrow);
            assert_eq!(threads(Caching::Kernel, &sync), narrow);
            let aio = |caching, action| route(Kernel::Direct, kind, caching, action);
            assert_eq!(aio(Caching::Direct, &read), Way::Kernel);
            assert_eq!(aio(Caching::Direct, &write), Way::Kernel);
            assert_eq!(aio(Caching::Direct, &here), wide);
            assert_eq!(aio(Caching::Kernel, &read), wide);
            assert_eq!(aio(Caching::Kernel, &write), narrow);
            assert_eq!(aio(Caching::Kernel, &sync), Way::Kernel);
        }
        for kernel in [Kernel::None, Kernel::Direct] {
            let stream = |action| route(kernel, Kind::Stream, Caching::Direct, action);
            assert_eq!(stream(&here), Way::Stream);
            assert_eq!(stream(&sync), narrow);
            assert_eq!(stream(&Action::Accept), Way::Stream);
            assert_eq!(stream(&Action::Timer { at: Time(1) }), Way::Timer);
        }
    }
}
