//! Native Linux AIO, for what it is asynchronous at: direct reads and writes on files and devices, and syncs.
//!
//! Everything else goes to the helper that the `threads` backend is made of, by the one table in `threads/route.rs`. There is
//! one sleep: the helper's descriptor is polled through the context too (`IOCB_CMD_POLL`), so io_getevents(2) ends when a
//! disk, a worker, a stream or the doorbell has something. A batch is submitted in one call, and completions that are there
//! are taken from the ring without any.
//!
//! io_getevents can wait for several completions at once, and the doorbell must end that sleep, too: so as many polls are in
//! the context as completions are waited for, at most [`BELLS`]. They fire together, and stay armed over turns.
//!
//! What io_submit does not promise: it waits by itself where a file system or a device does (a write that extends a file, a
//! full request queue). io_cancel(2) cancels no disk I/O, so it is not called.
//!
//! | file | what it holds |
//! |---|---|
//! | `context.rs` | the system calls, and the ring read without them |

#![allow(unsafe_code)]

mod context;
mod setup;

use std::cell::UnsafeCell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll;

use crate::backend::threads::helper::{Helper, NOW};
use crate::backend::threads::pool::{Limits, Ring};
use crate::backend::threads::route::{Class, Kernel, Way, route};
use crate::backend::threads::{earliest, features, until};
use crate::backend::{Backend, Done, Doorbell, Explain};
use crate::error::{Errno, Error, SetupError};
use crate::memory::Window;
use crate::policy::Time;
use crate::request::{Op, RequestId, Wait};
use crate::slot::{Slots, State};
use crate::sys::{self, Action, Fd, Iteration, TRANSFER_MAX};
use context::{Context, Event, Iocb};

pub(crate) const NAME: &str = "aio";

/// Polls of the helper's descriptor at most, and so completions that one sleep waits for.
const BELLS: usize = 8;

/// The kernel runs each sync on a thread of its own; more at a time go to our bounded pool.
const KERNEL_SYNCS: u32 = 16;

/// How often an outside loop is woken to look for completions of requests that were started before it asked for wake-ups.
const TICK: Duration = Duration::from_millis(1);

/// Bell n is called `FIRST_BELL + n`; no request has such an id.
const FIRST_BELL: u64 = u64::MAX - BELLS as u64 + 1;

pub(crate) struct Aio {
    context: Context,
    helper: Helper,
    limits: Limits,
    /// One per slot, and the bells behind them. The kernel reads and writes them at submission.
    operations: Box<[UnsafeCell<Iocb>]>,
    /// What the next submission starts.
    pending: Vec<*mut Iocb>,
    /// Requests that the kernel has.
    in_kernel: usize,
    syncs: u32,
    /// Requests that ended without an event.
    ended: Vec<(u64, i32)>,
    /// Events just taken; kept for its room.
    taken: Vec<Event>,
    /// Bit n: bell n is in the kernel, or about to be.
    bells: u32,
    /// A bell has fired, and what it fired for is still to be looked at.
    fired: bool,
    outside: Option<Outside>,
    /// Requests in the kernel that will not signal `outside`: they were started before it was made.
    silent: usize,
    /// Can completions be taken without a system call?
    ring: Result<(), String>,
    disowned: bool,
}

// SAFETY: what keeps it in one thread are pointers. `pending` leads into `operations`, a box of its own that moves with it, and the
// context's ring lies where the kernel has mapped it for the whole process (io_setup(2)). Both are reached through the value alone,
// so by one thread at a time, behind all that the last one has done.
unsafe impl Send for Aio {}

/// What an outside loop sleeps on: `completed` is signalled by every request in the kernel, the helper's descriptor by the
/// rest.
struct Outside {
    completed: OwnedFd,
    either: OwnedFd,
}

