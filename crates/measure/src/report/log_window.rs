//! What a second batch in flight gives a durable log: records a second and their latencies with a window of 1, 2 and 4, on simulated
//! devices, in virtual time. What smaller batches cost a processor is not seen there.
//!
//! What is modelled:
//! - flash: 90 us for a durable write (FUA); or 15 us into its cache, and 400 us for the flush behind it. Up to 20 % more by chance, 32
//!   requests at a time.
//! - a disk of 7200 turns a minute, on which a durable write ends on the platter; or a write ends in a cache of 16 MiB, and the flush behind
//!   it when the platter has it. With FUA and without a cache are the same to a log.
//! - a host that needs 10 us for each turn of its loop.
//!
//! A closed loop is one thread that keeps records waiting; an open one brings them at random moments, whatever the log does.

use std::collections::VecDeque;
use std::time::Duration;

use baio_console::failure::Failure;
use baio_engine::sim::{Disk, Flash, Profile, Rotating, Sim, SimHandle};
use baio_engine::{Config, Engine, File, Time, Wait};
use baio_storage::log::{Appender, LogAnswer, LogError, LogOptions, Lsn};
use baio_storage::{Access, Core, Format, HeldLog, LogReply, format_simulated};
use baio_stress::{Latency, Random, Recorder};
use serde_json::json;

use crate::figures::interrupt;
use crate::report::charts::{OURS, Sweep, linear, logarithmic};
use crate::report::comparison::Findings;
use crate::report::{Setting, storage_failure};

const WINDOWS: [u32; 3] = [1, 2, 4];

/// Bytes of the log: nothing has to be given up meanwhile.
const LOG_BYTES: u64 = 32 << 20;

const CACHE_BYTES: u64 = 16 << 20;

/// What the host needs from the end of a turn to the beginning of the next.
const HOST: Duration = Duration::from_micros(10);

struct Device {
    name: &'static str,
    profile: fn() -> Profile,
    /// Can a single write be made durable?
    has_fua: bool,
    loads: [Load; 4],
}

/// How records come.
#[derive(Clone, Copy)]
enum Load {
    /// So many waiting, of so many bytes.
    Waiting(usize, usize),
    /// So many a second, of 256 bytes.
    Rate(u32),
}

/// Of a fast device: the rates are half of what one write at a time can do, and many a batch.
const FAST: [Load; 4] = [
    Load::Waiting(64, 256),
    Load::Waiting(512, 4096),
    Load::Rate(5_000),
    Load::Rate(100_000),
];

/// Of a slow one.
const SLOW: [Load; 4] = [
    Load::Waiting(64, 256),
    Load::Waiting(512, 4096),
    Load::Rate(60),
    Load::Rate(2_000),
];

const DEVICES: [Device; 4] = [
    Device {
        name: "flash, FUA",
        profile: flash,
        has_fua: true,
        loads: FAST,
    },
    Device {
        name: "flash, a flush behind each write",
        profile: flash,
        has_fua: false,
        loads: FAST,
    },
    Device {
        name: "rotating, FUA or no cache",
        profile: rotating,
        has_fua: true,
        loads: SLOW,
    },
    Device {
        name: "rotating, a flush behind each write",
        profile: rotating,
        has_fua: false,
        loads: SLOW,
    },
];

fn flash() -> Profile {
    Profile::Flash(Flash::default())
}

fn rotating() -> Profile {
    Profile::Rotating(Rotating::default().cached(CACHE_BYTES))
}

/// What came out, in virtual time.
struct Told {
    appends_per_second: f64,
    latency: Latency,
}

