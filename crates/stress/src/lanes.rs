//! The lanes of a run: threads that begin and end each stage together.
//!
//! A stage has three meetings: everybody is ready; (the first lane notes what the process has cost so far) go; everybody has
//! ended. A lane that cannot go on leaves, and the others no longer wait for it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use baio::{Local, Remote};
use baio_console::failure::Failure;
use baio_console::interrupt;
use baio_console::terminal::Terminal;

use super::cold;
use super::drive::{Driver, Signals};
use super::job::{Job, Objects, Verify};
use super::result::{Cut, LaneReport, Report, StageReport, threads_now};
use super::shown;
use super::target::Reach;
use super::verify::Ledger;
use crate::costs;

/// Runs a job.
///
/// # Errors
/// Something could not be set up, a block did not verify, or no request can succeed. Requests that fail one by one are
/// counted in the report.
pub(crate) fn run(job: &Job) -> Result<Report, Failure> {
    match &job.objects {
        Objects::Segment(segment) if job.service || segment.volume.is_served() => run_on::<Remote>(job),
        Objects::Files(_) | Objects::Segment(_) => run_on::<Local>(job),
    }
}

fn run_on<L: Reach>(job: &Job) -> Result<Report, Failure> {
    let ledgers = ledgers(job);
    let shared = L::share(job)?;
    let board = Board::new(job.lanes.len());
    let mut stages = Vec::new();
    std::thread::scope(|scope| {
        let (board, ledgers, shared) = (&board, &ledgers[..], &shared);
        let others = (1..job.lanes.len()).filter_map(|index| {
            let run = move || lane::<L>(job, index, shared, board, ledgers, &mut |_, _| ());
            let started = baio_process::thread::named("lane").start_in(scope, run);
            let no_thread = |error: std::io::Error| {
                board.fail(no_thread(job.command, job.lanes.len(), &error));
                // The others shall not wait for it.
                drop(Member(&board.meeting));
            };
            started.map_err(no_thread).ok()
        });
        let others: Vec<_> = others.collect();
        lane::<L>(job, 0, shared, board, ledgers, &mut |number, costs| {
            let mut lanes = std::mem::take(&mut *lock(&board.reports));
            lanes.sort_by_key(|report| report.lane);
            stages.push(StageReport {
                rw: job.stages[number].rw,
                lanes,
                costs,
                threads: threads_now(),
                rss_bytes: costs::own_memory_max(),
            });
        });
        for other in others {
            if other.join().is_err() {
                board.fail(Failure::new(job.command, "EIO", "a thread ended badly"));
            }
        }
    });
    if let Err(failure) = L::end(shared)
        && lock(&board.cut).is_none()
    {
        board.fail(failure);
    }
    if let Some(failure) = lock(&board.failure).take() {
        return Err(failure);
    }
    let by_failure = lock(&board.cut).take().map(Cut::Failure);
    let cut = by_failure.or_else(|| interrupt::came().map(Cut::Interrupt));
    let lanes = stages.iter().flat_map(|stage| &stage.lanes);
    let mut backends: Vec<&str> = lanes.map(|lane| lane.backend).collect();
    backends.sort_unstable();
    backends.dedup();
    // Where not every lane could have the same one, the figures are nobody's alone.
    let backend = backends.join("+");
    Ok(Report { stages, backend, cut })
}

/// The system gives no further thread.
fn no_thread(command: &'static str, wanted: usize, error: &std::io::Error) -> Failure {
    Failure::from_io(command, error)
        .on("a thread")
        .needing(format!("{wanted} threads that run at once"))
        .cured_by("take fewer threads, or raise the limit of processes (ulimit -u)")
}

fn ledgers(job: &Job) -> Vec<Arc<Ledger>> {
    let Some(verify) = job.verify else {
        return Vec::new();
    };
    let generation = u32::from(verify == Verify::Stamped);
    (0..job.objects.count())
        .map(|object| Arc::new(Ledger::new(job.end_of(object), job.request_size, generation)))
        .collect()
}

