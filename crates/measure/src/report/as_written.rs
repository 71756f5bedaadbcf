//! Seed 003's test as it is written: a thousand writes of 512 bytes, posted as fast as possible, two times of each. On the device below
//! the working directory, with each of its I/O schedulers where that can be chosen; and on the document's disk, simulated.
//!
//! "Linux kernel AI/O helps with the 8.3ms issue. It does so by batching ~30 write request into a single unit ... the peaks for first
//! message in a batch are much higher than 8.3 us. (~30-60 ms)."
//!
//! What is modelled: a disk of 7200 turns a minute without a write cache, which takes 32 requests and serves the nearest first; a host
//! that needs 15 us to post one, or to give the disk the next one when another has ended; and in front of the disk room for all writes, or for
//! 128, as the kernel of that time had. Nothing merges requests, neither the host nor the disk.

use std::path::Path;
use std::time::Duration;

use baio_console::device::Device;
use baio_console::failure::Failure;
use baio_engine::sim::{Disk, Profile, Rotating, Sim, SimHandle};
use baio_engine::{Config, Engine, File, Memory, Policy, Request, Time, Wait};
use baio_stress::{Latency, Recorder};
use serde_json::{Value, json};

use crate::figures::child::{own_command_line, run_own};
use crate::figures::interrupt;
use crate::report::Setting;
use crate::report::charts::{OURS, Sweep, linear, logarithmic};
use crate::report::comparison::Findings;
use crate::report::work_dir::done_with;

const WRITES: usize = 1000;
const BYTES: usize = 512;

/// Requests that the disk takes.
const DISK_QUEUE: usize = 32;
/// What the kernel of that time had room for.
const KERNEL_QUEUE: usize = 128;
/// Every so many writes one is drawn.
const DRAWN: usize = 10;
/// What the host needs for each.
const HOST: Duration = Duration::from_micros(15);

pub(super) fn run(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let path = setting.dir.join("as-written.file");
    let done = on_this_device(&path, findings);
    done_with(&path);
    done?;
    let told = simulated(findings);
    told.map_err(|said| failed("the simulated disk", said))
}

fn failed(on: &str, said: String) -> Failure {
    Failure::new("report", "EIO", said)
        .on(on)
        .needing("our own side to run")
        .cured_by("run its command by itself and see what it says; `baio doctor` tells what works here")
}

fn on_this_device(path: &Path, findings: &mut Findings) -> Result<(), Failure> {
    let words = |further: &[&str]| -> Vec<String> {
        let target = path.display().to_string();
        let words = ["latency", &target, "--writes", "1000", "--size", "8M", "--json"];
        words.iter().chain(further).map(|word| (*word).to_owned()).collect()
    };
    let device = path.parent().and_then(|dir| Device::under(dir).ok().flatten());
    let may_choose = rustix::process::geteuid().is_root() && device.is_some_and(|device| device.schedulers.len() > 1);
    if may_choose {
        let words = words(&["--schedulers"]);
        match told(&words) {
            Ok(told) => {
                note(&words, &told, findings);
                return Ok(());
            }
            Err(reason) => findings.skip("as written, with each scheduler", &reason),
        }
    }
    let words = words(&[]);
    let told = told(&words).map_err(|said| failed(&own_command_line(&words), said))?;
    note(&words, &told, findings);
    Ok(())
}

fn told(words: &[String]) -> Result<Value, String> {
    let finished = run_own(words).map_err(|error| format!("start latency: {error}"))?;
    if !finished.success {
        return Err(finished.stderr.trim().to_owned());
    }
    serde_json::from_str(&finished.stdout).map_err(|error| format!("the output of latency: {error}"))
}

fn note(words: &[String], told: &Value, findings: &mut Findings) {
    let command = own_command_line(words);
    findings.errors += told["errors"].as_u64().unwrap_or(0);
    findings.lines.push(format!(
        "as written: {WRITES} writes of {} bytes, linear, posted at once; durability: {}, for {}",
        told["request_size"],
        told["durability"].as_str().unwrap_or("?"),
        told["durability_because"].as_str().unwrap_or("?"),
    ));
    let runs = told["runs"].as_array().map_or(&[][..], Vec::as_slice);
    for run in runs {
        let us = |of: &str, point: &str| run[of][point].as_f64().unwrap_or(f64::NAN);
        let scheduler = run["scheduler"].as_str().unwrap_or("unknown");
        let what = format!("as written, scheduler {scheduler}");
        let batch = run["batch_size_mean"].as_f64().unwrap_or(f64::NAN);
        let us = [
            ("p50 latency", us("latency_us", "p50")),
            ("longest latency", us("latency_us", "max")),
            ("first of a batch, p50", us("first_of_batch_latency_us", "p50")),
            ("first of a batch, longest", us("first_of_batch_latency_us", "max")),
            ("enqueuing call, p50", us("enqueue_us", "p50")),
            ("enqueuing call, longest", us("enqueue_us", "max")),
        ];
        findings.figure(&what, "writes in a batch", "", batch, None);
        for (figure, value) in us {
            findings.figure(&what, figure, "us", value, None);
        }
    }
    findings.parts.push(json!({
        "part": "as written",
        "command": command,
        "durability": told["durability"],
        "below": told["below"],
        "writes": runs,
    }));
}