pub(crate) fn run(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let records = setting.either(300, 3_000);
    findings.lines.push(format!(
        "simulated devices, virtual time, {records} records each; with {WINDOWS:?} batches in flight at most"
    ));
    for device in &DEVICES {
        let mut rows = Vec::new();
        let mut sweep = Sweep::new(
            format!("a durable append, {}", device.name),
            linear("batches in flight at most", ""),
            logarithmic("p50 latency", "ms"),
        );
        for load in device.loads {
            let mut row = json!({ "row": load.said() });
            for window in WINDOWS {
                interrupt::refuse()?;
                let told = device.load(load, window, records)?;
                let ms = |us: Option<f64>| us.unwrap_or(f64::NAN) / 1000.0;
                let what = format!("{}, {}, window {window}", device.name, load.said());
                sweep.point(&load.said(), OURS, f64::from(window), ms(told.latency.p50));
                findings.figure(&what, "records/s", "1/s", told.appends_per_second, None);
                findings.figure(&what, "p50 latency", "ms", ms(told.latency.p50), None);
                findings.figure(&what, "p99 latency", "ms", ms(told.latency.p99), None);
                row[format!("window_{window}")] = json!({
                    "appends_per_second": told.appends_per_second,
                    "latency_us": told.latency,
                });
            }
            rows.push(row);
        }
        findings.charts.extend(sweep.chart("", "simulated, in virtual time"));
        findings.parts.push(json!({ "part": device.name, "rows": rows }));
    }
    Ok(())
}

impl Load {
    fn said(self) -> String {
        match self {
            Load::Waiting(count, bytes) => format!("{count} waiting, of {bytes} bytes"),
            Load::Rate(rate) => format!("{rate} a second at random"),
        }
    }

    fn bytes(self) -> usize {
        match self {
            Load::Waiting(_, bytes) => bytes,
            Load::Rate(_) => 256,
        }
    }
}

impl Device {
    fn load(&self, load: Load, window: u32, records: usize) -> Result<Told, Failure> {
        let mut machine = self.machine(window)?;
        let fits = LOG_BYTES as usize / 2 / load.bytes().max(512);
        let records = records.min(fits);
        match load {
            Load::Waiting(count, _) => machine.closed(count, load.bytes(), records)?,
            Load::Rate(rate) => machine.open(rate, load.bytes(), records)?,
        }
        Ok(machine.told())
    }

    fn machine(&self, window: u32) -> Result<Machine, Failure> {
        let config = Config {
            slots: 64,
            arena_bytes: 64 << 20,
            ..Config::default()
        };
        let broken = |said: String| Failure::new("report", "EIO", said).on("a simulated device");
        let sim = Sim::new(5).map_err(|error| broken(error.to_string()))?;
        let clock = sim.handle();
        let mut engine = Engine::simulated(sim, &config).map_err(|error| broken(error.to_string()))?;
        // A core wants a volume, which has nothing to do here.
        let volume = File::simulated(&Disk::new(16 << 20), "a volume");
        format_simulated(&mut engine, &volume, &Format::default()).map_err(storage_failure)?;
        let mut core = Core::open_simulated(engine, &volume, &config).map_err(storage_failure)?;
        let disk = Disk::new(LOG_BYTES);
        if !self.has_fua {
            disk.ignore_durability();
        }
        let handle = core.add_file(File::simulated(&disk, "log"), Access::Write);
        let options = LogOptions {
            window,
            ..LogOptions::default()
        };
        // At the speed of memory.
        let question = core.begin_create_log(handle, &options).map_err(storage_failure)?;
        let log = match core.wait_log(&question).map_err(storage_failure)? {
            LogReply::Opened(log, LogAnswer::Opened(_)) => log,
            other => return Err(broken(format!("{other:?}"))),
        };
        disk.set_profile((self.profile)());
        Ok(Machine {
            core,
            appender: log.appender().quiet(),
            log,
            began: clock.now(),
            clock,
            waiting: VecDeque::new(),
            latency: Recorder::new(),
        })
    }
}

/// A log on a simulated device, and who appends to it.
struct Machine {
    core: Core,
    appender: Appender,
    log: HeldLog,
    clock: SimHandle,
    began: Time,
    /// Records and since when they count.
    waiting: VecDeque<(Lsn, Time)>,
    latency: Recorder,
}

