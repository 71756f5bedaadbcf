//! Using a link on its core's own thread, inside of [`Link::with_pool`]: it is refused in words, and neither panics nor hangs.

use std::cell::RefCell;
use std::sync::Mutex;

use baio::{Access, Errno, Error, Link, Local, Remote, Segment, Wait};

use crate::rig::{Made, Volume, page, segment};

thread_local! {
    /// A local link cannot be moved into what runs, which must be `Send`; but it can be reached.
    static HERE: RefCell<Option<(Local, Segment<Local>)>> = const { RefCell::new(None) };
}

static THERE: Mutex<Option<(Remote, Segment<Remote>)>> = Mutex::new(None);

/// Reaches its link from anywhere on its core's thread.
pub(crate) trait Reached: Made {
    fn leave(self, open: Segment<Self>);
    fn reach() -> (Self, Segment<Self>);
    fn forget();
}

impl Reached for Local {
    fn leave(self, open: Segment<Local>) {
        HERE.set(Some((self, open)));
    }

    fn reach() -> (Local, Segment<Local>) {
        HERE.with_borrow(|here| here.clone().unwrap())
    }

    fn forget() {
        drop(HERE.take());
    }
}

impl Reached for Remote {
    fn leave(self, open: Segment<Remote>) {
        *THERE.lock().unwrap() = Some((self, open));
    }

    fn reach() -> (Remote, Segment<Remote>) {
        THERE.lock().unwrap().clone().unwrap()
    }

    fn forget() {
        let there = THERE.lock().unwrap().take();
        drop(there);
    }
}

fn is_refused(what: &str, refused: Result<(), Error>) {
    let error = refused.expect_err(what);
    assert_eq!(error.errno(), Some(Errno::EDEADLK), "{what}: {error}");
}

pub(crate) fn the_link_is_refused_inside<L: Reached>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 8);
    link.clone().leave(open.clone());
    let ticket = open
        .submit(open.request(baio::SegmentOp::Read { offset: 0 }, page(&link, 1)))
        .unwrap();
    let memory = page(&link, 1);
    let inside = link.with_pool(move |_| {
        let (link, open) = L::reach();
        is_refused("block on", link.block_on(std::future::pending::<()>()));
        is_refused("list", link.list().wait().map(drop));
        is_refused("open", link.open_segment("one", Access::Read).wait().map(drop));
        is_refused("read", open.read_at(0, memory).wait().map(drop).map_err(Into::into));
        is_refused(
            "sync",
            open.sync(baio::Durability::Data).wait().map(drop).map_err(Into::into),
        );
        is_refused("turn", link.turn(Wait::one()).map(drop));
        is_refused("wait", link.wait(ticket).map(drop));
        is_refused("close", link.clone().close());
        let _ = (
            link.in_flight(),
            link.name(),
            link.now(),
            link.arena_free_bytes(),
            link.bounced(),
        );
        link.cancel(baio::Ticket::default());
        link.abandon(baio::Ticket::default());
    });
    inside.wait().unwrap();
    L::forget();
    // Nothing of it stays.
    assert!(link.wait(ticket).unwrap().unwrap().result.is_ok());
    open.write_at(0, page(&link, 3)).wait().unwrap();
    drop(open);
    link.close().unwrap();
}

/// Also the last of its handles, and pins, go inside.
pub(crate) fn handles_are_let_go_inside<L: Reached>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 8);
    let handle = open.handle();
    let pin = open.pin(0).wait().unwrap();
    link.clone().leave(open);
    link.with_pool(move |_| L::forget()).wait().unwrap();
    assert_eq!(pin.read(|bytes| bytes[0]).wait().unwrap(), 0);
    drop(pin);
    let gone = link
        .with_pool(move |pool| pool.read(handle, 0, |_| ()).map(drop))
        .wait()
        .unwrap();
    assert!(gone.is_err(), "the handle was closed");
    link.close().unwrap();
}

/// What is asked of a local link there waits until it is over, and is not lost.
pub(crate) fn a_cancel_inside_is_done_when_it_is_over() {
    let volume = Volume::new();
    let link: Local = volume.link();
    let open = segment(&link, "one", 8);
    link.clone().leave(open.clone());
    let ticket = open
        .submit(open.request(baio::SegmentOp::Read { offset: 0 }, page(&link, 1)))
        .unwrap();
    let inside = link.with_pool(move |_| Local::reach().0.cancel(ticket));
    inside.wait().unwrap();
    Local::forget();
    let error = link.wait(ticket).unwrap().unwrap().result.unwrap_err();
    assert_eq!(error.code(), "ECANCELED", "{error}");
    drop(open);
    link.close().unwrap();
}
