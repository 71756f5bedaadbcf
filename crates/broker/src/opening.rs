//! A file is opened by a thread of its own: open(2) may wait for a device or a server, and whoever turns a core must not.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker, ready};

use baio_engine::{Doorbell, Errno, File, Kind, Memory, Open, SetupError};
use baio_storage::{Access, Core, Error, Fault, Handle, Result, SegmentOp, SegmentRequest, Ticket};

type Opened = Result<(File, Access)>;

/// A file that is being opened. Given up, it is closed as soon as it is open.
#[derive(Debug)]
pub struct Opening {
    state: Arc<Mutex<State>>,
    /// Cut to no bytes when it is open: by a request, which the page cache knows of.
    truncate: bool,
    cutting: Cell<Option<(Handle, Ticket)>>,
}

#[derive(Debug, Default)]
struct State {
    ended: Option<Opened>,
    waker: Option<Waker>,
}

impl Opening {
    /// Begins to open `path`. With `truncate` the file is cut to no bytes when it is open.
    pub(crate) fn begin(core: &Core, path: PathBuf, options: Open, truncate: bool) -> Opening {
        let state = Arc::new(Mutex::new(State::default()));
        let theirs = Arc::downgrade(&state);
        let doorbell = core.engine().doorbell();
        let name = baio_engine::path_name(&path);
        let work = move || {
            let opened = open(&path, &options);
            if let Some(state) = theirs.upgrade() {
                end(&state, opened, Some(&doorbell));
            }
        };
        let spawned = baio_process::thread::named("baio-open").start(work);
        if let Err(error) = spawned {
            let errno = Errno::from_raw(error.raw_os_error().unwrap_or(11));
            let error = SetupError::new("start", "a thread".into(), errno);
            let error = error.cure(baio_process::thread::CURE);
            end(&state, Err(Error::new("open", name, error)), None);
        }
        Opening {
            state,
            truncate,
            cutting: Cell::new(None),
        }
    }

    /// A handle on the file, once, when it is open and cut; else remembers whom to wake.
    pub(crate) fn poll(&self, core: &mut Core, waker: Option<Waker>) -> Poll<Result<Handle>> {
        let (handle, ticket) = match self.cutting.get() {
            Some(cutting) => cutting,
            None => {
                let (file, access) = ready!(self.opened(core, waker.clone()))?;
                // As O_TRUNC: it is for regular files, and means nothing to others.
                let truncate = self.truncate && file.kind() == Kind::Regular;
                let handle = core.add_file(file, access);
                if !truncate {
                    return Poll::Ready(Ok(handle));
                }
                let cut = SegmentRequest::new(handle, SegmentOp::Truncate { len: 0 }, Memory::None);
                let Ok(ticket) = core.start(cut) else {
                    core.close_handle(handle);
                    let fault = Fault::Io(baio_engine::Error::Full);
                    return Poll::Ready(Err(Error::new("truncate", "a file that was opened", fault)));
                };
                self.cutting.set(Some((handle, ticket)));
                (handle, ticket)
            }
        };
        let cut = ready!(core.poll(ticket, waker));
        self.cutting.set(None);
        let cut = cut.ok_or_else(|| Error::new("truncate", "a file that was opened", Fault::Stale));
        Poll::Ready(match cut.and_then(|outcome| outcome.result) {
            Ok(_) => Ok(handle),
            Err(error) => {
                core.close_handle(handle);
                Err(error)
            }
        })
    }

    /// Nobody wants the file any more.
    pub(crate) fn abandon(&self, core: &mut Core) {
        if let Some((handle, ticket)) = self.cutting.take() {
            core.abandon(ticket);
            core.close_handle(handle);
        }
    }

    /// The file, once, when it is open; else remembers whom to wake.
    fn opened(&self, core: &mut Core, waker: Option<Waker>) -> Poll<Opened> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let displaced = match state.ended.take() {
            Some(ended) => return Poll::Ready(ended),
            None => std::mem::replace(&mut state.waker, waker),
        };
        drop(state);
        core.displace(displaced);
        Poll::Pending
    }
}

fn end(state: &Mutex<State>, opened: Opened, doorbell: Option<&Doorbell>) {
    let waker = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.ended = Some(opened);
        state.waker.take()
    };
    // Whoever turns the core looks; whoever only awaits it is woken.
    if let Some(doorbell) = doorbell {
        doorbell.ring();
    }
    if let Some(waker) = waker {
        waker.wake();
    }
}

fn open(path: &std::path::Path, options: &Open) -> Opened {
    let name = baio_engine::path_name(path);
    let file = File::open(path, options).map_err(|error| Error::new("open", &name, error))?;
    let access = if options.write { Access::Write } else { Access::Read };
    Ok((file, access))
}
