//! Checking a volume while it serves, as `baio check` checks one that nobody serves ([`crate::volume::check`]).
//!
//! The checker reads in a straight line and judges for long, so it has a thread of its own, with an engine and a description of the
//! volume's file of its own. The operation keeps the token meanwhile: the metadata stands still, reads and writes of segments go on.
//! When the thread has ended it rings the engine's doorbell. A device that is no file of the system (a simulated disk) cannot be
//! opened once more; it is checked at once, by the core's own engine.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use baio_engine::{Doorbell, Errno, Kind};

use crate::error::{Error, Fault, Result as CoreResult};
use crate::identity::Sight;
use crate::operation::{Answer, Context, Event, Step, Subject};
use crate::volume::check::{self, CheckProgress, CheckReport};
use crate::volume::device::Device;

/// What the thread tells.
#[derive(Debug, Default)]
struct Told {
    buckets_done: AtomicU64,
    buckets: AtomicU64,
    report: Mutex<Option<CoreResult<CheckReport>>>,
    /// Nobody waits for the report: the thread is to end.
    is_called_off: AtomicBool,
}

/// Rings when the thread has let go of what it tells, however it has ended.
struct Ended(Option<Arc<Told>>, Doorbell);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0 = None;
        self.1.ring();
    }
}

/// A check under way.
pub(crate) struct CheckVolume {
    pub(super) subject: Subject,
    told: Option<Arc<Told>>,
}

impl CheckVolume {
    pub(crate) fn new(subject: Subject) -> CheckVolume {
        CheckVolume { subject, told: None }
    }

    pub(super) fn progress(&self) -> Option<CheckProgress> {
        let told = self.told.as_ref()?;
        // Relaxed: nothing else is read by them.
        Some(CheckProgress {
            buckets_done: told.buckets_done.load(Ordering::Relaxed),
            buckets: told.buckets.load(Ordering::Relaxed),
        })
    }

    /// Has the thread ended? It has let go of what it tells then.
    pub(crate) fn is_over(&self) -> bool {
        self.told.as_ref().is_some_and(|told| Arc::strong_count(told) == 1)
    }

    pub(super) fn advance(&mut self, cx: &mut Context<'_>, event: Event) -> Result<Step, Fault> {
        let is_called_off = cx.is_abandoned || cx.claims.is_asked_to_end(cx.index);
        match (&self.told, event) {
            // Nobody waits for what the thread finds. It ends soon: until then there is no other beside it.
            (Some(told), Event::Turn) if is_called_off => {
                told.is_called_off.store(true, Ordering::Relaxed);
                Ok(Step::Requests)
            }
            (None, Event::Turn) => Ok(Step::Requests),
            (None, Event::Begin) => match cx.volume.device.sight(self.subject.who) {
                Sight::Whole => Ok(Step::Token),
                Sight::Own => Err(Fault::Access {
                    uid: self.subject.who.uid,
                }),
            },
            (None, Event::Token) if cx.volume.device.file.kind() == Kind::Foreign => {
                let device = Device::simulated(cx.volume.device.file.clone());
                let report = check::check_served(cx.engine, &device, &AtomicBool::new(false), &mut |_| {});
                Ok(Step::Done(report.map(Answer::Checked)))
            }
            (None, Event::Token) => {
                let told = Arc::new(Told::default());
                self.told = Some(told.clone());
                self.begin(cx, told)?;
                Ok(Step::Thread)
            }
            (Some(told), Event::Thread) => {
                let report = told.report.lock().unwrap_or_else(PoisonError::into_inner).take();
                let report = report.unwrap_or_else(|| {
                    let why = Fault::Unexpected("the end of the thread that checks");
                    Err(self.subject.error(why))
                });
                Ok(Step::Done(report.map(Answer::Checked)))
            }
            (_, event) => Err(cx.unexpected(&event)),
        }
    }

    fn begin(&self, cx: &Context<'_>, told: Arc<Told>) -> Result<(), Fault> {
        let file = &cx.volume.device.file;
        let (name, caching, identity) = (file.name().to_owned(), cx.volume.device.caching, file.identity());
        let ended = Ended(Some(told), cx.engine.doorbell());
        let run = move || {
            let Some(told) = &ended.0 else { return };
            let report = Device::beside(&name, caching).and_then(|device| {
                if device.file.identity() != identity {
                    let why = "another file has the name of the volume that is open".to_owned();
                    return Err(Error::new("check", device.name(), Fault::NotVolume(why)));
                }
                check::check_beside(&device, &told.is_called_off, &mut |progress| {
                    told.buckets.store(progress.buckets, Ordering::Relaxed);
                    told.buckets_done.store(progress.buckets_done, Ordering::Relaxed);
                })
            });
            *told.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
        };
        let begun = baio_process::thread::named("baio-check").start(run);
        begun.map(drop).map_err(|_| Fault::from(Errno::EAGAIN))
    }
}