impl Outside {
    fn new(helper: &Helper) -> Result<Outside, Errno> {
        let completed = baio_process::descriptor::event()?;
        let either = baio_process::descriptor::epoll()?;
        for fd in [completed.as_fd(), helper.fd()] {
            epoll::add(&either, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(Outside { completed, either })
    }
}

impl Aio {
    pub(crate) fn new(slots: u32, limits: Limits) -> Result<Aio, SetupError> {
        let slots = slots.max(1);
        let operations = slots.saturating_add(BELLS as u32);
        let helper = Helper::new("baio-aio", slots, limits)?;
        let refused = |errno| setup::explain_refusal(errno, operations);
        let mut aio = Aio {
            context: Context::new(operations).map_err(refused)?,
            helper,
            limits,
            operations: (0..operations).map(|_| UnsafeCell::default()).collect(),
            pending: Vec::with_capacity(operations as usize),
            in_kernel: 0,
            syncs: 0,
            ended: Vec::with_capacity(slots as usize),
            taken: Vec::with_capacity(operations as usize),
            bells: 0,
            fired: false,
            outside: None,
            silent: 0,
            ring: Ok(()),
            disowned: false,
        };
        aio.prove().map_err(refused)?;
        Ok(aio)
    }

    /// A context that can be set up may still be of no use (seccomp; no polls before Linux 4.18), so one poll goes round.
    fn prove(&mut self) -> Result<(), Errno> {
        self.helper.doorbell().ring();
        self.arm_bells(1);
        // SAFETY: a poll has no memory, and the helper's descriptor outlives the context.
        unsafe { self.context.submit(&self.pending) }?;
        self.pending.clear();
        // It rang before, so the poll ended within the call that started it.
        self.ring = self.context.prove_ring(FIRST_BELL);
        self.bells = 0;
        // Silences the doorbell.
        self.helper.look(Some(&NOW))?;
        self.helper.collect(&mut Done::default(), Ring::Never);
        self.helper.doorbell().take_call();
        Ok(())
    }

    /// Describes an iteration to the kernel, and adds it to the next submission; false when the kernel cannot run it.
    fn prepare(&mut self, id: RequestId, iteration: &Iteration) -> bool {
        let Fd::Raw(fd) = iteration.fd else { return false };
        let mut operation = Iocb {
            data: id.to_bits(),
            fd: fd as u32,
            ..Iocb::default()
        };
        match iteration.action {
            Action::Read { window, offset } => {
                describe(&mut operation, window, offset, [context::READ, context::READ_LIST]);
                operation.rw_flags = iteration.flags;
            }
            Action::Write { window, offset } => {
                describe(&mut operation, window, offset, [context::WRITE, context::WRITE_LIST]);
                operation.rw_flags = iteration.flags;
            }
            Action::Sync { data_only } if self.syncs < KERNEL_SYNCS => {
                self.syncs += 1;
                operation.opcode = if data_only { context::DATA_SYNC } else { context::SYNC };
            }
            _ => return false,
        }
        if let Some(outside) = &self.outside {
            operation.flags = context::SIGNALS;
            operation.signal_fd = outside.completed.as_raw_fd() as u32;
        }
        let place = &mut self.operations[id.slot as usize];
        *place.get_mut() = operation;
        self.pending.push(place.get());
        true
    }

    /// Has at least `count` polls of the helper in the context, or in the next submission.
    fn arm_bells(&mut self, count: usize) {
        let slots = self.operations.len() - BELLS;
        for bell in (0..count.min(BELLS)).filter(|bell| self.bells & (1 << bell) == 0) {
            let place = &mut self.operations[slots + bell];
            *place.get_mut() = Iocb {
                data: FIRST_BELL + bell as u64,
                opcode: context::POLL,
                fd: self.helper.fd().as_raw_fd() as u32,
                buffer: libc::POLLIN as u64,
                ..Iocb::default()
            };
            self.pending.push(place.get());
        }
        self.bells |= (1 << count.min(BELLS)) - 1;
    }

    /// Starts what is pending. What the kernel refuses ends with its error; what it has no room for stays.
    fn submit(&mut self) {
        let mut begun = 0;
        while begun < self.pending.len() {
            // SAFETY: the memory belongs to slots, which are not emptied before their events were taken; polls have none.
            match unsafe { self.context.submit(&self.pending[begun..]) } {
                Ok(count) => {
                    for at in begun..begun + count {
                        self.note_start(self.pending[at]);
                    }
                    begun += count;
                }
                // Room comes with the next event.
                Err(Errno::EAGAIN) if self.in_kernel > 0 => break,
                Err(errno) => {
                    self.note_refusal(self.pending[begun], errno);
                    begun += 1;
                }
            }
        }
        self.pending.drain(..begun);
    }

    fn note_start(&mut self, operation: *mut Iocb) {
        // SAFETY: it points into our table, and the kernel has read it.
        let operation = unsafe { *operation };
        if operation.data < FIRST_BELL {
            self.in_kernel += 1;
            self.silent += usize::from(operation.flags & context::SIGNALS == 0);
        }
    }

    fn note_refusal(&mut self, operation: *mut Iocb, errno: Errno) {
        // SAFETY: it points into our table, and the kernel has not taken it.
        let operation = unsafe { *operation };
        if operation.data >= FIRST_BELL {
            self.bells &= !(1 << (operation.data - FIRST_BELL));
            return;
        }
        self.syncs -= u32::from(is_sync(&operation));
        let raw = match errno {
            // No room, though nothing is in flight: the kernel has no memory. To wait for room would be to wait for ever.
            Errno::EAGAIN => -libc::ENOMEM,
            errno => -errno.raw(),
        };
        self.ended.push((operation.data, raw));
    }

    fn note_event(&mut self, slots: &Slots, event: Event, done: &mut Done) {
        if event.data >= FIRST_BELL {
            self.bells &= !(1 << (event.data - FIRST_BELL));
            self.fired = true;
            return;
        }
        let id = slots.named(event.data);
        self.in_kernel -= 1;
        let operation = *self.operations[id.slot as usize].get_mut();
        self.syncs -= u32::from(is_sync(&operation));
        self.silent -= usize::from(operation.flags & context::SIGNALS == 0);
        // It fits: no transfer exceeds TRANSFER_MAX.
        done.raw.push((id, event.result as i32));
    }

    /// Takes what is there, without sleeping. From now on the workers ring as `ring` says.
    fn gather(&mut self, slots: &Slots, done: &mut Done, ring: Ring) -> Result<(), Errno> {
        let mut taken = std::mem::take(&mut self.taken);
        let reaped = self.context.reap(&mut taken);
        self.taken = taken;
        self.settle(slots, done)?;
        reaped?;
        self.helper.collect(done, ring);
        Ok(())
    }

    /// Reads the events taken, and looks at what a bell has fired for: an armed bell would only fire for it again.
    fn settle(&mut self, slots: &Slots, done: &mut Done) -> Result<(), Errno> {
        let mut taken = std::mem::take(&mut self.taken);
        for event in taken.drain(..) {
            self.note_event(slots, event, done);
        }
        self.taken = taken;
        done.raw
            .extend(self.ended.drain(..).map(|(bits, raw)| (slots.named(bits), raw)));
        // Streams are told by a bell, if there is one.
        if std::mem::take(&mut self.fired) || (self.bells == 0 && self.helper.has_streams()) {
            self.helper.look(Some(&NOW))?;
        }
        Ok(())
    }

    /// Sleeps until `missing` more have ended, or a bell has fired.
    fn sleep(&mut self, missing: usize, deadline: Option<Time>) -> Result<(), Errno> {
        let mut at = earliest(deadline, self.helper.next_timer());
        let bells = self.bells.count_ones() as usize;
        if bells == 0 {
            // The kernel had no room for one. Nothing but time can end such a sleep in time.
            at = earliest(at, Some(sys::monotonic().after(TICK)));
            // What it would have told is looked for.
            self.fired = true;
        }
        let least = missing.min(bells.max(1));
        let mut taken = std::mem::take(&mut self.taken);
        let slept = self.context.wait(least, until(at).as_ref(), &mut taken);
        self.taken = taken;
        slept
    }
}

fn describe(operation: &mut Iocb, window: Window, offset: i64, [flat, list]: [u16; 2]) {
    operation.offset = offset;
    match window {
        Window::Flat { pointer, len } => {
            operation.opcode = flat;
            operation.buffer = pointer as u64;
            operation.bytes = len.min(TRANSFER_MAX) as u64;
        }
        Window::List { list: parts, count } => {
            operation.opcode = list;
            operation.buffer = parts as u64;
            operation.bytes = u64::from(count);
        }
    }
}

fn is_sync(operation: &Iocb) -> bool {
    matches!(operation.opcode, context::SYNC | context::DATA_SYNC)
}

impl Backend for Aio {
    fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize {
        for &id in queue {
            let (kind, caching) = slots.subject(id);
            slots.transition(id, State::Running);
            let Some(iteration) = slots.iteration(id, 0) else {
                continue;
            };
            let way = route(Kernel::Direct, kind, caching, &iteration.action);
            match (way, iteration.action) {
                (Way::Kernel, _) if self.prepare(id, &iteration) => {}
                (Way::Kernel, Action::Sync { .. }) => self.helper.take(id, iteration, Way::Pool(Class::Narrow)),
                (Way::Kernel, _) => self.helper.take(id, iteration, Way::Pool(Class::Wide)),
                (way, _) => self.helper.take(id, iteration, way),
            }
        }
        queue.len()
    }

    fn flush(&mut self) {
        self.helper.send();
        self.submit();
    }

    fn turn(&mut self, slots: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        self.helper.send();
        let Wait::Until { count, deadline, .. } = wait else {
            self.submit();
            return self.gather(slots, done, Ring::Never);
        };
        let want = count.max(1) as usize;
        self.submit();
        // With nothing in the kernel, only the helper's results are worth waking for, and it can count them itself.
        let ring = if self.in_kernel == 0 {
            Ring::When(want)
        } else {
            Ring::Next
        };
        self.gather(slots, done, ring)?;
        let missing = match want.saturating_sub(done.raw.len()) {
            // What waits for room in the context goes there when one has ended: all of them never would.
            2.. if !self.pending.is_empty() => 1,
            missing => missing,
        };
        if missing > 0 && !done.rang {
            let bells = if self.in_kernel == 0 { 1 } else { missing };
            let armed = self.bells;
            self.arm_bells(bells);
            if armed != self.bells {
                self.submit();
            }
            self.sleep(missing, deadline)?;
            self.settle(slots, done)?;
        } else if self.helper.is_look_due() {
            self.helper.look(Some(&NOW))?;
        }
        self.helper.collect(done, Ring::Never);
        Ok(())
    }

    fn cancel(&mut self, _: &Slots, id: RequestId) {
        // SAFETY: what is pending points into our table, and the kernel has not taken it.
        let mine = |&operation: &*mut Iocb| unsafe { (*operation).data == id.to_bits() };
        match self.pending.iter().position(mine) {
            Some(at) => {
                let operation = self.pending.remove(at);
                self.note_refusal(operation, Errno::ECANCELED);
            }
            None => self.helper.cancel(id),
        }
    }

    fn ready_fd(&mut self, arm: bool) -> Option<BorrowedFd<'_>> {
        if self.outside.is_none() {
            self.outside = Some(Outside::new(&self.helper).ok()?);
        }
        let tick = (arm && self.silent > 0).then(|| sys::monotonic().after(TICK));
        let outside = self.outside.as_ref()?;
        // What has completed until now is seen by the turn that follows.
        let _ = rustix::io::read(&outside.completed, &mut [0; 8]);
        self.helper.arm(arm, tick).ok()?;
        Some(outside.either.as_fd())
    }

    fn doorbell(&self) -> Doorbell {
        self.helper.doorbell()
    }

    fn explain(&self) -> Explain {
        let mut features = features(&self.helper, self.limits);
        features.push(("reaping_without_system_calls", self.ring.clone()));
        features.push((
            "kernel_cached_modes",
            Err("native AIO waits for the page cache, so worker threads do".into()),
        ));
        Explain {
            backend: NAME,
            features,
        }
    }

    fn refuses(&self, _: Op) -> Option<Error> {
        None
    }

    fn gains_by_gathering(&self) -> bool {
        true
    }

    fn disown(mut self: Box<Self>) {
        // The kernel gives a child no context; its ring would be the parent's.
        self.disowned = true;
        self.helper.disown();
    }

    fn system_calls(&self) -> u64 {
        self.context.system_calls() + self.helper.system_calls()
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // io_destroy waits for what is in flight, and a stuck device would never let it return: then the context is left to
        // the end of the process, as the engine leaves the memory.
        if !self.disowned && self.in_kernel == 0 {
            self.context.destroy();
        }
    }
}
