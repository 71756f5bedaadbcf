//! Durable logs in segments of a broker. Such a log is kept here, in the appending process. So a record has its LSN as soon as it is appended,
//! as over the other links, and waiting threads are woken within this process. The broker makes sure that nobody else writes there (a *claim*).
//! For it reads and writes of batches are requests like any others, in the session's arena.
//!
//! | file | what it does |
//! |---|---|
//! | `mod.rs` | what is asked of logs, and by whom; the thread |
//! | `house.rs` | all logs of a link: what that thread does |
//! | `kept.rs` | one log: its requests, its end |
//! | `desk.rs` | where that thread finds what is asked |
//! | `call.rs` | a question to the broker, and the answer to its caller |
//!
//! Each link that has ever had a log has one such thread. It sleeps as any thread does that blocks on the link, so it collects the log's
//! completions itself.

mod call;
mod desk;
mod house;
mod kept;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;
use std::thread::{JoinHandle, ThreadId};

use baio_broker::control::Call;
use baio_storage::log::{LogOptions, LogStart};
use baio_storage::{Error, Fault, Handle};
use baio_words::Errno;

pub(super) use self::call::Asked;
use self::call::{Answerer, LogAsked, asked};
pub(super) use self::desk::Ends;
use self::desk::{Desk, Order};
use self::house::House;
use super::carried::Client;
use crate::transport::NotAsked;

/// The logs of a link.
#[derive(Default)]
pub(super) struct Logs {
    desk: Arc<Desk>,
    thread: Mutex<Option<JoinHandle<()>>>,
    inside: OnceLock<ThreadId>,
}

impl Logs {
    /// Takes what is for a log. `None`: the link is to do it itself.
    pub(super) fn ask(&self, client: &Arc<Client>, call: &Call) -> Option<Result<LogAsked, NotAsked>> {
        let (handle, order): (_, Box<dyn FnOnce(Answerer) -> Order>) = match *call {
            Call::StartLog { handle, start, options } => (Some(handle), open(handle, start, options)),
            Call::OnLog { log, request } => (None, Box::new(move |answer| Order::On { log, request, answer })),
            Call::LogUsage(log) => (None, Box::new(move |answer| Order::Usage { log, answer })),
            _ => return None,
        };
        let what = call.name();
        // That the broker has ended comes first: by that the logs have ended.
        if let Some(fault) = client.refusal() {
            return Some(Err(NotAsked::Refused(fault.into())));
        }
        if self.desk.inbox().ends.is_some() {
            return Some(Err(NotAsked::Refused(Fault::Stale)));
        }
        let name = handle.and_then(|handle| client.name_of(handle));
        let (asked, answer) = asked(what, name.unwrap_or_else(|| "a closed log".to_owned()));
        match self.start(client) {
            Ok(()) => self.desk.put(order(answer)),
            Err(errno) => {
                let error = Error::new(what, "a thread for logs", errno);
                answer.give(Err(error));
            }
        }
        Some(Ok(asked))
    }

    /// Has the thread run.
    fn start(&self, client: &Arc<Client>) -> Result<(), Errno> {
        // Without the lock: a callback may ask this thread something while another one waits for its end.
        if self.inside.get().is_some() {
            return Ok(());
        }
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if self.inside.get().is_some() {
            return Ok(());
        }
        let house = House::new(Arc::clone(&self.desk), Arc::clone(client));
        let started = baio_process::thread::named("baio-logs")
            .start(move || house.run())
            .map_err(|error| Errno::of(&error))?;
        let _ = self.inside.set(started.thread().id());
        *thread = Some(started);
        Ok(())
    }

    /// In a forked child: the thread is the parent's.
    pub(super) fn disown(&mut self) {
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner);
        std::mem::forget(thread.take());
    }

    /// Is this the thread of the logs?
    pub(super) fn is_inside(&self) -> bool {
        self.inside.get() == Some(&std::thread::current().id())
    }

    /// Ends them, and waits for that; nothing is asked of any from now on.
    pub(super) fn end(&self, ends: Ends) {
        let waker = {
            let mut inbox = self.desk.inbox();
            inbox.ends = inbox.ends.max(Some(ends));
            inbox.waker.clone()
        };
        waker.inspect(Waker::wake_by_ref);
        if self.is_inside() {
            return; // The last link goes in a callback of a log: its thread ends by itself.
        }
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            let _ = thread.join(); // A panic has been told by its own message, and by the logs' ends.
        }
    }
}

fn open(handle: Handle, start: LogStart, options: LogOptions) -> Box<dyn FnOnce(Answerer) -> Order> {
    Box::new(move |answer| Order::Open {
        handle,
        start,
        options,
        answer,
    })
}
