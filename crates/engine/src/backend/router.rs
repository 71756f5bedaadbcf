//! Who runs which request: the engine's one backend, which sleeps, and helpers beside it for devices that it does not know.
//!
//! | the file is | what its request has to do now | who runs it |
//! |---|---|---|
//! | none, or an inode of this kernel | anything | the primary |
//! | foreign, and a helper serves it | a pause before the next try | the primary, which has the clock |
//! | foreign, and a helper serves it | anything else, in every mode | that helper |
//! | foreign, and none serves it | anything | the primary: it knows it, or says `EBADF` |
//!
//! Helpers are asked once for each file, in the order in which they came, and the file remembers the answer. The queue is split only
//! while a request in it is for a helper, and helpers are looked at only while they run something: without helpers all of this is a
//! test of an empty list.
//!
//! **Sleeping.** A turn looks at the helpers that run something; if they have nothing, it sleeps in the primary. A helper whose work
//! has ended meanwhile rings the primary's doorbell *behind* the result, which ends that sleep, or the next one if it comes
//! before it; then the turn looks again. A ring is not silenced without a look behind it, so none is lost. A helper's ring does not
//! end the turn of a caller: `Doorbell::take_call`.
//!
//! A helper that takes less than it is given is offered the rest when it has reported something or the bell has rung: until then no turn
//! stays awake for it.
//!
//! A helper is believed only about what it runs, and the primary beside it: one end for each iteration that it has taken.
//!
//! One whose turn fails is lost: it is not asked again, and the engine ends what it had and refuses what is for it (`engine/lost.rs`).

use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use super::lent::Lent;
use super::{Attach, Backend, Detached, Done, Doorbell, Explain};
use crate::device::Kind;
use crate::error::{Errno, Error, SetupError};
use crate::file::{File, Known};
use crate::fork::Disowned;
use crate::policy::Time;
use crate::request::{Request, RequestId, Wait};
use crate::slot::{By, Slots};

pub(crate) struct Router {
    primary: Box<dyn Backend>,
    helpers: Vec<Helper>,
    /// With which a file remembers who of these serves it; another one when there are others.
    mark: u64,
    /// The primary's, once there are helpers to ring it: a backend may sleep otherwise when its bell is in other hands.
    doorbell: Option<Doorbell>,
    /// Whoever was not taken at the last start is for a helper without room, which has not been heard of since.
    awaits_room: bool,
}

struct Helper {
    backend: Box<dyn Backend>,
    /// Iterations that it has taken and not reported.
    running: usize,
    /// What its turn failed with, if it did: it is not asked any more.
    lost: Option<Errno>,
    /// The engine has yet to end what it ran.
    has_orphans: bool,
    /// The files that have been routed to it, whoever else serves them meanwhile.
    served: RefCell<Known>,
}

impl Helper {
    fn new(backend: Box<dyn Backend>) -> Helper {
        Helper {
            backend,
            running: 0,
            lost: None,
            has_orphans: false,
            served: RefCell::new(Known::new()),
        }
    }

    fn loss(&self) -> Option<Error> {
        let device = || self.backend.explain().backend;
        self.lost.map(|errno| Error::DeviceLost {
            device: device(),
            errno,
        })
    }
}

impl Router {
    pub(crate) fn new(primary: Box<dyn Backend>) -> Router {
        Router {
            primary,
            helpers: Vec::new(),
            mark: 0,
            doorbell: None,
            awaits_room: false,
        }
    }

