//! The descriptor of a local link, for a loop of the program's own that sleeps elsewhere.
//!
//! Behind one epoll stand the engine's descriptor, a timer for deadlines, and a bell for what has ended already. A turn that does not wait arms
//! the engine first, so nothing is missed between it and the loop's sleep, and then sets timer and bell.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use baio_client::Event;
use baio_engine::{Errno, Time};
use baio_process::descriptor;
use baio_storage::{Core, Error, Result};
use rustix::event::{Timespec, epoll};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_settime};

use super::Local;
use crate::transport::Transport;

/// Between two looks at an engine that does not tell of what it has ended.
const SOON: Duration = Duration::from_millis(1);

/// What the loop sleeps on.
pub(super) struct Watched {
    fd: OwnedFd,
    timer: OwnedFd,
    /// What it is set to.
    timer_at: Cell<Option<Time>>,
    bell: RefCell<Event>,
    /// Does the engine tell of what it has ended?
    is_told: bool,
}

fn failed(errno: rustix::io::Errno) -> Error {
    Error::new("watch", "a link", Errno::from_raw(errno.raw_os_error()))
}

impl Watched {
    fn new(core: &mut Core) -> Result<Watched> {
        let fd = descriptor::epoll().map_err(failed)?;
        let timer = descriptor::timer(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK).map_err(failed)?;
        let bell = Event::new().map_err(failed)?;
        let rings = bell.fd();
        let engine = core.engine_mut().ready_fd(true);
        let is_told = engine.is_some();
        for part in [Some(timer.as_fd()), Some(rings.as_fd()), engine].into_iter().flatten() {
            epoll::add(&fd, part, epoll::EventData::new_u64(0), epoll::EventFlags::IN).map_err(failed)?;
        }
        Ok(Watched {
            fd,
            timer,
            timer_at: Cell::new(None),
            bell: RefCell::new(bell),
            is_told,
        })
    }

    /// Every outcome was taken: the next one rings anew.
    pub(super) fn has_been_emptied(&self) {
        self.bell.borrow_mut().tell(false);
    }

    /// Before a turn that does not wait. Does the engine tell of what ends from here on?
    pub(super) fn arm(core: &mut Core) -> bool {
        core.engine_mut().ready_fd(false);
        core.engine_mut().ready_fd(true).is_some()
    }

    /// Behind it: what has ended, or is to be done at once, rings; what is to be done later sets the timer. `is_armed`: the engine tells of what
    /// ends.
    pub(super) fn tell(&self, link: &Local, is_armed: bool) -> Result<()> {
        let has_outcomes = link.with(|core| Ok(core.has_outcomes()))?;
        // Not while the bell is borrowed: it wakes those who wait for room, and they may turn the link.
        let rings = has_outcomes || link.has_news();
        self.bell.borrow_mut().tell(rings);
        let is_told = self.is_told && is_armed;
        let look = (!is_told && link.link_state().in_flight > 0).then(|| link.link_clock().after(SOON));
        let at = look.into_iter().chain(link.next_wake()).min();
        if self.timer_at.replace(at) == at {
            return Ok(());
        }
        let (seconds, nanoseconds) = at.unwrap_or_default().split();
        let at = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: seconds,
                tv_nsec: nanoseconds,
            },
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &at).map_err(failed)?;
        Ok(())
    }
}

/// Whoever is called by a turn may panic, and the loop catch that. Then the turn has not told what it has found: the loop is to look again.
pub(super) struct Early<'a>(pub(super) &'a Local, pub(super) Option<&'a Watched>);

impl Drop for Early<'_> {
    fn drop(&mut self) {
        // In a forked child the bell is the parent's.
        let is_cut_short = std::thread::panicking() && self.0.check_life().is_ok();
        if let Some(watched) = self.1.filter(|_| is_cut_short) {
            watched.bell.borrow_mut().tell(true);
        }
    }
}

impl Local {
    pub(super) fn watched_fd(&self) -> Result<OwnedFd> {
        self.check_life()?;
        let watched = match self.0.watched.get() {
            Some(watched) => watched,
            None => {
                let new = self.with(Watched::new)?;
                let watched = self.0.watched.get_or_init(|| new);
                let _early = Early(self, Some(watched));
                watched.tell(self, true)?;
                watched
            }
        };
        descriptor::duplicate(&watched.fd).map_err(failed)
    }
}
