//! The end of one far service and the next one in its place.
//!
//! A client whose carrier looks for another service is *down* when its own has ended (`State::is_down`): it takes requests, sends nothing, and
//! whoever waits sleeps on. Then one of two things happens.
//!
//! | | [`Client::resume`] | [`Client::give_up`], or the client is closed |
//! |---|---|---|
//! | not sent yet | sent to the next one | ends as it does when a service ends |
//! | a read that was sent | sent again, or cancelled if it was called off | the same; its memory is kept for ever |
//! | a write, a sync that was sent | ends as indeterminate, with its memory | the same |
//! | a question that may be asked again | asked again | the same |
//! | any other | ends: the service has ended | the same |
//! | by a handle that is lost | ends, and says why | the same |
//!
//! A question that lies with the carrier, since its service has enough of them or the socket is full, was not sent ([`Carrier::unsent`]).
//!
//! **Memory.** What a service was shown is not given back while a kernel may still write to it for that service. Who calls
//! [`Client::resume`] knows that the former service has let go of all that was asked of it, so what it had comes back there, and only there.

use std::sync::Arc;

use baio_ring::exchange::Parcel;
use baio_ring::ring::Cursor;
use baio_words::entry::{HandleWords, Limits, Place, RawSubmission, Submission};
use baio_words::{Errno, Handle, IoError, RequestError, RequestFault, SegmentOp, Ticket};

use crate::carrier::{Between, Carrier};
use crate::client::Client;
use crate::reap::{ended_early, name_of};
use crate::state::State;
use crate::table::{Ended, Kind, Table};
use crate::unsynced::Counted;

impl<K: Carrier> Client<K> {
    /// Goes on with the service at the other end of `line`, which has as many places or more. `install` makes it the carrier's, under
    /// the client's lock, and says which of its handles are to be closed, since nobody wants them any more.
    ///
    /// **The former service has let go of everything**: of what was asked of it nothing can happen any more, and its kernel does not touch
    /// the memory that it was shown. The caller knows that.
    ///
    /// False: it was closed meanwhile, or is not down, and nothing was done.
    pub fn resume(&self, line: Arc<Between<K>>, install: impl FnOnce(&mut K::Kept) -> Vec<HandleWords>) -> bool {
        let mut state = self.lock();
        if state.table.closed.is_some() || !state.is_down {
            return false;
        }
        // What it had ended before it went, and nobody has looked at since.
        state.take_completions(&self.shared, &self.carrier, &self.name);
        // What this one's carrier could not send goes with the former service's wire.
        let unsent = self.carrier.unsent();
        unsent.into_iter().rev().for_each(|place| state.table.take_back(place));
        state.closing = install(&mut state.kept);
        state.line = Some(line);
        (state.submissions, state.completions) = (Cursor::default(), Cursor::default());
        state.is_down = false;
        let mut from = 0;
        while let Some((ticket, sent)) = state.table.under_way(from) {
            from = ticket.parts().0 + 1;
            self.goes_on(&mut state, ticket, sent);
        }
        state.table.wake_if_room();
        state.table.memory_came(1); // All that the next one has.
        let ring = self.flush(&mut state);
        state.followers.iter().for_each(|(parker, _)| parker.ring());
        state.helper.call();
        self.finish_up(state, ring);
        // Who sleeps there slept for the former one.
        self.shared.bell.ring();
        true
    }

    /// There is no other service: whoever waits is told.
    pub fn give_up(&self) {
        let mut state = self.lock();
        if state.is_down {
            state.end_all(&self.shared, &self.carrier, &self.name);
        }
        self.finish_up(state, false);
        self.shared.bell.ring();
    }

    /// Ends what was never sent and has waited until its deadline: nobody else looks at that while there is no service.
    pub fn end_overdue(&self) {
        let now = crate::sync::monotonic();
        let mut state = self.lock();
        let mut from = 0;
        while state.is_down {
            let Some((ticket, sent)) = state.table.under_way(from) else {
                break;
            };
            from = ticket.parts().0 + 1;
            let deadline = state.table.raw(ticket).and_then(|raw| submission(&raw)?.deadline);
            let is_request = !state.table.is_command(ticket);
            if is_request && !sent && deadline.is_some_and(|at| at <= now) {
                let memory = self.taken_back(&mut state, ticket);
                self.ends(&mut state, ticket, RequestFault::Io(IoError::Cancelled), memory);
            }
        }
        self.finish_up(state, false);
    }

    /// Called off while there is no service: what was not sent ends here, and what was is not asked of the next one.
    pub(crate) fn call_off_down(&self, state: &mut State<K>, ticket: Ticket) {
        let is_request = !state.table.is_command(ticket);
        let is_under_way = state.table.ending(ticket).is_some_and(|ending| !ending.abandoned);
        if is_request && is_under_way && !state.table.is_sent(ticket) {
            let memory = self.taken_back(state, ticket);
            return self.ends(state, ticket, RequestFault::Io(IoError::Cancelled), memory);
        }
        state.table.call_off(ticket);
    }

    /// What becomes of a request or question when another service takes over.
    fn goes_on(&self, state: &mut State<K>, ticket: Ticket, sent: bool) {
        let Some(ending) = state.table.ending(ticket) else {
            return;
        };
        match ending.kind {
            _ if ending.abandoned => {
                let parcel = self.shared.exchange.take(ticket.parts().0);
                let behind = state.table.take_behind(ticket).map(Parcel::Memory);
                state.litter.extend(parcel.into_iter().chain(behind));
                let errno = match ending.kind {
                    Kind::Request { op, .. } if op.changes_bytes() => IoError::Indeterminate.errno(),
                    _ => Errno::EPIPE,
                };
                state.table.end_abandoned(ticket, || Err(errno));
            }
            Kind::Command if sent => self.asks_again(state, ticket),
            Kind::Command => {}
            Kind::Request { op, handle, .. } => self.goes_on_with(state, ticket, op, handle, sent),
        }
    }

