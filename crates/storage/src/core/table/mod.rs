//! The table of a core: the volume's metadata, and the operations on it. There is one, however many lanes there are.
//!
//! It does not know the requests. What it wants of those who carry them it tells a [`LaneDoor`], and what they tell it comes by
//! [`Table::hear`].

mod freeze;
pub(in crate::core) mod operations;
mod token;

use std::task::Waker;

use baio_engine::Errno;

use self::operations::Running;
use self::token::Token;
use super::tags::Recipient;
use crate::crossing::{LaneDoor, ToLane, ToTable};
use crate::error::Fault;
use crate::operation::Event;
use crate::operation::claims::Claims;
use crate::operation::freeze::Freeze;
use crate::segment::probe::SlotAddress;
use crate::slot_map::{SlotKey, SlotMap};
use crate::volume::Volume;

/// See the module.
pub(in crate::core) struct Table {
    pub(in crate::core) volume: Option<Volume>,
    pub(in crate::core) running: SlotMap<Running>,
    /// Which operations have the table token, and who waits for it.
    pub(in crate::core) token: Token,
    /// Operations that go on at the next turn.
    pub(in crate::core) next_turn: Vec<SlotKey>,
    /// Who is changing which segment, and who waits for the end of that.
    pub(in crate::core) claims: Claims,
    pub(in crate::core) waiting_for_claim: Vec<u32>,
    /// Segments whose moves were stopped for nothing.
    pub(in crate::core) goes_on: Vec<SlotAddress>,
    /// Operations that wait for a thread of theirs.
    pub(in crate::core) with_threads: Vec<SlotKey>,
    /// Who keeps the device still.
    pub(in crate::core) freeze: Freeze,
    /// How many ranges operations have held so far.
    pub(in crate::core) holds_made: u64,
    /// Those who wait for an answer that is there.
    pub(in crate::core) fired: Vec<Waker>,
}

impl Table {
    pub(in crate::core) fn new(volume: Option<Volume>) -> Table {
        Table {
            volume,
            running: SlotMap::default(),
            token: Token::default(),
            next_turn: Vec::new(),
            claims: Claims::default(),
            waiting_for_claim: Vec::new(),
            goes_on: Vec::new(),
            with_threads: Vec::new(),
            freeze: Freeze::default(),
            holds_made: 0,
            fired: Vec::new(),
        }
    }

    /// What a lane tells.
    pub(in crate::core) fn hear(&mut self, lane: &mut dyn LaneDoor, message: ToTable) {
        match message {
            ToTable::HasCome { operation } => {
                let running = self.running.get_mut(operation);
                if running.is_some_and(|running| !running.requests_are_still()) {
                    self.step(lane, operation.index, Event::Drained);
                }
            }
            ToTable::Uncached { tag, ended } => {
                if let Some(operation) = Recipient::of(tag) {
                    self.tell_operation(lane, operation, Event::Uncached(ended));
                }
            }
            ToTable::Shrunk => {
                if let Some(volume) = &mut self.volume {
                    volume.latch();
                }
            }
            ToTable::Thaw { freeze } => self.thaw(lane, freeze),
            ToTable::LogClaims { handle, at } => {
                let may = self.may_have_log(at);
                lane.obey(ToLane::LogMay { handle, may });
            }
        }
    }

    /// Operations that go on at the next turn, when the device is still, or when a thread of theirs has ended.
    pub(in crate::core) fn in_flight(&self) -> usize {
        self.next_turn.len() + self.with_threads.len() + usize::from(self.awaits_stillness())
    }

    /// Would a turn go on with something at once?
    pub(in crate::core) fn has_news(&self) -> bool {
        !self.next_turn.is_empty() || self.is_still_at_last()
    }

    /// May a log be opened in a segment? Not where nothing may be changed, nor where somebody is about to take its end away.
    fn may_have_log(&self, at: SlotAddress) -> Result<(), Fault> {
        self.volume.as_ref().map_or(Ok(()), Volume::may_change)?;
        match self.claims.refuses_logs(at) {
            true => Err(Errno::EBUSY.into()),
            false => Ok(()),
        }
    }
}
