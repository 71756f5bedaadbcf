//! A file is opened by a thread of its own: open(2) may wait for a device or a server, and whoever turns a core must not.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use baio_engine::{Doorbell, File, Open};
use baio_storage::{Access, Core, Error, Result};

type Opened = Result<(File, Access)>;

/// A file that is being opened. Dropped, it is closed as soon as it is open.
#[derive(Debug)]
pub struct Opening(Arc<Mutex<State>>);

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
        let work = {
            let path = path.clone();
            move || {
                let opened = open(&path, &options, truncate);
                if let Some(state) = theirs.upgrade() {
                    end(&state, opened, Some(&doorbell));
                }
            }
        };
        // Without a thread it is opened here: it may take longer, and is no reason to fail.
        let spawned = std::thread::Builder::new().name("baio-open".into()).spawn(work);
        if spawned.is_err() {
            end(&state, open(&path, &options, truncate), None);
        }
        Opening(state)
    }

    /// The file, once, when it is open; else remembers whom to wake.
    pub(crate) fn poll(&self, waker: Option<Waker>) -> Poll<Opened> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let displaced = match state.ended.take() {
            Some(ended) => return Poll::Ready(ended),
            None => std::mem::replace(&mut state.waker, waker),
        };
        drop(state);
        drop(displaced); // With the lock free: that may run anybody's code.
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

fn open(path: &std::path::Path, options: &Open, truncate: bool) -> Opened {
    let name = path.display().to_string();
    let file = File::open(path, options).map_err(|error| Error::new("open", &name, error))?;
    if truncate {
        file.set_size(0).map_err(|errno| Error::new("truncate", &name, errno))?;
    }
    let access = if options.write { Access::Write } else { Access::Read };
    Ok((file, access))
}