/// How the writes are posted to the simulated disk.
#[derive(Clone, Copy)]
struct Posting {
    name: &'static str,
    /// Where the next one goes, from the one before.
    step: u64,
    /// Writes that may be enqueued and not complete; who posts more waits.
    room: usize,
}

const POSTINGS: [Posting; 4] = [
    Posting {
        name: "one at a time",
        step: BYTES as u64,
        room: 1,
    },
    Posting {
        name: "linear, a queue of 128",
        step: BYTES as u64,
        room: KERNEL_QUEUE,
    },
    Posting {
        name: "linear, a queue for all",
        step: BYTES as u64,
        room: WRITES,
    },
    Posting {
        name: "the same block, a queue for all",
        step: 0,
        room: WRITES,
    },
];

/// What came out, in virtual time.
struct Simulated {
    seconds: f64,
    latency: Latency,
    /// Time in the enqueuing call.
    enqueue: Latency,
    /// What one turn of the disk has written.
    batches: usize,
    first: Latency,
    /// Of some writes their number and their latency.
    each_ms: Vec<(usize, f64)>,
}

fn simulated(findings: &mut Findings) -> Result<(), String> {
    findings.lines.push(format!(
        "as written, on a simulated disk of 8.3 ms a turn without a write cache, which takes {DISK_QUEUE} requests; the host needs {} us \
         for each; virtual time (the document: about 30 a batch, the first of one after 30 to 60 ms)",
        HOST.as_micros()
    ));
    let mut rows = Vec::new();
    let mut sweep = Sweep::new(
        "each of a thousand writes, on the document's disk, simulated",
        linear("write", ""),
        logarithmic("until its end was known", "ms"),
    );
    for posting in POSTINGS {
        interrupt::check().map_err(|came| came.to_string())?;
        let told = posting.run()?;
        let each = WRITES as f64 / told.batches.max(1) as f64;
        let ms = |us: Option<f64>| us.unwrap_or(f64::NAN) / 1000.0;
        let what = format!("simulated, {}", posting.name);
        for &(number, ms) in &told.each_ms {
            sweep.point(posting.name, OURS, number as f64, ms);
        }
        findings.figure(&what, "writes in a batch", "", each, None);
        findings.figure(&what, "all", "s", told.seconds, None);
        for (figure, us) in [
            ("p50 latency", told.latency.p50),
            ("longest latency", told.latency.max),
            ("first of a batch, p50", told.first.p50),
            ("first of a batch, longest", told.first.max),
            ("enqueuing call, longest", told.enqueue.max),
        ] {
            findings.figure(&what, figure, "ms", ms(us), None);
        }
        rows.push(json!({
            "row": posting.name,
            "seconds": told.seconds,
            "batch_size_mean": each,
            "latency_us": told.latency,
            "first_of_batch_latency_us": told.first,
            "enqueue_us": told.enqueue,
        }));
    }
    let showed =
        "8.3 ms for each write alone; posted at once, about 30 of a batch, the first of one known after 30 to 60 ms";
    let here = "in virtual time: one at a time, and posted at once with room for 128 or for all";
    findings.charts.extend(sweep.chart(showed, here));
    let part = json!({ "part": "as written, on a simulated rotating disk", "rows": rows });
    findings.parts.push(part);
    Ok(())
}

impl Posting {
    fn run(self) -> Result<Simulated, String> {
        let disk = Disk::new(500 << 30);
        disk.set_profile(Profile::Rotating(Rotating::default()));
        let sim = Sim::new(3).map_err(|error| error.to_string())?;
        let clock = sim.handle();
        let config = Config {
            slots: DISK_QUEUE as u32 * 2,
            arena_bytes: 8 << 20,
            ..Config::default()
        };
        let engine = Engine::simulated(sim, &config).map_err(|error| error.to_string())?;
        let memory = || {
            let mut buffer = engine.buffer(BYTES)?;
            buffer.fill(b'D');
            Some(Memory::from(buffer))
        };
        let free = (0..DISK_QUEUE).map(|_| memory()).collect::<Option<_>>();
        let mut host = Host {
            posting: self,
            clock,
            free: free.ok_or("no buffer")?,
            engine,
            file: File::simulated(&disk, "disk"),
            times: Vec::with_capacity(WRITES),
            calls: false,
            sent: 0,
            ended: Vec::with_capacity(WRITES),
        };
        while host.ended.len() < WRITES {
            host.post();
            host.send()?;
            host.sleep()?;
        }
        Ok(host.told())
    }
}