    pub(crate) fn add(
        &mut self,
        make: impl FnOnce(Doorbell) -> Result<Box<dyn Backend>, SetupError>,
    ) -> Result<(), SetupError> {
        static MARKS: AtomicU64 = AtomicU64::new(1);
        let doorbell = self.primary.doorbell();
        let backend = make(doorbell.for_helper())?;
        let refused = |need: &str| {
            SetupError::new("add a helper", backend.explain().backend.to_owned(), Errno::EINVAL).need(need)
        };
        if self.helpers.len() == By::HELPERS_MAX {
            return Err(refused("fewer helpers"));
        }
        if !backend.doorbell().is_helpers_of(&doorbell) {
            return Err(refused(
                "a helper that rings the doorbell which it was given: nothing else wakes the engine",
            ));
        }
        self.helpers.push(Helper::new(backend));
        // Who called before there were helpers has been heard.
        doorbell.take_call();
        self.doorbell = Some(doorbell);
        self.mark = MARKS.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn has_helpers(&self) -> bool {
        !self.helpers.is_empty()
    }

    /// Who runs requests to this file.
    pub(crate) fn route(&self, file: Option<&File>) -> By {
        let Some(file) = file.filter(|file| self.has_helpers() && file.kind() == Kind::Foreign) else {
            return By::PRIMARY;
        };
        let known = file.served_by().place(self.mark);
        By(known.unwrap_or_else(|| {
            let serves = |is_lost| {
                let asked = |helper: &Helper| helper.lost.is_some() == is_lost && helper.backend.serves(file);
                self.helpers.iter().position(asked)
            };
            // One that is lost is better than none: it is named.
            let served = serves(false).or_else(|| serves(true));
            if let Some(index) = served {
                file.be_known(&mut self.helpers[index].served.borrow_mut());
            }
            let by = served.map_or(By::PRIMARY, By::helper);
            file.served_by().set(self.mark, by.0);
            by.0
        }))
    }

    fn backend(&self, by: By) -> &dyn Backend {
        let helper = by.index().and_then(|index| self.helpers.get(index));
        helper.map_or(&*self.primary, |helper| &*helper.backend)
    }

    fn backend_mut(&mut self, by: By) -> &mut dyn Backend {
        match by.index().and_then(|index| self.helpers.get_mut(index)) {
            Some(helper) => &mut *helper.backend,
            None => &mut *self.primary,
        }
    }

    /// As [`Backend::start`]; with helpers those that were not taken may stand anywhere in the queue, and are still `Queued`.
    pub(crate) fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize {
        if self.helpers.is_empty() {
            slots.starting = Some(By::PRIMARY);
            let taken = self.primary.start(Lent::new(slots).table(), queue);
            slots.starting = None;
            return taken;
        }
        let (mut taken, mut rest) = (0, queue);
        let mut full = [false; By::HELPERS_MAX + 1];
        while let Some(&first) = rest.first() {
            let by = slots.goes_to(first);
            let run = rest.iter().position(|&id| slots.goes_to(id) != by);
            let (now, later) = rest.split_at(run.unwrap_or(rest.len()));
            rest = later;
            if !full[by.0 as usize] {
                let begun = self.start_run(slots, now, by);
                full[by.0 as usize] = begun < now.len();
                taken += begun;
            }
        }
        self.awaits_room = taken < queue.len() && !full[By::PRIMARY.0 as usize];
        taken
    }

    /// Would another start of what the last one left be for nothing?
    pub(crate) fn awaits_room(&self) -> bool {
        self.awaits_room
    }

    fn start_run(&mut self, slots: &mut Slots, run: &[RequestId], by: By) -> usize {
        for &id in run {
            slots.give(id, by);
        }
        slots.starting = Some(by);
        self.backend_mut(by).start(Lent::new(slots).table(), run);
        slots.starting = None;
        let begun = run.iter().filter(|&&id| slots.is_running(id)).count();
        if let Some(index) = by.index() {
            self.helpers[index].running += begun;
        }
        begun
    }

    pub(crate) fn flush(&mut self) {
        self.primary.flush();
        for helper in self.helpers.iter_mut().filter(|helper| helper.running > 0) {
            helper.backend.flush();
        }
    }

    pub(crate) fn turn(&mut self, slots: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        let Some(doorbell) = &self.doorbell else {
            return self.primary.turn(Lent::new(slots).table(), wait, done);
        };
        let doorbell = doorbell.clone();
        if wait != Wait::No {
            self.look(slots, done);
        }
        let found = !done.raw.is_empty() || self.helpers.iter().any(|helper| helper.has_orphans);
        let told_before = done.raw.len();
        let wait = if found { Wait::No } else { wait };
        let turned = self.primary.turn(Lent::new(slots).table(), wait, done);
        let mut at = 0;
        done.raw.retain(|&(id, _)| {
            at += 1;
            at <= told_before || slots.take_report(id, By::PRIMARY)
        });
        self.awaits_room &= !done.rang;
        done.rang = done.rang && doorbell.take_call();
        // Behind the ring that may have ended the sleep.
        self.look(slots, done);
        turned
    }

    /// Takes what helpers have to report.
    fn look(&mut self, slots: &mut Slots, done: &mut Done) {
        for (index, helper) in self
            .helpers
            .iter_mut()
            .enumerate()
            .filter(|(_, helper)| helper.running > 0)
        {
            let (by, mut told) = (By::helper(index), Done::default());
            let turned = helper.backend.turn(Lent::new(slots).table(), Wait::No, &mut told);
            told.raw.retain(|&(id, _)| slots.take_report(id, by));
            helper.running -= told.raw.len();
            self.awaits_room &= told.raw.is_empty() && turned.is_ok();
            done.raw.append(&mut told.raw);
            if let Err(errno) = turned {
                helper.lost = Some(errno);
                // Before anything of this turn is judged: it may have lost whatever it had acknowledged, and no sync proves what it has not.
                helper.served.get_mut().poison(errno);
                helper.has_orphans = std::mem::take(&mut helper.running) > 0;
            }
        }
    }

    /// Why nothing runs there any more, if so.
    pub(crate) fn loss(&self, by: By) -> Option<Error> {
        self.helpers.get(by.index()?)?.loss()
    }

    /// Is any helper lost?
    pub(crate) fn has_lost(&self) -> bool {
        self.helpers.iter().any(|helper| helper.lost.is_some())
    }

    /// A helper that was lost with something under way, for the engine to end that.
    pub(crate) fn take_loss(&mut self) -> Option<By> {
        let index = self.helpers.iter().position(|helper| helper.has_orphans)?;
        self.helpers[index].has_orphans = false;
        Some(By::helper(index))
    }

    pub(crate) fn cancel(&mut self, slots: &Slots, id: RequestId) {
        self.backend_mut(slots.runs_at(id)).cancel(slots, id);
    }

    pub(crate) fn attach(&mut self, file: &File) -> Result<(), Errno> {
        let by = self.route(Some(file));
        self.backend_mut(by).attach(Attach::File(file))
    }

    pub(crate) fn detach(&mut self, file: &File) {
        let by = self.route(Some(file));
        self.backend_mut(by).detach(Detached::File(file));
    }

    pub(crate) fn refuses(&self, request: &Request) -> Option<Error> {
        let by = self.route(request.file.as_ref());
        self.loss(by).or_else(|| self.backend(by).refuses(request.op))
    }

    /// The primary's: its descriptor hears the doorbell, which helpers ring.
    pub(crate) fn ready_fd(&mut self, arm: bool) -> Option<BorrowedFd<'_>> {
        self.primary.ready_fd(arm)
    }

