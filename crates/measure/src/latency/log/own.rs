//! Our own log as a side: in the thread that appends, which drives it when it waits (`Local`); or behind a service, to which any thread
//! appends (`Remote`).

use std::future::Future;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use baio::{Access, Drive, File, Link, LinkOptions, Local, Log, LogOptions, Lsn, Operation, Remote, Wait};
use baio_engine::{Choice, EngineOptions};

use super::Area;
use super::appender::Appender;
use super::stream::Batches;

/// A log that was made for a round.
pub(super) struct Own<L: Timed> {
    log: Log<L>,
    link: L,
    /// Polled by whoever waits.
    given_up: Mutex<GivenUp<L>>,
    driven: L::Driven,
    /// Records are given up when so many bytes have been appended.
    part: u64,
}

/// Old records are of no use here, and a log that is full takes no more.
struct GivenUp<L: Link> {
    /// Nothing before it is kept, or will be.
    to: u64,
    under_way: Option<Operation<L, Lsn>>,
}

/// A way to wait for a future until some moment.
pub(super) trait Timed: Link {
    /// Others drive it: who waits only sleeps.
    const SLEEPS: bool;
    /// While this is there, what is awaited over it is driven.
    type Driven;

    /// Drives it for the length of a round: who comes back to it for each wait would have to take the role each time.
    fn driven(&self) -> Self::Driven;

    /// Runs it to its end, or until `until`: then `None`.
    fn run<T>(&self, future: impl Future<Output = T>, until: Option<Instant>) -> Result<Option<T>, String>;

    fn made(options: &LinkOptions) -> baio::Result<Self>;

    fn opened(volume: &Path, options: &LinkOptions) -> baio::Result<Self>;
}

impl<L: Timed> Own<L> {
    /// Makes a log in a file, a device or a segment, all of whose bytes are lost.
    pub(super) fn create(area: Area<'_>, backend: Choice, log_options: &LogOptions) -> Result<Own<L>, String> {
        let default = EngineOptions::default();
        // The batches that it keeps, and as much again for those that wait.
        let batches = (log_options.window as usize + 2) * log_options.batch_bytes_max as usize;
        let engine = EngineOptions {
            backend,
            arena_bytes: default.arena_bytes.max(2 * batches),
            // As whoever has a log would: long batches are then written without looking up each page.
            register_arena: true,
            ..default
        };
        let options = LinkOptions {
            engine,
            ..LinkOptions::default()
        };
        let link = match area.segment {
            None => L::made(&options),
            Some(_) => L::opened(area.path, &options),
        };
        let link = link.map_err(|error| error.to_string())?;
        let log = make(&link, area, log_options).map_err(|error| error.to_string())?;
        let given_up = GivenUp {
            to: log.head_lsn().0,
            under_way: None,
        };
        Ok(Own {
            given_up: Mutex::new(given_up),
            driven: link.driven(),
            log,
            link,
            part: area.size / 4,
        })
    }

    /// Waits until everything is durable, and closes it.
    pub(super) fn end(self) -> Result<Batches, String> {
        let told = |error: baio::Error| error.to_string();
        drop(self.given_up);
        let end = self.log.end_lsn();
        if end > self.log.durable_lsn() {
            self.log.durable(Lsn(end.0 - 1)).wait().map_err(told)?;
        }
        let usage = self.log.usage().wait().map_err(told)?;
        self.log.close().wait().map_err(told)?;
        drop((self.log, self.driven));
        self.link.close().map_err(told)?;
        Ok(Batches {
            count: usage.batches,
            records: usage.batch_records,
            records_max: None,
            bytes: usage.batch_bytes,
        })
    }

    /// Goes on giving up old records, unless somebody else is at it.
    fn give_up(&self, context: &mut Context<'_>) {
        if let Ok(mut given_up) = self.given_up.try_lock() {
            given_up.poll(&self.log, self.part, context);
        }
    }

    /// Runs a future to its end, or until then, and gives up old records beside it.
    fn run<T>(
        &self,
        future: impl Future<Output = baio::Result<T>>,
        until: Option<Instant>,
    ) -> Result<Option<T>, String> {
        let mut future = pin!(future);
        let both = std::future::poll_fn(|context| {
            self.give_up(context);
            future.as_mut().poll(context)
        });
        let ended = self.link.run(both, until)?;
        ended.transpose().map_err(|error| error.to_string())
    }
}