/// Who posts, and what lies between it and the disk.
struct Host {
    posting: Posting,
    clock: SimHandle,
    engine: Engine,
    file: File,
    /// As many as the disk takes.
    free: Vec<Memory>,
    /// Of each write when it was enqueued, when that call had returned, and when its end was known.
    times: Vec<[Time; 3]>,
    /// It is in the enqueuing call, and waits for room.
    calls: bool,
    sent: usize,
    /// Numbers of those that have ended.
    ended: Vec<usize>,
}

impl Host {
    /// Writes whose enqueuing call has returned.
    fn enqueued(&self) -> usize {
        self.times.len() - usize::from(self.calls)
    }

    /// Whoever writes one at a time knows the end of one before it begins the next.
    fn can_post(&self) -> bool {
        let waits = self.posting.room == 1 && self.ended.len() < self.times.len();
        !self.calls && !waits && self.times.len() < WRITES
    }

    fn post(&mut self) {
        let now = self.clock.now();
        if self.can_post() {
            self.times.push([now; 3]);
            self.calls = true;
        }
        if self.calls && self.enqueued() - self.ended.len() < self.posting.room {
            self.calls = false;
            if let Some(last) = self.times.last_mut() {
                last[1] = now.after(HOST);
            }
        }
    }

    /// Gives the disk the next one, if it takes one.
    fn send(&mut self) -> Result<(), String> {
        if self.sent == self.enqueued() {
            return Ok(());
        }
        if let Some(memory) = self.free.pop() {
            let offset = self.sent as u64 * self.posting.step;
            let write = Request::write(&self.file, offset, memory, Policy::direct()).tagged(self.sent as u64);
            self.engine.submit(write).map_err(|_| "every slot is taken")?;
            self.sent += 1;
        }
        Ok(())
    }

    /// Until the host has something to do, and has done it.
    fn sleep(&mut self) -> Result<(), String> {
        let can_send = self.sent < self.enqueued() && !self.free.is_empty();
        if !self.can_post() && !can_send {
            self.turn(Wait::one())?;
        }
        let busy_until = self.clock.now().after(HOST);
        while self.clock.now() < busy_until {
            self.turn(Wait::Until {
                count: 0,
                min_wait: Duration::ZERO,
                deadline: Some(busy_until),
            })?;
        }
        Ok(())
    }

    /// Comes back when something has ended, too.
    fn turn(&mut self, wait: Wait) -> Result<(), String> {
        self.engine.turn(wait).map_err(|error| error.to_string())?;
        let now = self.clock.now();
        while let Some(completion) = self.engine.next_completion() {
            completion.result.map_err(|error| error.to_string())?;
            let number = completion.tag as usize;
            self.times[number][2] = now;
            self.ended.push(number);
            self.free.push(completion.memory);
        }
        Ok(())
    }

    fn told(&self) -> Simulated {
        let (mut latency, mut enqueue, mut first) = (Recorder::new(), Recorder::new(), Recorder::new());
        let mut batches = 0;
        // Between two turns of the disk nothing ends for most of a turn.
        let pause = Rotating::default().turn() / 2;
        let mut before = None;
        for &number in &self.ended {
            let [called, returned, known] = self.times[number];
            latency.record(known.since(called));
            enqueue.record(returned.since(called));
            if before.is_none_or(|before: Time| known.since(before) > pause) {
                batches += 1;
                first.record(known.since(called));
            }
            before = Some(known);
        }
        let ms =
            |(number, &[called, _, known]): (usize, &[Time; 3])| (number + 1, known.since(called).as_secs_f64() * 1e3);
        Simulated {
            seconds: self.clock.now().since(Time::default()).as_secs_f64(),
            latency: latency.latency(),
            enqueue: enqueue.latency(),
            batches,
            first: first.latency(),
            each_ms: self.times.iter().enumerate().step_by(DRAWN).map(ms).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documents_disk_shows_what_the_document_shows() {
        let [alone, blocked, posted, same] = POSTINGS.map(|posting| posting.run().unwrap());
        // "Each write required 8.3 ms."
        let p50 = alone.latency.p50.unwrap();
        assert!((8_000.0..8_700.0).contains(&p50), "{p50}");
        for told in [&blocked, &posted] {
            let each = WRITES / told.batches;
            assert!((25..60).contains(&each), "about 30 of a batch: {each}");
            assert!(told.seconds < alone.seconds / 20.0);
        }
        // "The enqueueing of writes seems to block every now and then."
        assert!(blocked.enqueue.max.unwrap() > 5_000.0 && posted.enqueue.max.unwrap() < 100.0);
        let first = blocked.first.p50.unwrap();
        assert!((15_000.0..60_000.0).contains(&first), "{first}");
        assert_eq!(same.batches, WRITES, "nothing merges them");
    }
}