/// All that one thread does. The first lane, which runs in the caller's thread, tells the end of each stage.
fn lane<L: Reach>(
    job: &Job,
    index: usize,
    shared: &L::Shared,
    board: &Board,
    ledgers: &[Arc<Ledger>],
    ended: &mut dyn FnMut(usize, costs::Costs),
) {
    let member = Member(&board.meeting);
    let mut driver = match Driver::<L>::new(job, index, shared, ledgers, &board.signals) {
        Ok(driver) => driver,
        Err(failure) => return board.fail(failure),
    };
    if let Some(percent) = job.warm_percent {
        let warmed = driver.warm(percent);
        if let Some(failure) = warmed.fatal.or(warmed.cut).or(warmed.first_error) {
            return board.fail(failure);
        }
    }
    for (number, stage) in job.stages.iter().enumerate() {
        member.meet();
        if board.is_over() {
            break;
        }
        if index == 0
            && job.cold
            && let Err(failure) = cold::drop_pages(job)
        {
            board.fail(failure);
        }
        let before = costs::own_costs();
        member.meet();
        let shown = board.signals.ended.as_ref().filter(|_| index == 0);
        let shown = shown.map(|ended| shown::stage(job, stage, ended));
        let report = driver.run(stage, number);
        drop(shown);
        board.note(report);
        member.meet();
        if index == 0 {
            let costs = costs::own_costs() - before;
            ended(number, costs);
        }
    }
    if let Err(failure) = driver.close() {
        board.fail(failure);
    }
}

/// What the lanes share.
struct Board {
    meeting: Meeting,
    signals: Signals,
    /// Of the stage that is just ending.
    reports: Mutex<Vec<LaneReport>>,
    failure: Mutex<Option<Failure>>,
    /// What has ended the run, which has its figures all the same.
    cut: Mutex<Option<Failure>>,
}

impl Board {
    fn new(lanes: usize) -> Board {
        Board {
            meeting: Meeting::new(lanes),
            signals: Signals {
                ended: Terminal::of_stderr().map(|_| Arc::default()),
                ..Signals::default()
            },
            reports: Mutex::new(Vec::new()),
            failure: Mutex::new(None),
            cut: Mutex::new(None),
        }
    }

    fn note(&self, mut report: LaneReport) {
        if let Some(failure) = report.fatal.take() {
            self.fail(failure);
        }
        if let Some(failure) = report.cut.take() {
            lock(&self.cut).get_or_insert(failure);
            self.signals.stop.store(true, Ordering::Relaxed);
        }
        lock(&self.reports).push(report);
    }

    /// The first failure is the one to tell.
    fn fail(&self, failure: Failure) {
        lock(&self.failure).get_or_insert(failure);
        self.signals.stop.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        lock(&self.failure).is_some() || lock(&self.cut).is_some() || interrupt::came().is_some()
    }
}

/// A point that threads pass together. Unlike the standard library's barrier, a thread may leave for good.
struct Meeting {
    state: Mutex<Attendance>,
    opened: Condvar,
}

struct Attendance {
    members: usize,
    arrived: usize,
    /// Which meeting it is.
    round: u64,
}

impl Meeting {
    fn new(members: usize) -> Meeting {
        Meeting {
            state: Mutex::new(Attendance {
                members,
                arrived: 0,
                round: 0,
            }),
            opened: Condvar::new(),
        }
    }

    fn open_if_complete(&self, attendance: &mut Attendance) {
        if attendance.arrived >= attendance.members {
            attendance.arrived = 0;
            attendance.round += 1;
            self.opened.notify_all();
        }
    }
}

/// One thread's membership, which ends with it, however it ends.
struct Member<'a>(&'a Meeting);

impl Member<'_> {
    fn meet(&self) {
        let mut attendance = lock(&self.0.state);
        let round = attendance.round;
        attendance.arrived += 1;
        self.0.open_if_complete(&mut attendance);
        while attendance.round == round {
            attendance = self.0.opened.wait(attendance).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        let mut attendance = lock(&self.0.state);
        attendance.members -= 1;
        if attendance.arrived > 0 {
            self.0.open_if_complete(&mut attendance);
        }
    }
}

/// A thread that panicked has left nothing half-done behind these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn nobody_passes_before_all_have_come_or_left() {
        let meeting = Meeting::new(4);
        let passed = AtomicUsize::new(0);
        let reached = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for index in 0..4 {
                let (meeting, passed, reached) = (&meeting, &passed, &reached);
                scope.spawn(move || {
                    let member = Member(meeting);
                    if index == 3 {
                        // Leaves before the first meeting, or while the others wait.
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        return;
                    }
                    for round in 0..100 {
                        reached.fetch_add(1, Ordering::SeqCst);
                        member.meet();
                        assert!(reached.load(Ordering::SeqCst) >= 3 * (round + 1));
                        passed.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(passed.into_inner(), 300);
    }
}
