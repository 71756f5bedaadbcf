//! A rotating disk, as the documents had one, simulated in virtual time; and a program on a single processor that reads or writes it,
//! with so many requests ahead of the one that it processes. So a report on a machine without such a disk shows what the documents
//! saw, beside what is measured here.
//!
//! What is modelled: the disk of `baio_engine::sim` (7200 turns a minute, a queue of 32 from which the nearest is served first,
//! reading on, no write cache), and time in which the processor can do nothing else. Nothing merges requests.

use std::time::Duration;

use baio_console::failure::Failure;
use baio_engine::sim::{Disk, Profile, Rotating, Sim, SimHandle};
use baio_engine::{Config, Engine, File, Memory, Policy, Request, Time, Wait};
use baio_stress::mix;

use crate::figures::interrupt;

/// What the names of its rows begin with.
pub(super) const SIMULATED: &str = "the document's disk, simulated";

const DISK_BYTES: u64 = 500 << 30;

/// What is done there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// The working set lies in the middle of the disk.
    pub(super) bytes: u64,
    /// Bytes of a request.
    pub(super) size: u64,
    pub(super) write: bool,
    pub(super) sequential: bool,
    pub(super) requests: u64,
    /// What the processor needs to give the disk a request.
    pub(super) call: Duration,
    /// What it does with each that has ended.
    pub(super) processing: Duration,
}

/// A program at its work.
struct Host {
    work: Work,
    clock: SimHandle,
    engine: Engine,
    file: File,
    free: Vec<Memory>,
    /// Ended, and not processed.
    ended: Vec<Memory>,
    begun: u64,
    /// Processed, or about to be.
    done: u64,
}

impl Work {
    /// Requests a second with so many ahead of the one that is processed; with none, each is waited for and then processed.
    ///
    /// # Errors
    /// The simulation came to no end, or the report is to end.
    pub(super) fn rate(self, ahead: u32) -> Result<f64, Failure> {
        interrupt::refuse()?;
        self.simulated(ahead).map_err(|said| {
            Failure::new("report", "EIO", said)
                .on("the simulated disk")
                .needing("a simulation that comes to its end")
                .cured_by("report it: a simulation needs nothing of this machine but memory")
        })
    }

    fn simulated(self, ahead: u32) -> Result<f64, String> {
        let disk = Disk::new(DISK_BYTES);
        disk.set_profile(Profile::Rotating(Rotating::default()));
        let sim = Sim::new(4).map_err(|error| error.to_string())?;
        let clock = sim.handle();
        let buffers = ahead as usize + 1;
        let config = Config {
            slots: buffers as u32 * 2,
            arena_bytes: buffers * self.size as usize + (1 << 20),
            ..Config::default()
        };
        let engine = Engine::simulated(sim, &config).map_err(|error| error.to_string())?;
        let free = (0..buffers).map(|_| engine.buffer(self.size as usize).map(Memory::from));
        let mut host = Host {
            work: self,
            free: free.collect::<Option<_>>().ok_or("no buffer")?,
            clock,
            engine,
            file: File::simulated(&disk, "disk"),
            ended: Vec::with_capacity(buffers),
            begun: 0,
            done: 0,
        };
        host.all(ahead as usize)?;
        let seconds = host.clock.now().since(Time::default()).as_secs_f64();
        Ok(self.requests as f64 / seconds)
    }
}

impl Host {
    fn all(&mut self, ahead: usize) -> Result<(), String> {
        while self.done < self.work.requests {
            if self.ended.is_empty() {
                self.fill(ahead.max(1))?;
            }
            if self.ended.is_empty() {
                self.turn(Wait::one())?;
            }
            if let Some(memory) = self.ended.pop() {
                self.free.push(memory);
                self.done += 1;
                // The next ones are with the disk before this one is processed.
                self.fill(ahead)?;
                self.busy(self.work.processing)?;
            }
        }
        Ok(())
    }

    /// Until so many are with the disk.
    fn fill(&mut self, most: usize) -> Result<(), String> {
        while self.begun < self.work.requests && ((self.begun - self.done) as usize) < self.ended.len() + most {
            let Some(memory) = self.free.pop() else { break };
            self.begin(self.begun, memory)?;
            self.begun += 1;
        }
        Ok(())
    }

    fn begin(&mut self, number: u64, memory: Memory) -> Result<(), String> {
        let Work { bytes, size, .. } = self.work;
        let block = if self.work.sequential { number } else { mix(number + 1) };
        let offset = DISK_BYTES / 2 + block % (bytes / size) * size;
        let policy = Policy::direct();
        let request = if self.work.write {
            Request::write(&self.file, offset, memory, policy)
        } else {
            Request::read(&self.file, offset, memory, policy)
        };
        self.engine.submit(request).map_err(|_| "every slot is taken")?;
        self.busy(self.work.call)
    }

    /// The processor does this, while the disk goes on.
    fn busy(&mut self, time: Duration) -> Result<(), String> {
        let until = self.clock.now().after(time);
        // What waits in the queue is with the disk from the beginning.
        self.turn(Wait::No)?;
        while self.clock.now() < until {
            self.turn(Wait::Until {
                count: 0,
                min_wait: Duration::ZERO,
                deadline: Some(until),
            })?;
        }
        Ok(())
    }

    fn turn(&mut self, wait: Wait) -> Result<(), String> {
        self.engine.turn(wait).map_err(|error| error.to_string())?;
        while let Some(completion) = self.engine.next_completion() {
            completion.result.map_err(|error| error.to_string())?;
            self.ended.push(completion.memory);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANDOM: Work = Work {
        bytes: 40 << 20,
        size: 8 << 10,
        write: false,
        sequential: false,
        requests: 300,
        call: Duration::from_micros(15),
        processing: Duration::ZERO,
    };

    #[test]
    fn one_at_a_time_takes_what_the_disk_takes_and_the_processing() {
        let bare = RANDOM.rate(0).unwrap();
        // Half a turn, a seek within a small set.
        assert!((100.0..260.0).contains(&bare), "{bare}");
        let processing = Duration::from_secs_f64(1.0 / bare);
        let with = Work { processing, ..RANDOM }.rate(0).unwrap();
        assert!((0.4..0.6).contains(&(with / bare)), "{with} of {bare}");
    }

    #[test]
    fn processing_hides_behind_the_disk_and_a_queue_shortens_its_ways() {
        let processing = Duration::from_millis(3);
        let work = Work { processing, ..RANDOM };
        let [raw, one, many] = [0, 1, 32].map(|ahead| work.rate(ahead).unwrap());
        assert!(one > 1.2 * raw, "one ahead hides the processing: {one}, {raw}");
        assert!(many > 1.2 * one, "and many are served by the nearest: {many}, {one}");
        assert!(many <= 1.0 / processing.as_secs_f64() * 1.01, "{many}");
    }

    #[test]
    fn in_order_the_disk_streams() {
        let work = Work {
            sequential: true,
            size: 16 << 10,
            ..RANDOM
        };
        let [one, many] = [0, 16].map(|ahead| work.rate(ahead).unwrap() * 16384.0 / 1e6);
        assert!((60.0..161.0).contains(&one) && many >= one, "{one} and {many} MB/s");
    }
}