    fn goes_on_with(&self, state: &mut State<K>, ticket: Ticket, op: SegmentOp, handle: Handle, sent: bool) {
        let is_read = matches!(op, SegmentOp::Read { .. });
        if sent && !is_read {
            // It may have happened, or not, or in part. Its memory is the caller's again: nobody is at it any more.
            let memory = self.taken_back(state, ticket);
            return self.ends(state, ticket, RequestFault::Io(IoError::Indeterminate), memory);
        }
        if sent && state.table.is_called_off(ticket) {
            let memory = self.taken_back(state, ticket);
            return self.ends(state, ticket, RequestFault::Io(IoError::Cancelled), memory);
        }
        let words = self.carrier.words(&state.kept, handle);
        let raw = state.table.raw(ticket).and_then(|raw| submission(&raw));
        let memory = self.taken_back(state, ticket);
        let (words, raw) = match (words, raw) {
            (Ok(words), Some(raw)) => (words, raw),
            (words, _) => {
                let fault = words.err().unwrap_or(RequestFault::ServiceEnded);
                return self.ends(state, ticket, fault, memory);
            }
        };
        let (shown, behind) = match self.carrier.in_place_of(&state.kept, &memory, op) {
            Ok(Some(other)) => (other, Some(memory)),
            Ok(None) => (memory, None),
            Err(errno) => return self.ends(state, ticket, RequestFault::Io(IoError::System(errno)), memory),
        };
        let raw = Submission {
            handle: words,
            place: self.carrier.place(&state.kept, &shown),
            ..raw
        };
        if raw.place != Place::Nowhere {
            let _ = self.shared.exchange.put(ticket.parts().0, Parcel::Memory(shown));
        }
        state.table.send_again(ticket, raw.encode(), behind);
    }

    fn asks_again(&self, state: &mut State<K>, ticket: Ticket) {
        let place = ticket.parts().0;
        let mut parcel = self.shared.exchange.take(place);
        let may = match &mut parcel {
            Some(Parcel::Command(command)) => self.carrier.again(command),
            _ => false,
        };
        if let (true, Some(parcel), Some(raw)) = (may, parcel.take_if(|_| may), state.table.raw(ticket)) {
            let _ = self.shared.exchange.put(place, parcel);
            return state.table.send_again(ticket, raw, None);
        }
        state.litter.extend(parcel);
        let error = RequestError::new("ask", &self.name, RequestFault::ServiceEnded);
        state.table.end(ticket, Ended::Command(Err(error)));
    }

    /// The memory of a request as its caller knows it. What went in its place is given up.
    fn taken_back(&self, state: &mut State<K>, ticket: Ticket) -> K::Memory {
        let parcel = self.shared.exchange.take(ticket.parts().0);
        match (state.table.take_behind(ticket), parcel) {
            (Some(own), parcel) => {
                state.litter.extend(parcel);
                own
            }
            (None, Some(Parcel::Memory(memory))) => memory,
            (None, parcel) => {
                state.litter.extend(parcel);
                K::Memory::default()
            }
        }
    }

    fn ends(&self, state: &mut State<K>, ticket: Ticket, fault: RequestFault, memory: K::Memory) {
        let Some(ending) = state.table.ending(ticket) else {
            return;
        };
        let Kind::Request { op, handle, .. } = ending.kind else {
            return;
        };
        let error = RequestError {
            offset: op.offset(),
            ..RequestError::new(op.name(), name_of(&state.names, handle), fault)
        };
        let outcome = ended_early(ticket, ending.tag, error, memory);
        if state.table.end(ticket, Ended::Request(outcome)) {
            state.tell_any();
        }
    }
}

impl<K: Carrier> Table<K> {
    /// What the end of a request means for cached writes, and the caller's own memory, if other went in its place.
    pub(crate) fn attach(&mut self, ticket: Ticket, counted: Option<Counted>, behind: Option<K::Memory>) {
        if let Some(entry) = self.entry(ticket) {
            (entry.counted, entry.behind) = (counted, behind);
        }
    }

    pub(crate) fn call_off(&mut self, ticket: Ticket) {
        if let Some(entry) = self.entry(ticket) {
            entry.called_off = true;
        }
    }

    /// Did its caller ask that it end early?
    pub(crate) fn is_called_off(&mut self, ticket: Ticket) -> bool {
        self.entry(ticket).is_some_and(|entry| entry.called_off)
    }

    /// It has ended so that it counts.
    pub(crate) fn counts(&mut self, ticket: Ticket, well: bool) {
        if let Some(counted) = self.entry(ticket).and_then(|entry| entry.counted.take()) {
            counted.ends(well);
        }
    }

    /// The caller's own memory, if other went in its place.
    pub(crate) fn take_behind(&mut self, ticket: Ticket) -> Option<K::Memory> {
        self.entry(ticket).and_then(|entry| entry.behind.take())
    }

    /// The words of a request under way.
    pub(crate) fn raw(&mut self, ticket: Ticket) -> Option<RawSubmission> {
        self.entry(ticket).map(|entry| entry.raw)
    }
}

/// Words of this client's own.
fn submission(raw: &RawSubmission) -> Option<Submission> {
    let limits = Limits {
        places: u32::MAX,
        arena_bytes: u64::MAX,
    };
    Submission::decode(raw, &limits).ok()
}