    pub(crate) fn doorbell(&self) -> Doorbell {
        self.primary.doorbell()
    }

    pub(crate) fn now(&self) -> Time {
        self.primary.now()
    }

    pub(crate) fn wall_clock(&self) -> Time {
        self.primary.wall_clock()
    }

    pub(crate) fn random(&mut self, bytes: &mut [u8]) -> Result<(), Errno> {
        self.primary.random(bytes)
    }

    /// The primary's name and features, and for each helper its name and features.
    pub(crate) fn explain(&self) -> Explain {
        let mut explained = self.primary.explain();
        for helper in &self.helpers {
            let Explain { backend, features } = helper.backend.explain();
            let lost = helper.lost.map(|errno| format!("its turn failed with {errno}"));
            explained.features.push((backend, lost.map_or(Ok(()), Err)));
            explained.features.extend(features);
        }
        explained
    }

    pub(crate) fn system_calls(&self) -> u64 {
        let of_helpers: u64 = self.helpers.iter().map(|helper| helper.backend.system_calls()).sum();
        self.primary.system_calls() + of_helpers
    }

    /// What helpers run the primary cannot wait for as one of many.
    pub(crate) fn gains_by_gathering(&self) -> bool {
        self.primary.gains_by_gathering() && !self.awaits_room && self.helpers.iter().all(|helper| helper.running == 0)
    }

    /// Nothing of it is dropped: what it began may be under way.
    pub(crate) fn leak(&mut self) {
        let nobody = Box::new(Disowned(self.primary.doorbell()));
        std::mem::forget((
            std::mem::replace(&mut self.primary, nobody),
            std::mem::take(&mut self.helpers),
        ));
    }

    /// What the kernel may still write stays, though all is dropped.
    pub(crate) fn leak_memory(&mut self) {
        self.primary.leak_memory();
        self.helpers.iter_mut().for_each(|helper| helper.backend.leak_memory());
    }

    /// In the child of a fork.
    pub(crate) fn disown(&mut self) {
        let nobody = Box::new(Disowned(self.primary.doorbell()));
        std::mem::replace(&mut self.primary, nobody).disown();
        for helper in self.helpers.drain(..) {
            helper.backend.disown();
        }
    }
}
