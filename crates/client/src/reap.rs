//! Turns completions into outcomes, and the end of the service into an error for every waiting request.
//!
//! All of this runs under the client's lock, so it calls no code of others: it collects wakers in the table.

use std::sync::Arc;
use std::task::Waker;

use baio_ring::exchange::Parcel;
use baio_ring::ring::Refused;
use baio_words::entry::{Completion, Tag};
use baio_words::{Caching, Errno, Failure, Handle, IoError, Outcome, RequestError, RequestFault, SegmentOp, Ticket};

use crate::carrier::{Between, Carrier};
use crate::parker::Parker;
use crate::state::State;
use crate::table::{Ended, Ending, Kind};

impl<K: Carrier> State<K> {
    /// Takes what the service has posted; if it has ended, ends everything. `name` is the service's, for messages.
    pub(crate) fn drain(&mut self, shared: &Between<K>, carrier: &K, name: &str) {
        self.hear_of_memory(carrier);
        if self.is_down {
            // Nothing is heard before another is there. Who has closed does not wait for that; a forked child hears nothing ever.
            if self
                .table
                .closed
                .is_some_and(|fault| fault != RequestFault::Io(IoError::Forked))
            {
                self.end_all(shared, carrier, name);
            }
            return;
        }
        let mut has_gone = false;
        if carrier.is_far() {
            // Before the answers: another thread, which sleeps, may read the last of them and the end right behind it.
            let has_ended = carrier.has_ended();
            // The socket before the ring: what announced a completion may have been read with it.
            while let Some((tag, reply)) = carrier.next_reply(&mut self.kept) {
                self.replied(shared, carrier, tag, reply);
            }
            has_gone = has_ended;
        }
        // Before the ring: whoever sees the end sees every completion posted before it.
        let mut ended = shared.has_ended() || has_gone;
        let (any, for_queue, is_broken) = self.take_completions(shared, carrier, name);
        ended |= is_broken;
        if ended && !self.awaits_another(shared, carrier) {
            self.end_all(shared, carrier, name);
        } else if for_queue || (any && self.table.in_flight() == 0) {
            self.tell_any();
        }
    }

    /// The service has ended. True: another one is looked for, and what is under way waits for that.
    fn awaits_another(&mut self, shared: &Between<K>, carrier: &K) -> bool {
        if !carrier.is_far() || shared.has_ended() || self.table.closed.is_some() {
            return false;
        }
        carrier.hang_up();
        self.is_down = carrier.looks_for_another();
        self.is_down
    }

    /// Whether any has come, whether any is for the queue, and whether the ring is not as any service leaves it.
    pub(crate) fn take_completions(&mut self, shared: &Between<K>, carrier: &K, name: &str) -> (bool, bool, bool) {
        let line = self.line.clone();
        let ring = line.as_deref().unwrap_or(shared).completions.ring();
        let (mut any, mut for_queue, mut ended) = (false, false, false);
        // Its cells are given back below: who fills more of them meanwhile than there are is as broken as one whose counter cannot be.
        let mut left = ring.capacity();
        loop {
            match ring.pop(&mut self.completions) {
                Ok(Some(raw)) if left > 0 => {
                    left -= 1;
                    any = true;
                    let completion = Completion::decode(&raw);
                    match completion.and_then(|completion| self.completed(shared, carrier, name, completion)) {
                        Some(is_for_queue) => for_queue |= is_for_queue,
                        None => ended = true,
                    }
                }
                Ok(None) => break,
                Ok(Some(_)) | Err(Refused::Broken | Refused::Full) => {
                    ended = true;
                    break;
                }
            }
        }
        if any {
            ring.release(&self.completions);
        }
        (any, for_queue, ended)
    }

    /// An outcome has come that is for anybody, or nothing is under way any more: who waits for either looks.
    pub(crate) fn tell_any(&self) {
        let any_will_do = self.followers.iter().filter(|(_, any)| *any);
        any_will_do.for_each(|(parker, _)| parker.ring());
    }

    /// Somebody gives up what another waits for, or waits for it himself. If the other is a thread behind whoever is on the bell,
    /// it looks; one that is on the bell itself hears of the end there.
    pub(crate) fn tell_waiter(&self, waker: &Waker) {
        // By the data alone: `will_wake` may say no to the same waker that was made elsewhere in the program.
        let its = |parker: &Arc<Parker<K>>| waker.data() == Arc::as_ptr(parker).cast();
        if let Some((parker, _)) = self.followers.iter().find(|(parker, _)| its(parker)) {
            parker.ring();
        }
    }

