//! What comes back: completions into outcomes, and the end of the service into an error for everybody who waits.
//!
//! All of this runs under the client's lock and calls nobody: wakers are collected in the table.

use baio_broker::control::{Parcel, Reply};
use baio_engine::{Caching, Errno, Memory};
use baio_ring::ring::Refused;
use baio_storage::{Error, Fault, Handle, Outcome, SegmentOp, Ticket};
use baio_words::Failure;
use baio_words::entry::Completion;

use super::client::{Client, State};
use super::table::{Ended, Ending, Kind};
use super::translate;

impl Client {
    /// Takes what the service has posted; if it has ended, ends everything.
    pub(super) fn drain(&self, state: &mut State) {
        // Before the ring: whoever sees the end sees every completion posted before it.
        let mut ended = self.shared.has_ended();
        let ring = self.shared.completions.ring();
        let mut any = false;
        let mut for_queue = false;
        loop {
            match ring.pop(&mut state.completions) {
                Ok(Some(raw)) => {
                    any = true;
                    match Completion::decode(&raw) {
                        Some(completion) => for_queue |= self.completed(state, completion),
                        None => ended = true,
                    }
                }
                Ok(None) => break,
                Err(Refused::Broken | Refused::Full) => {
                    ended = true;
                    break;
                }
            }
        }
        if any {
            ring.release(&state.completions);
        }
        if ended {
            self.end_all(state);
        } else if for_queue {
            let any_will_do = state.followers.iter().filter(|(_, any)| *any);
            any_will_do.for_each(|(parker, _)| parker.ring());
        }
    }

    fn completed(&self, state: &mut State, completion: Completion) -> bool {
        let (ticket, index) = (completion.tag.into(), completion.tag.index);
        let Some(ending) = state.table.ending(ticket) else {
            return false; // Not ours: only a service that is wrong says so.
        };
        let parcel = self.shared.exchange.take(index);
        if ending.abandoned {
            if let Some(Parcel::Reply(reply)) = parcel
                && let Ok(Reply::Opened(handle, _)) = *reply
            {
                state.closing.push(handle); // Opened for somebody who has left.
            }
            state.table.end_abandoned(ticket, || {
                completion.result.map_err(|failure| errno(ending.kind, failure))
            });
            return false;
        }
        let ended = match (ending.kind, parcel) {
            (Kind::Request { op, handle, len }, parcel) => {
                let memory = match parcel {
                    Some(Parcel::Memory(memory)) => memory,
                    _ => Memory::None,
                };
                let explain = |failure| translate::error(op, name_of(&state.names, handle), len, failure);
                Ended::Request(Outcome {
                    ticket,
                    tag: ending.tag,
                    result: completion.result.map_err(explain),
                    bytes_done: completion.bytes_done,
                    memory,
                    took: completion.took,
                    iterations: completion.iterations,
                    pin: None,
                })
            }
            (Kind::Command, Some(Parcel::Reply(reply))) => Ended::Command(*reply),
            (Kind::Command, _) => Ended::Command(Err(Error::new("ask", &self.name, Fault::ServiceEnded))),
        };
        self.end(state, ticket, ended)
    }

    pub(super) fn end(&self, state: &mut State, ticket: Ticket, ended: Ended) -> bool {
        state.table.end(ticket, ended)
    }

    /// Nobody is there any more: whoever waits is told.
    fn end_all(&self, state: &mut State) {
        state.table.closed.get_or_insert(Fault::ServiceEnded);
        state.closing.clear();
        let mut from = 0;
        while let Some((ticket, sent)) = state.table.under_way(from) {
            from = ticket.parts().0;
            if let Some(ending) = state.table.ending(ticket) {
                self.lose(state, ticket, ending, sent);
            }
        }
        state.table.wake_room();
        state.followers.iter().for_each(|(parker, _)| parker.ring());
        state.helper.call();
    }

    /// One request that the service will not answer. A write that it had may or may not have taken effect.
    fn lose(&self, state: &mut State, ticket: Ticket, ending: Ending, sent: bool) {
        // What the service never took comes back.
        let parcel = self.shared.exchange.take(ticket.parts().0);
        if ending.abandoned {
            let failure = match ending.kind {
                Kind::Request {
                    op: SegmentOp::Write { .. },
                    ..
                } => Failure::Io(baio_engine::Error::Indeterminate),
                _ => Failure::Ending,
            };
            return state.table.end_abandoned(ticket, || Err(errno(ending.kind, failure)));
        }
        let ended = match ending.kind {
            Kind::Command => Ended::Command(Err(Error::new("ask", &self.name, Fault::ServiceEnded))),
            Kind::Request { op, handle, len } => {
                let memory = match parcel {
                    Some(Parcel::Memory(memory)) => memory,
                    _ => Memory::None,
                };
                let failure = match op {
                    SegmentOp::Write { .. } if sent && matches!(memory, Memory::None) => {
                        Failure::Io(baio_engine::Error::Indeterminate)
                    }
                    _ => Failure::Ending,
                };
                let error = translate::error(op, name_of(&state.names, handle), len, failure);
                Ended::Request(ended_early(ticket, ending.tag, error, memory))
            }
        };
        self.end(state, ticket, ended);
    }
}

/// A failure's number, for a status word.
fn errno(kind: Kind, failure: Failure) -> Errno {
    match kind {
        Kind::Request { op, len, .. } => translate::error(op, "", len, failure).errno(),
        Kind::Command => None,
    }
    .unwrap_or(Errno::EIO)
}

fn name_of(names: &[(Handle, String)], handle: Handle) -> &str {
    let found = names.iter().find(|(known, _)| *known == handle);
    found.map_or("a closed handle", |(_, name)| name)
}

pub(super) fn ended_early(ticket: Ticket, tag: u64, error: Error, memory: Memory) -> Outcome {
    Outcome {
        ticket,
        tag,
        result: Err(error),
        bytes_done: 0,
        memory,
        took: Caching::Direct,
        iterations: 0,
        pin: None,
    }
}