impl Machine {
    fn closed(&mut self, count: usize, bytes: usize, records: usize) -> Result<(), Failure> {
        let record = vec![7; bytes];
        let mut left = records;
        while left > 0 || !self.waiting.is_empty() {
            while left > 0 && self.waiting.len() < count {
                let now = self.clock.now();
                self.append(&record, now)?;
                left -= 1;
            }
            self.turn(None)?;
        }
        Ok(())
    }

    fn open(&mut self, rate: u32, bytes: usize, records: usize) -> Result<(), Failure> {
        let record = vec![7; bytes];
        let mut random = Random::new(11);
        let mut gap = || {
            let even = ((random.word() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
            Duration::from_secs_f64(-even.ln() / f64::from(rate))
        };
        let mut next = self.clock.now().after(gap());
        let mut left = records;
        while left > 0 || !self.waiting.is_empty() {
            while left > 0 && next <= self.clock.now() {
                self.append(&record, next)?;
                next = next.after(gap());
                left -= 1;
            }
            self.turn((left > 0).then_some(next))?;
        }
        Ok(())
    }

    fn append(&mut self, record: &[u8], since: Time) -> Result<(), Failure> {
        let lsn = self.appender.append(record).map_err(|error| self.failed(error))?;
        self.waiting.push_back((lsn, since));
        Ok(())
    }

    fn failed(&self, error: LogError) -> Failure {
        storage_failure(self.log.failed("append to", error))
    }

    /// Sleeps until something has ended, or until then; and takes what is durable.
    fn turn(&mut self, deadline: Option<Time>) -> Result<(), Failure> {
        let wait = Wait::Until {
            count: u32::from(!self.waiting.is_empty()),
            min_wait: Duration::ZERO,
            deadline,
        };
        self.core.turn(wait).map_err(storage_failure)?;
        let (now, durable) = (self.clock.now(), self.appender.durable_lsn());
        while let Some(&(_, since)) = self.waiting.front().filter(|(lsn, _)| *lsn < durable) {
            self.waiting.pop_front();
            self.latency.record(now.since(since));
        }
        // The engine's turns alone: what is appended by then is not submitted before the log's.
        let busy_until = now.after(HOST);
        while self.clock.now() < busy_until {
            let wait = Wait::Until {
                count: 0,
                min_wait: Duration::ZERO,
                deadline: Some(busy_until),
            };
            let turned = self.core.engine_mut().turn(wait);
            turned.map_err(|error| Failure::new("report", "EIO", error.to_string()).on("a simulated device"))?;
        }
        Ok(())
    }

    fn told(&self) -> Told {
        let seconds = self.clock.now().since(self.began).as_secs_f64();
        Told {
            appends_per_second: self.latency.count() as f64 / seconds.max(1e-9),
            latency: self.latency.latency(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_alone_takes_what_the_device_takes() {
        let of = |device: usize, load, window| DEVICES[device].load(load, window, 200).unwrap();
        let p50 = |told: &Told| told.latency.p50.unwrap();
        let flash = p50(&of(0, Load::Waiting(1, 256), 1));
        assert!((90.0..112.0).contains(&flash), "a durable write: {flash}");
        let flushed = p50(&of(1, Load::Waiting(1, 256), 1));
        assert!((415.0..510.0).contains(&flushed), "a write and a flush: {flushed}");
        let turn = p50(&of(2, Load::Waiting(1, 256), 1));
        assert!((8_000.0..8_700.0).contains(&turn), "a turn: {turn}");
    }

    #[test]
    fn a_second_batch_saves_who_comes_late_the_wait_for_the_first() {
        let of = |window| DEVICES[0].load(Load::Rate(5_000), window, 1_000).unwrap();
        let [one, two] = [1, 2].map(|window| of(window).latency.mean.unwrap());
        assert!(two < one, "{two} us instead of {one}");
    }
}