    /// A far service has answered a command.
    fn replied(&mut self, shared: &Between<K>, carrier: &K, tag: Tag, reply: K::Reply) {
        let ticket = tag.into();
        let ending = self.table.ending(ticket);
        let ending = ending.filter(|ending| matches!(ending.kind, Kind::Command));
        if ending.is_some() && carrier.keeps_commands() {
            self.litter.extend(shared.exchange.take(tag.index));
        }
        match ending {
            Some(ending) if !ending.abandoned => {
                self.table.end(ticket, Ended::Command(Ok(reply)));
                if self.table.in_flight() == 0 {
                    self.tell_any();
                }
            }
            ending => {
                self.unwanted(carrier, &reply);
                self.litter.push(Parcel::Reply(Box::new(reply)));
                if ending.is_some() {
                    self.table.end_abandoned(ticket, || Ok(0));
                }
            }
        }
    }

    fn unwanted(&mut self, carrier: &K, reply: &K::Reply) {
        if let Some(handle) = K::opened(reply) {
            self.closing.extend(carrier.close(&mut self.kept, handle)); // Opened for somebody who has left.
        }
    }

    /// Whether it is for the queue. `None` for the end of what is not under way: only a service that is wrong says so, and might for ever.
    fn completed(&mut self, shared: &Between<K>, carrier: &K, name: &str, mut completion: Completion) -> Option<bool> {
        let (ticket, index) = (completion.tag.into(), completion.tag.index);
        let ending = self.table.ending(ticket)?;
        // A service that ends cancels what it has, when it has hung up. It was not asked to: the next one is, if there is one.
        let is_cut_off = matches!(
            completion.result,
            Err(Failure::Io(IoError::Cancelled) | Failure::Ending)
        );
        if is_cut_off && carrier.keeps_commands() && !self.table.is_called_off(ticket) && carrier.has_just_ended() {
            return Some(false);
        }
        let mut parcel = shared.exchange.take(index);
        let behind = self.table.take_behind(ticket);
        if is_counted(ending.kind, &completion) {
            self.table.counts(ticket, completion.result.is_ok());
        }
        if carrier.is_far() {
            bounded(&mut completion, ending.kind);
            if completion.result == Err(Failure::Io(IoError::Indeterminate)) {
                // It was given up while it ran: the kernel of the other side may have the memory still, and nobody will tell when not.
                keep(parcel.take());
            }
        }
        if ending.abandoned {
            if let Some(Parcel::Reply(reply)) = &parcel {
                self.unwanted(carrier, reply);
            }
            self.litter.extend(parcel);
            self.litter.extend(behind.map(Parcel::Memory));
            self.table.end_abandoned(ticket, || {
                completion.result.map_err(|failure| errno(ending.kind, failure))
            });
            return Some(false);
        }
        let ended = match (ending.kind, parcel) {
            (Kind::Request { op, handle, len }, parcel) => {
                let memory = match parcel {
                    Some(Parcel::Memory(memory)) => memory,
                    _ => K::Memory::default(),
                };
                let memory = match behind {
                    Some(mut own) => {
                        let bytes = completion.result.unwrap_or(completion.bytes_done) as usize;
                        if matches!(op, SegmentOp::Read { .. }) {
                            carrier.copy_back(&mut own, &memory, bytes);
                        }
                        self.litter.push(Parcel::Memory(memory));
                        own
                    }
                    None => memory,
                };
                let explain = |failure| RequestError::of(op, name_of(&self.names, handle), len, failure);
                Ended::Request(Outcome {
                    ticket,
                    tag: ending.tag,
                    result: completion.result.map_err(explain),
                    bytes_done: completion.bytes_done,
                    memory,
                    took: completion.took,
                    iterations: completion.iterations,
                })
            }
            (Kind::Command, Some(Parcel::Reply(reply))) => Ended::Command(Ok(*reply)),
            (Kind::Command, _) => Ended::Command(Err(RequestError::new("ask", name, RequestFault::ServiceEnded))),
        };
        Some(self.table.end(ticket, ended))
    }

    /// Nobody is there any more: whoever waits is told.
    pub(crate) fn end_all(&mut self, shared: &Between<K>, carrier: &K, name: &str) {
        if carrier.is_far() && !shared.has_ended() {
            // What it posted cannot be, or it has gone.
            carrier.hang_up();
            shared.end();
        }
        self.is_down = false;
        self.table.closed.get_or_insert(end_of::<K>(shared));
        self.closing.clear();
        let mut from = 0;
        while let Some((ticket, sent)) = self.table.under_way(from) {
            from = ticket.parts().0;
            if let Some(ending) = self.table.ending(ticket) {
                self.lose(shared, carrier, name, ticket, ending, sent);
            }
        }
        self.table.wake_room();
        self.followers.iter().for_each(|(parker, _)| parker.ring());
        self.helper.call();
    }

