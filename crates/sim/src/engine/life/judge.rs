//! May this answer be given?

use baio_engine::{Caching, Completion, Durability, Errno, Error, Memory, Notice, Op, Patience};

use crate::engine::life::Life;
use crate::engine::model::{Landing, SECTOR, Wrong};
use crate::engine::request::{Asked, Does};

impl Life {
    pub(super) fn judge(&mut self, asked: &mut Asked, done: &Completion) -> Result<(), String> {
        let told = done.notice == Notice::Completed;
        if told {
            self.report.cancelled += u64::from(done.result == Err(Error::Cancelled));
            self.report.poisoned += u64::from(matches!(done.result, Err(Error::Poisoned(_))));
            self.judge_error(asked, done)?;
        }
        match asked.does {
            Does::Read if told => self.judge_read(asked, done),
            Does::Write | Does::Zero => self.judge_write(asked, done),
            Does::Sync => {
                if told && done.result == Ok(0) {
                    if asked.must_fail {
                        return Err("a sync succeeds behind a failed one that nobody has acknowledged".into());
                    }
                    self.report.synced += 1;
                    if !asked.doubtful {
                        self.model.sync(asked.ended, &asked.later);
                    }
                }
                Ok(())
            }
            Does::Read | Does::Reserve | Does::Nothing => Ok(()),
        }
    }

    fn judge_error(&mut self, asked: &Asked, done: &Completion) -> Result<(), String> {
        let Err(Error::System(errno)) = done.result else {
            return Ok(());
        };
        let is_interruption = matches!(errno, Errno::EINTR | Errno::EAGAIN);
        if is_interruption && asked.policy.patience == Patience::Wait {
            return Err(format!("{errno} reaches one who waits"));
        }
        if self.is_healthy {
            return Err(format!("a healthy disk says {errno}"));
        }
        let reports = asked.does == Does::Sync
            || (asked.policy.durability != Durability::None && asked.policy.caching == Caching::Kernel);
        if reports && !is_interruption && matches!(asked.op, Op::Sync | Op::Fence | Op::Write { .. }) {
            self.is_poisoned = true;
        }
        Ok(())
    }

    fn judge_read(&mut self, asked: &Asked, done: &Completion) -> Result<(), String> {
        let len = asked.bytes();
        if let Ok(count) = done.result
            && count as usize != len
        {
            return Err(format!("{count} of {len} bytes, and the file does not end there"));
        }
        let moved = (done.bytes_done as usize / SECTOR * SECTOR).min(len);
        let bytes = &mut self.scratch[..moved];
        match &done.memory {
            Memory::Own(buffer) => bytes.copy_from_slice(&buffer[..moved]),
            Memory::Span(span) => {
                span.copy_out(bytes);
            }
            other => return Err(format!("its memory came back as {other:?}")),
        }
        let checked = self
            .model
            .check_read(asked.sectors.start, bytes, !asked.doubtful)
            .map_err(|wrong| tell_wrong(&wrong))?;
        self.report.sectors_checked += checked;
        self.report.sectors_damaged += (moved / SECTOR) as u64 - checked;
        Ok(())
    }

    fn judge_write(&mut self, asked: &Asked, done: &Completion) -> Result<(), String> {
        let is_write = asked.does == Does::Write;
        let is_durable = is_write && asked.policy.durability != Durability::None;
        let whole = Landing {
            certain: is_durable || !asked.doubtful,
            safe: is_durable,
            // A short transfer of cached bytes ends anywhere; given up behind one, nobody is told.
            in_pieces: is_write
                && asked.policy.caching == Caching::Kernel
                && (done.iterations > 1
                    || done.notice == Notice::Released
                    || !(done.bytes_done as usize).is_multiple_of(SECTOR)),
        };
        let maybe = Landing {
            certain: false,
            ..whole
        };
        let moved = asked.sectors.start + done.bytes_done as usize / SECTOR;
        let end = asked.sectors.end;
        let word = |sector| asked.word(sector);
        let landed = match (done.notice, done.result) {
            (Notice::Completed, Ok(count)) => {
                if is_write && count as usize != asked.bytes() {
                    return Err(format!("a part of it, {count} bytes, is taken for the whole"));
                }
                self.model.land(asked.sectors.clone(), word, whole)
            }
            (Notice::Completed, Err(Error::Cancelled)) => {
                let partial = usize::from(!(done.bytes_done as usize).is_multiple_of(SECTOR));
                self.model.land(moved..moved + partial, word, maybe);
                self.model.land(asked.sectors.start..moved, word, whole)
            }
            (Notice::Completed, Err(_)) => {
                self.model.land(moved..end, word, maybe);
                self.model.land(asked.sectors.start..moved, word, whole)
            }
            (Notice::Released, _) => self.model.land(asked.sectors.clone(), word, maybe),
        };
        for sectors in &asked.damaged {
            self.model.damage(sectors.clone());
        }
        let tag = done.tag as usize;
        for &other in &self.in_flight {
            let other_asked = &mut self.asked[other];
            // A fence is one among the requests of its engine.
            if other_asked.op == Op::Fence && other > tag && self.ids[other].0 == self.ids[tag].0 {
                other_asked.later.push(landed);
            }
        }
        Ok(())
    }
}

pub(super) fn tell_wrong(wrong: &Wrong) -> String {
    format!(
        "sector {} holds {:016x} and could hold {:016x?}",
        wrong.sector, wrong.found, wrong.allowed
    )
}
