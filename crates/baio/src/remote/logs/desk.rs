//! Where the thread of a link's logs finds what is asked of it.

use std::sync::{Mutex, MutexGuard};
use std::task::Waker;

use baio_storage::log::{LogOptions, LogRequest, LogStart};
use baio_storage::{Handle, LogId};

use super::call::Answerer;

/// How logs end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::remote) enum Ends {
    /// They are wound down first: what was appended becomes durable.
    Properly,
    /// As in a crash.
    AtOnce,
}

/// What is asked of the thread.
#[derive(Default)]
pub(super) struct Desk(Mutex<Inbox>);

#[derive(Default)]
pub(super) struct Inbox {
    pub(super) orders: Vec<Order>,
    /// Of the thread, once it runs.
    pub(super) waker: Option<Waker>,
    pub(super) ends: Option<Ends>,
}

/// Something that is asked.
pub(super) enum Order {
    /// Make a log, or open one.
    Open {
        handle: Handle,
        start: LogStart,
        options: LogOptions,
        answer: Answerer,
    },
    On {
        log: LogId,
        request: LogRequest,
        answer: Answerer,
    },
    Usage {
        log: LogId,
        answer: Answerer,
    },
    /// Nobody holds it any more.
    LetGo(LogId),
}

impl Desk {
    pub(super) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        baio_client::locked(&self.0)
    }

    pub(super) fn put(&self, order: Order) {
        let mut inbox = self.inbox();
        if inbox.ends == Some(Ends::AtOnce) {
            drop(inbox);
            return drop(order); // Who has asked is told so.
        }
        inbox.orders.push(order);
        let waker = inbox.waker.clone();
        drop(inbox);
        waker.inspect(Waker::wake_by_ref);
    }
}