    /// One request that the service will not answer. A write that it had may or may not have taken effect.
    fn lose(&mut self, shared: &Between<K>, carrier: &K, name: &str, ticket: Ticket, ending: Ending, sent: bool) {
        // What the service never took comes back.
        let mut parcel = shared.exchange.take(ticket.parts().0);
        let behind = self.table.take_behind(ticket);
        if carrier.is_far() && sent && matches!(parcel, Some(Parcel::Memory(_))) {
            // It was told where the memory is: the kernel may be at it for as long as the device takes.
            keep(parcel.take());
        }
        if ending.abandoned {
            self.litter.extend(parcel);
            self.litter.extend(behind.map(Parcel::Memory));
            let failure = match ending.kind {
                Kind::Request { op, .. } if op.changes_bytes() => Failure::Io(IoError::Indeterminate),
                _ => Failure::Ending,
            };
            return self.table.end_abandoned(ticket, || Err(errno(ending.kind, failure)));
        }
        let ended = match ending.kind {
            Kind::Command => {
                self.litter.extend(parcel);
                Ended::Command(Err(RequestError::new("ask", name, end_of::<K>(shared))))
            }
            Kind::Request { op, handle, len } => {
                let memory = match parcel {
                    Some(Parcel::Memory(memory)) => Some(memory),
                    _ => None,
                };
                let failure = match op.changes_bytes() && sent && memory.is_none() {
                    true => Failure::Io(IoError::Indeterminate),
                    false => Failure::Ending,
                };
                let mut error = RequestError::of(op, name_of(&self.names, handle), len, failure);
                if error.fault == RequestFault::ServiceEnded {
                    error.fault = end_of::<K>(shared);
                }
                // What went in its place may be the kernel's; the caller's own, of an earlier service, is nobody's.
                Ended::Request(ended_early(
                    ticket,
                    ending.tag,
                    error,
                    behind.or(memory).unwrap_or_default(),
                ))
            }
        };
        self.table.end(ticket, ended);
    }
}

/// Why a service has ended, as far as it could say.
fn end_of<K: Carrier>(shared: &Between<K>) -> RequestFault {
    let said = shared.broke_by().and_then(|errno| i32::try_from(errno).ok());
    said.map_or(RequestFault::ServiceEnded, |errno| {
        RequestFault::ServiceFailed(Errno::from_raw(errno))
    })
}

/// Memory that a kernel may write to that is not asked any more: it is never lent again, and with it the memory of the session stays
/// mapped.
fn keep<T>(parcel: Option<T>) {
    std::mem::forget(parcel);
}

/// Has a sync covered what it was to cover, or a write left bytes that are in no sync? One that failed may have done so too.
fn is_counted(kind: Kind, completion: &Completion) -> bool {
    match (kind, completion.result) {
        (_, Ok(_)) => true,
        (Kind::Command, _) => false,
        (Kind::Request { op, .. }, _) if op.is_sync() => false,
        (_, Err(Failure::Io(IoError::Indeterminate))) => true,
        (
            Kind::Request {
                op: SegmentOp::Write { .. },
                ..
            },
            _,
        ) => completion.bytes_done > 0,
        // Of zeros and discards nobody says how far they came.
        (_, Err(failure)) => matches!(failure, Failure::Io(_) | Failure::Cache { .. }),
    }
}

/// Another process cannot make more of a request than it was.
fn bounded(completion: &mut Completion, kind: Kind) {
    let most = match kind {
        Kind::Request { len, .. } => len,
        Kind::Command => 0,
    };
    completion.bytes_done = completion.bytes_done.min(most);
    completion.result = completion.result.map(|bytes| bytes.min(most));
}

/// A failure's number, for a status word.
fn errno(kind: Kind, failure: Failure) -> Errno {
    match kind {
        Kind::Request { op, len, .. } => failure.of(op, len).errno(),
        Kind::Command => Errno::EIO,
    }
}

pub(crate) fn name_of(names: &[(Handle, String)], handle: Handle) -> &str {
    let found = names.iter().find(|(known, _)| *known == handle);
    found.map_or("a closed handle", |(_, name)| name)
}

pub(crate) fn ended_early<M>(ticket: Ticket, tag: u64, error: RequestError, memory: M) -> Outcome<M> {
    Outcome {
        ticket,
        tag,
        result: Err(error),
        bytes_done: 0,
        memory,
        took: Caching::Direct,
        iterations: 0,
    }
}