impl<L: Link> GivenUp<L> {
    /// Goes on giving up old records, and begins it when so many bytes have been appended since.
    fn poll(&mut self, log: &Log<L>, part: u64, context: &mut Context<'_>) {
        loop {
            let durable = log.durable_lsn().0;
            if self.under_way.is_none() && durable > self.to + part {
                self.to = durable;
                self.under_way = Some(log.truncate(Lsn(durable)));
            }
            // One that has ended may be followed by another at once: nothing else may look here again.
            let Some(operation) = &mut self.under_way else { return };
            if Pin::new(operation).poll(context).is_pending() {
                return;
            }
            self.under_way = None;
        }
    }
}

fn make<L: Link>(link: &L, area: Area<'_>, options: &LogOptions) -> baio::Result<Log<L>> {
    if let Some((owner, name)) = area.segment {
        let segment = link.open_segment_of(owner, name, Access::Write).wait()?;
        return segment.create_log(options).wait();
    }
    let file: File<L> = File::options().write().direct().open(link, area.path).wait()?;
    file.create_log(options).wait()
}

impl<L: Timed> Appender for Own<L> {
    fn append(&self, record: &[u8]) -> Result<Option<u64>, String> {
        match self.log.append(record) {
            Ok(lsn) => Ok(Some(lsn.0 + 1)),
            Err(error) if matches!(error.errno(), Some(baio::Errno::EAGAIN | baio::Errno::ENOSPC)) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn wait(&self, end: u64, until: Option<Instant>) -> Result<u64, String> {
        if L::SLEEPS && until.is_none() {
            // It goes on by itself, and is looked at again by the next who waits.
            self.give_up(&mut Context::from_waker(Waker::noop()));
            let durable = self.log.durable(Lsn(end - 1)).wait();
            durable.map_err(|error| error.to_string())?;
        } else {
            self.run(self.log.durable(Lsn(end - 1)), until)?;
        }
        Ok(self.log.durable_lsn().0)
    }

    fn room(&self, bytes: usize) -> Result<(), String> {
        self.run(self.log.room(bytes), None).map(drop)
    }
}

impl Timed for Local {
    const SLEEPS: bool = false;
    type Driven = Drive;

    fn driven(&self) -> Drive {
        self.drive()
    }

    fn run<T>(&self, future: impl Future<Output = T>, until: Option<Instant>) -> Result<Option<T>, String> {
        let told = |error: baio::Error| error.to_string();
        let Some(until) = until else {
            return self.block_on(future).map(Some).map_err(told);
        };
        // The turn itself ends at that moment, as a loop of its own has it: a timer for each wait would cost more than the wait. All that
        // happens on this link happens in its turns, so nobody has to be woken to look again.
        let mut future = pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        let left = || until.saturating_duration_since(Instant::now());
        let deadline = Some(self.now().after(left()));
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                return Ok(Some(value));
            }
            if left().is_zero() {
                return Ok(None);
            }
            self.turn(Wait::Until {
                count: u32::from(self.in_flight() > 0),
                min_wait: Duration::ZERO,
                deadline,
            })
            .map_err(told)?;
        }
    }

    fn made(options: &LinkOptions) -> baio::Result<Local> {
        Local::new_with(options)
    }

    fn opened(volume: &Path, options: &LinkOptions) -> baio::Result<Local> {
        Local::open_with(volume, options)
    }
}

impl Timed for Remote {
    const SLEEPS: bool = true;
    type Driven = ();

    fn driven(&self) {}

    /// The service's thread drives it: this one only sleeps.
    fn run<T>(&self, future: impl Future<Output = T>, until: Option<Instant>) -> Result<Option<T>, String> {
        let mut future = pin!(future);
        WAKER.with(|waker| {
            let mut context = Context::from_waker(waker);
            loop {
                if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                    return Ok(Some(value));
                }
                match until.map(|until| until.saturating_duration_since(Instant::now())) {
                    None => std::thread::park(),
                    Some(Duration::ZERO) => return Ok(None),
                    Some(left) => std::thread::park_timeout(left),
                }
            }
        })
    }

    fn made(options: &LinkOptions) -> baio::Result<Remote> {
        Remote::new_with(options)
    }

    fn opened(volume: &Path, options: &LinkOptions) -> baio::Result<Remote> {
        Remote::open_with(volume, options)
    }
}

thread_local! {
    /// Made once: a thread waits for many records.
    static WAKER: Waker = Waker::from(Arc::new(Sleeper(std::thread::current())));
}

struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Sleeper>) {
        self.0.unpark();
    }
}
