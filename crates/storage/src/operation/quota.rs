//! Setting what an owner may hold: one quota record per owner, found under the empty name. Without any limit there is none.
//!
//! Lowering a limit below what is held takes nothing away; it refuses what is to come.

use baio_engine::Completion;

use crate::error::Fault;
use crate::identity::Sight;
use crate::operation::lookup::{Looked, Lookup};
use crate::operation::update::{Update, Updated};
use crate::operation::vacate::Vacate;
use crate::operation::{Answer, Context, Event, Step, Subject};
use crate::segment::inode::{Inode, InodeState};
use crate::volume::accounts::Limits;

/// Where the operation stands.
enum Phase {
    /// Waiting for the token, which it then has to the end.
    Begin,
    /// Looking for the record.
    Looking(Lookup),
    /// Writing it.
    Recording(Update),
    /// Giving its slot up.
    Vacating(Vacate),
}

/// The setting of a quota under way.
pub(crate) struct SetQuota {
    pub(super) subject: Subject,
    limits: Limits,
    phase: Phase,
}

impl SetQuota {
    pub(crate) fn new(subject: Subject, limits: Limits) -> SetQuota {
        SetQuota {
            subject,
            limits,
            phase: Phase::Begin,
        }
    }

    pub(super) fn advance(&mut self, cx: &mut Context<'_>, event: Event) -> Result<Step, Fault> {
        let phase = std::mem::replace(&mut self.phase, Phase::Begin);
        match (phase, event) {
            (Phase::Begin, Event::Begin) => {
                let who = self.subject.who;
                if cx.volume.device.sight(who) != Sight::Whole {
                    return Err(Fault::Access { uid: who.uid });
                }
                cx.volume.may_change()?;
                Ok(Step::Token)
            }
            (Phase::Begin, Event::Token) => {
                self.phase = Phase::Looking(Lookup::begin(cx, self.subject.key.clone())?);
                Ok(Step::Requests)
            }
            (Phase::Looking(lookup), Event::Completed(completion)) => self.looked(cx, lookup, completion),
            (Phase::Recording(mut update), Event::Completed(completion)) => match update.completed(cx, completion)? {
                Updated::Done => Ok(self.done(cx)),
                Updated::Writing => {
                    self.phase = Phase::Recording(update);
                    Ok(Step::Requests)
                }
            },
            (Phase::Vacating(mut vacate), Event::Completed(completion)) => match vacate.completed(cx, completion)? {
                Updated::Done => Ok(self.done(cx)),
                Updated::Writing => {
                    self.phase = Phase::Vacating(vacate);
                    Ok(Step::Requests)
                }
            },
            (_, event) => Err(cx.unexpected(&event)),
        }
    }

    fn looked(&mut self, cx: &mut Context<'_>, mut lookup: Lookup, completion: Completion) -> Result<Step, Fault> {
        self.phase = match lookup.completed(cx, completion)? {
            Looked::Reading => Phase::Looking(lookup),
            Looked::Found { address, inode, bucket } if self.limits.is_none() => {
                let tombstone = inode.tombstone([0; 16]);
                Phase::Vacating(Vacate::begin(cx, bucket, address, &tombstone, None)?)
            }
            Looked::Found { address, inode, bucket } => {
                let record = self.record(inode.generation);
                Phase::Recording(Update::begin(cx, bucket, address, &record)?)
            }
            Looked::Absent(_) if self.limits.is_none() => return Ok(self.done(cx)),
            Looked::Absent(None) => {
                let segments_max = Some(cx.volume.superblock.geometry().segments_max);
                return Err(Fault::TableFull { segments_max });
            }
            Looked::Absent(Some(place)) => {
                let record = self.record(place.next_generation(cx)?);
                Phase::Recording(Update::begin(cx, place.bucket, place.at, &record)?)
            }
        };
        Ok(Step::Requests)
    }

    fn record(&self, generation: u64) -> Inode {
        Inode {
            state: InodeState::Quota,
            owner_uid: self.subject.key.owner_uid,
            generation,
            quota_blocks: self.limits.blocks.unwrap_or(u64::MAX),
            quota_segments: self.limits.segments.unwrap_or(u64::MAX),
            ..Inode::default()
        }
    }

    /// The record is durable: from now on it holds.
    fn done(&self, cx: &mut Context<'_>) -> Step {
        cx.release_token();
        let uid = self.subject.key.owner_uid;
        cx.volume.accounts.set_limits(uid, self.limits);
        Step::Done(Ok(Answer::Account(cx.volume.accounts.get(uid))))
    }
}
