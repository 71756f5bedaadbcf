//! Checking a volume while it serves, as `baio check` checks one that nobody serves ([`crate::volume::check`]).
//!
//! The checker reads in a straight line and judges for long, so it has a thread of its own, with an engine and a description of the
//! volume's file of its own. The operation keeps the token meanwhile: the metadata stands still, reads and writes of segments go on.
//! When the thread has ended it rings the engine's doorbell. A device that is no file of the system (a simulated disk) cannot be
//! opened once more; it is checked at once, by the core's own engine.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use baio_engine::{Doorbell, Errno, Kind as FileKind};

use crate::error::{Error, Fault, Result as CoreResult};
use crate::operation::waits::{Threaded, thread, thread_still, token, with};
use crate::operation::{Answer, Context, Failed, Kind, Operation, Subject, Taking};
use crate::volume::check::{self, CheckProgress, CheckReport};
use crate::volume::device::Device;

/// What the thread tells.
#[derive(Debug, Default)]
pub(crate) struct Told {
    buckets_done: AtomicU64,
    buckets: AtomicU64,
    report: Mutex<Option<CoreResult<CheckReport>>>,
    /// Nobody waits for the report: the thread is to end.
    is_called_off: AtomicBool,
    /// The thread has ended, however it has.
    is_over: AtomicBool,
}

impl Told {
    pub(crate) fn progress(&self) -> CheckProgress {
        // Relaxed: nothing else is read by them.
        CheckProgress {
            buckets_done: self.buckets_done.load(Ordering::Relaxed),
            buckets: self.buckets.load(Ordering::Relaxed),
        }
    }

    /// Has the thread ended?
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

/// Says that the thread has ended, however it has, and rings.
struct Ended(Arc<Told>, Doorbell);

impl Drop for Ended {
    fn drop(&mut self) {
        // Release: the report is read behind it.
        self.0.is_over.store(true, Ordering::Release);
        self.1.ring();
    }
}

/// The volume is checked.
pub(crate) fn check(subject: Subject) -> Operation {
    Operation::new(subject, Kind::Checks, Taking::Alone, run())
}

async fn run() -> Result<Answer, Failed> {
    with(|cx| cx.must_see_all())?;
    token().await?;
    if with(|cx| cx.volume.device.file.kind() == FileKind::Foreign) {
        let report = with(|cx| {
            let device = Device::unlocked(&cx.volume.device.file);
            check::check_served(cx.lane.engine_mut(), &device, &AtomicBool::new(false), &mut |_| {})
        });
        return Ok(Answer::Checked(Box::new(report?)));
    }
    let told = Arc::new(Told::default());
    with(|cx| {
        cx.shown.check = Some(told.clone());
        begin(cx, told.clone())
    })?;
    let mut threaded = thread().await?;
    while let Threaded::Turned = threaded {
        if with(|cx| cx.is_abandoned || cx.claims.is_asked_to_end(cx.index)) {
            // Nobody waits for what the thread finds. It ends soon: until then there is no other beside it.
            told.is_called_off.store(true, Ordering::Relaxed);
        }
        threaded = thread_still().await?;
    }
    let report = told.report.lock().unwrap_or_else(PoisonError::into_inner).take();
    let report = report.ok_or(Fault::Unexpected("the end of the thread that checks"))??;
    Ok(Answer::Checked(Box::new(report)))
}

/// Begins the thread.
fn begin(cx: &Context<'_>, told: Arc<Told>) -> Result<(), Fault> {
    let file = &cx.volume.device.file;
    let (name, caching, identity) = (file.name().to_owned(), cx.volume.device.caching, file.identity());
    let ended = Ended(told, cx.lane.engine().doorbell());
    let run = move || {
        let told = &ended.0;
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
