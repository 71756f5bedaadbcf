//! A replica: it reads the durable records of a log one read after the other while others append, truncate and grow, and holds what it has
//! not read yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use baio_engine::sim::Random;
use baio_storage::log::{LogAnswer, LogError, Lsn, RecordReader, Retained};

use super::model::{Model, Seen, Told, check_groups};
use super::rig::Rig;
use crate::violation::{Kind, Violation};

/// One who follows a log.
#[derive(Debug)]
pub struct Follower {
    number: u64,
    held: Retained,
    reader: RecordReader,
    /// It has had all groups below.
    at: u64,
    /// The read that is under way, and how far the log was durable when it began.
    asked: Option<(u64, u64)>,
    /// Set when truncation waits for it, if it has asked for that.
    woken: Option<Arc<Woken>>,
}

#[derive(Debug, Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Follower {
    /// It holds the oldest record that is kept, or what is to come.
    #[must_use]
    pub fn new(rig: &mut Rig, number: u64, random: &mut Random) -> Follower {
        let head = rig.head();
        let from = if random.percent(70) { head.0 } else { rig.durable() };
        let held = rig.retain(from);
        // Truncation may be on its way already, to the middle of a group.
        let is_boundary = held.from().0 == from;
        let at = if is_boundary { from } else { rig.durable() };
        rig.tell(Told::Held(number, held.from().0));
        Follower {
            number,
            held,
            reader: RecordReader::new(Lsn(at)),
            at,
            asked: None,
            woken: None,
        }
    }

    /// The oldest LSN that it holds.
    #[must_use]
    pub fn from(&self) -> u64 {
        self.held.from().0
    }

    /// It takes what it asked for, or asks for more.
    ///
    /// # Errors
    /// A broken promise.
    pub fn step(&mut self, rig: &mut Rig, model: &Model, random: &mut Random) -> Result<(), Violation> {
        rig.hear()?;
        self.look(rig, random)?;
        let Some((owner, durable)) = self.asked else {
            let durable = rig.durable();
            self.asked = Some((rig.begin_read(self.reader.next_batch())?, durable));
            return Ok(());
        };
        let Some(answer) = rig.answer(owner) else {
            return Ok(());
        };
        self.asked = None;
        let wrong = |kind, story: String| Err(Violation::new(kind, format!("a replica: {story}")));
        match answer {
            Ok(LogAnswer::Batches(Some(batches))) if !batches.ranges().is_empty() => {
                self.reader.push(&batches);
                if self.reader.is_damaged() {
                    return wrong(Kind::Leak, "what it gets is no row of records".into());
                }
            }
            Ok(LogAnswer::Batches(_)) => {
                let mut others = model.groups.iter().filter(|group| group.lsn >= self.at);
                return match others.find(|group| group.lsn < durable) {
                    Some(group) => wrong(
                        Kind::Lost,
                        format!("LSN {} is durable, and there is no more", group.lsn),
                    ),
                    None => Ok(()),
                };
            }
            // The same again.
            Err(LogError::Read { .. }) if rig.has_misread => return Ok(()),
            Err(LogError::Closed) => return Ok(()),
            other => return wrong(Kind::Lost, format!("reading at {} gave {other:?}", self.at)),
        }
        let mut seen = Vec::new();
        while let Some(record) = self.reader.next_record() {
            seen.push(Seen::of(&record));
        }
        let groups = model.groups.iter().filter(|group| group.lsn >= self.at);
        check_groups(groups, &seen).map_err(|violation| violation.after("a replica"))?;
        if let Some(last) = seen.last() {
            self.at = last.lsn + 1;
            if random.percent(60) {
                self.let_go(rig, self.at.next_multiple_of(8));
            }
        }
        Ok(())
    }

    fn let_go(&mut self, rig: &mut Rig, to: u64) {
        rig.tell(Told::Held(self.number, to));
        self.held.advance(Lsn(to));
        self.woken = None;
    }

    /// It goes, and holds nothing any more.
    pub fn leave(self, rig: &mut Rig) {
        rig.tell(Told::LetGo(self.number));
    }

    /// Nothing that it holds is given up; and truncation tells it when it waits.
    fn look(&mut self, rig: &Rig, random: &mut Random) -> Result<(), Violation> {
        let (head, from) = (rig.head().0, self.from());
        if head > from {
            let story = format!("a replica holds {from}, and the head is {head}");
            return Err(Violation::new(Kind::Lost, story));
        }
        let wanted = self.held.wanted();
        if wanted.is_some_and(|wanted| wanted.0 <= from) {
            let story = format!("a replica holds {from}, and truncation waits with {wanted:?}");
            return Err(Violation::new(Kind::Failed, story));
        }
        let is_woken = |woken: &Arc<Woken>| woken.0.load(Ordering::Relaxed);
        if self
            .woken
            .as_ref()
            .is_some_and(|woken| is_woken(woken) != wanted.is_some())
        {
            let story = format!("a replica that holds {from} is not told that truncation waits: {wanted:?}");
            return Err(Violation::new(Kind::Failed, story));
        }
        if wanted.is_none() && self.woken.is_none() && random.percent(50) {
            let woken = Arc::new(Woken::default());
            if self.held.poll_wanted(&Waker::from(Arc::clone(&woken))).is_pending() {
                self.woken = Some(woken);
            }
        }
        Ok(())
    }

    /// Everything has ended, and truncation was asked to go on to `to`.
    ///
    /// # Errors
    /// It is in the way, and does not know.
    pub fn is_told(&self, to: u64) -> Result<(), Violation> {
        let from = self.from();
        match self.held.wanted() {
            None if from < to => {
                let story = format!("truncation to {to} waits for a replica that holds {from}, and does not say so");
                Err(Violation::new(Kind::Failed, story))
            }
            _ => Ok(()),
        }
    }
}
