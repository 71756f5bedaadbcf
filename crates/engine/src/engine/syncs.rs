//! One sync of a file at a time, shared by all requests that wait for one.
//!
//! If two syncs overlap, the kernel reports lost data to one of them only, and the other succeeds. So a second sync waits.
//! Those that wait are answered together, by one sync that starts after the last of them was submitted and
//! therefore covers what each of them covers: a group commit (seed 001 §7.1: concurrent fsyncs of one file).
//!
//! A write that no flag makes durable (`durable.rs`), and an allocation, take their place among them when they are done.

use super::Engine;
use crate::device::DurableBy;
use crate::durable;
use crate::error::Error;
use crate::file::File;
use crate::judge::tells_of_lost_data;
use crate::policy::Durability;
use crate::request::RequestId;
use crate::slot::{Slot, State};

impl Engine {
    /// A sync whose turn has come as far as writes are concerned: runs, joins one that has not started, or waits.
    pub(super) fn admit_sync(&mut self, id: RequestId) {
        let Some(file) = self.slots.get(id).and_then(|slot| slot.file.clone()) else {
            self.queue.push(&self.slots, id);
            return;
        };
        let Some(leader) = self.leader_of(&file) else {
            self.lead(file, id);
            return;
        };
        // One that has to be tried again starts anew.
        let not_started = |slot: &Slot| slot.state == State::Queued;
        if self.slots.get(leader).is_some_and(not_started) {
            self.follow(id, leader);
        }
        self.slots.transition(id, State::Held);
        self.awaiting_sync.push(&self.slots, id);
    }

    /// What a durable request asked for is done, but not durable yet.
    pub(super) fn go_on_as_sync(&mut self, id: RequestId) {
        let Some(slot) = self.slots.get_mut(id) else { return };
        slot.is_syncing = true;
        self.stats.durable_by_sync += 1;
        let file = slot.file.as_ref().filter(|file| file.durable_by() == DurableBy::Sync);
        if let Some(file) = file {
            if self.flag_not_kept.is_none() {
                self.flag_not_kept = Some(format!("{} ({})", file.name(), durable::name_of(file.file_system())));
            }
        }
        self.slots.transition(id, State::Queued);
        self.admit_sync(id);
    }

    /// A sync has ended. Those that it stands for are told the same; of those that wait, one goes on for all.
    pub(super) fn sync_ended(&mut self, id: RequestId, result: Result<u32, Error>) {
        let Some(at) = self.syncing.iter().position(|(_, leader)| *leader == id) else {
            return;
        };
        let (file, _) = self.syncing.swap_remove(at);
        // A refusal, a cancellation or an impatience is its own affair: the others still want to know.
        let proves = match result {
            Ok(_) => true,
            Err(Error::System(errno)) => tells_of_lost_data(errno),
            // Poisoned, too: who followed may have begun behind that failure.
            Err(_) => false,
        };
        let mut next = None;
        self.awaiting_sync.swept(&self.slots);
        let mut waiting = std::mem::take(&mut self.awaiting_sync);
        waiting.retain(|held| {
            let Some(slot) = self.slots.get_mut(held) else {
                return false;
            };
            if slot.file.as_ref().is_none_or(|other| !other.is(&file)) {
                return true;
            }
            let follows = slot.follows.take() == Some(id) && proves;
            let failed = slot.failed_meanwhile();
            if follows && (result.is_err() || failed.is_none()) {
                // Of a write, its bytes.
                self.answered.push((held, result.map(|_| slot.done as u32)));
            } else if let Some(errno) = failed {
                self.answered.push((held, Err(Error::Poisoned(errno))));
            } else if let Some(leader) = next {
                self.follow(held, leader);
                return true;
            } else {
                next = Some(held);
            }
            false
        });
        self.awaiting_sync = waiting;
        if let Some(id) = next {
            self.slots.transition(id, State::Queued);
            self.lead(file, id);
        }
        let mut answered = std::mem::take(&mut self.answered);
        for (id, result) in answered.drain(..) {
            self.finish(id, result);
        }
        self.answered = answered;
    }

    fn leader_of(&self, file: &File) -> Option<RequestId> {
        let of_file = |(other, _): &&(File, RequestId)| other.is(file);
        self.syncing.iter().find(of_file).map(|(_, leader)| *leader)
    }

    fn lead(&mut self, file: File, id: RequestId) {
        self.syncing.push((file, id));
        self.queue.push(&self.slots, id);
    }

    /// The leader's sync shall prove what this one asks for, too.
    fn follow(&mut self, id: RequestId, leader: RequestId) {
        let Some(slot) = self.slots.get_mut(id) else { return };
        slot.follows = Some(leader);
        let wanted = slot.policy.durability;
        if wanted == Durability::Full {
            if let Some(leader) = self.slots.get_mut(leader) {
                leader.policy.durability = Durability::Full;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::error::{Errno, Error};
    use crate::{Choice, Durability, Engine, EngineOptions, File, Op, Policy, Request, Space, Wait};

    #[test]
    fn who_follows_a_cancelled_sync_is_not_told_that_it_was_cancelled() {
        let config = EngineOptions {
            backend: Choice::Sync,
            ..EngineOptions::default()
        };
        let mut engine = Engine::new(&config).unwrap();
        let file = File::from_fd(tempfile::tempfile().unwrap().into(), "a file").unwrap();
        let [leader, _] = [0; 2].map(|_| engine.submit(Request::sync(&file, Durability::Data)).unwrap());
        // As a cached durable write does that fails meanwhile.
        file.poison(Errno::EIO);
        engine.cancel(leader);
        let told: Vec<_> = std::iter::from_fn(|| engine.next_completion())
            .map(|c| c.result)
            .collect();
        assert_eq!(told, [Err(Error::Cancelled), Err(Error::Poisoned(Errno::EIO))]);
    }

    /// Whoever acknowledges a failure speaks for what he knows of. What was under way may have been lost with it, and the kernel
    /// has told all that it will tell.
    #[test]
    fn what_was_under_way_when_a_sync_failed_is_not_proven_by_an_acknowledgement() {
        let config = EngineOptions {
            backend: Choice::Sync,
            ..EngineOptions::default()
        };
        let mut engine = Engine::new(&config).unwrap();
        let file = File::from_fd(tempfile::tempfile().unwrap().into(), "a file").unwrap();
        let durable = Policy::kernel().durable(Durability::Data);
        let space = Space::Reserve;
        let op = Op::Allocate {
            offset: 0,
            len: 4096,
            space,
        };
        let write = |engine: &Engine, policy| Request::write(&file, 0, engine.buffer(4096).unwrap(), policy);
        let before = [
            Request::bare(op, Some(&file), durable),
            write(&engine, durable),
            Request::sync(&file, Durability::Data),
            Request::sync(&file, Durability::Full),
            write(&engine, Policy::kernel()),
        ];
        let before = before.map(|request| engine.submit(request).unwrap());
        // As another engine's sync does.
        file.poison(Errno::EIO);
        assert_eq!(file.acknowledge_failure(), Some(Errno::EIO));
        let behind = engine.submit(Request::sync(&file, Durability::Data)).unwrap();
        engine.turn(Wait::for_count(6)).unwrap();
        let mut told: Vec<_> = std::iter::from_fn(|| engine.next_completion()).collect();
        let mut told = |id| told.remove(told.iter().position(|done| done.id == id).unwrap()).result;
        let lost = Err(Error::Poisoned(Errno::EIO));
        assert_eq!(before.map(&mut told), [lost, lost, lost, lost, Ok(4096)]);
        assert_eq!(told(behind), Ok(0), "nothing has failed since");
    }
}
