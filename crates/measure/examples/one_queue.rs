//! Messages through a pipe from one thread to another, beside direct reads of a file. By the engine, the reads of the disk
//! and of the pipe complete in one queue, and one thread waits for both; by blocking calls, each needs a thread.
//!
//! A message says its number and the sum of its bytes, and what arrives is checked. A program that need not block takes what
//! there is: so the sender writes several messages by one request, and the receiver reads as many as have come.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use baio_engine::{Arena, Caching, Descriptions, Engine, EngineOptions, File, Memory, Open, Policy, Request, Wait};
use baio_measure::program::{self, Measurement, Random, joined, words};
use serde::{Deserialize, Serialize};

const MESSAGE: usize = 4096;
const DISK_READ: u64 = 4096;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// Read directly at random places.
    pub(crate) path: PathBuf,
    pub(crate) messages: u64,
    /// Messages in one write or read of the pipe at most, by the engine; a pipe holds sixteen of 4 KiB, on either side.
    pub(crate) under_way: u32,
    pub(crate) disk_reads: u64,
    /// Direct reads in flight; by blocking calls as many threads.
    pub(crate) disk_depth: u32,
    /// By the engine or by blocking calls?
    pub(crate) engine: bool,
}

fn main() -> ExitCode {
    program::tell(words("one_queue FILE [by blocking calls]").and_then(|(path, words)| {
        run(&Job {
            path,
            messages: 160_000,
            under_way: 16,
            disk_reads: 16_000,
            disk_depth: 8,
            engine: words.is_empty(),
        })
    }))
}

pub(crate) fn run(job: &Job) -> Result<Measurement, String> {
    let blocks = std::fs::metadata(&job.path).map_err(|error| error.to_string())?.len() / DISK_READ;
    if blocks == 0 {
        return Err("the file is too short".into());
    }
    let (reader, writer) = std::io::pipe().map_err(|error| format!("pipe: {error}"))?;
    let begun = Instant::now();
    let (arrived, errors, backend) = if job.engine {
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| send_by_engine(job, writer.into()));
            let received = receive_by_engine(job, blocks, reader.into());
            joined(sender.join())?;
            received
        })?
    } else {
        by_blocking_calls(job, blocks, reader, writer)?
    };
    let seconds = begun.elapsed().as_secs_f64();
    arrived.whole(job.messages)?;
    Ok(Measurement {
        in_flight_max: u64::from(job.under_way + job.disk_depth),
        errors,
        backend: backend.into(),
        mode: "stream".into(),
        // A request is a message here.
        ..Measurement::of(job.messages, MESSAGE as u64, seconds)
    })
}

fn sum(bytes: &[u8]) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    let step = |sum: u64, word: &[u8; 8]| sum.wrapping_mul(31).wrapping_add(u64::from_le_bytes(*word));
    words.iter().fold(7, step)
}

/// Number, sum of what follows, and bytes that differ from message to message.
fn compose(message: &mut [u8], number: u64) {
    message[16..].fill(number as u8 ^ 0x5a);
    message[16..24].copy_from_slice(&number.to_le_bytes());
    let sum = sum(&message[16..]);
    message[..8].copy_from_slice(&number.to_le_bytes());
    message[8..16].copy_from_slice(&sum.to_le_bytes());
}

/// Which messages have come: in order, for a pipe keeps it.
#[derive(Default)]
struct Arrived {
    count: u64,
    /// The beginning of a message whose rest has yet to come.
    part: Vec<u8>,
}

impl Arrived {
    /// What a read brought: messages, the last perhaps in part.
    fn feed(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            if self.part.is_empty() && bytes.len() >= MESSAGE {
                let (message, rest) = bytes.split_at(MESSAGE);
                self.take(message)?;
                bytes = rest;
                continue;
            }
            let (more, rest) = bytes.split_at(bytes.len().min(MESSAGE - self.part.len()));
            self.part.extend_from_slice(more);
            bytes = rest;
            if self.part.len() == MESSAGE {
                let message = std::mem::take(&mut self.part);
                self.take(&message)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, message: &[u8]) -> Result<(), String> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&message[at..at + 8]);
            u64::from_le_bytes(word)
        };
        if word(8) != sum(&message[16..]) || word(0) != word(16) {
            return Err(format!("message {} arrived damaged", self.count));
        }
        if word(0) != self.count {
            return Err(format!("message {} came where {} was due", word(0), self.count));
        }
        self.count += 1;
        Ok(())
    }

    fn whole(&self, of: u64) -> Result<(), String> {
        if self.count == of && self.part.is_empty() {
            return Ok(());
        }
        Err(format!("{} of {of} messages arrived", self.count))
    }
}

fn engine_of(requests: u32, bytes: usize) -> Result<Engine, String> {
    Engine::new(&EngineOptions {
        slots: requests + 1,
        reserved_slots: 0,
        arena_bytes: bytes,
        ..EngineOptions::default()
    })
    .map_err(|error| error.to_string())
}

fn send_by_engine(job: &Job, writer: OwnedFd) -> Result<(), String> {
    let room = job.under_way as usize * MESSAGE;
    let mut engine = engine_of(1, room)?;
    let pipe = File::from_fd(writer, "the pipe").map_err(|error| error.to_string())?;
    let mut next = 0;
    while next < job.messages {
        let count = u64::from(job.under_way).min(job.messages - next);
        let mut buffer = engine.buffer(count as usize * MESSAGE).ok_or("no buffer")?;
        for message in buffer.chunks_exact_mut(MESSAGE) {
            compose(message, next);
            next += 1;
        }
        let written = engine.run(Request::write_stream(&pipe, buffer));
        written.result.map_err(|error| format!("write messages: {error}"))?;
    }
    Ok(())
}

/// The tag of a read of the disk; that of the pipe has 0.
const DISK: u64 = 1;

fn receive_by_engine(job: &Job, blocks: u64, reader: OwnedFd) -> Result<(Arrived, u64, &'static str), String> {
    let room = job.under_way as usize * MESSAGE;
    let mut engine = engine_of(job.disk_depth + 1, room + job.disk_depth as usize * MESSAGE)?;
    let pipe = File::from_fd(reader, "the pipe").map_err(|error| error.to_string())?;
    let open = Open {
        descriptions: Descriptions::Only(Caching::Direct),
        ..Open::read()
    };
    let disk = File::open(&job.path, &open).map_err(|error| error.to_string())?;
    let mut random = Random::new(1);
    let mut arrived = Arrived::default();
    let (mut errors, mut reads_asked) = (0, 0);
    let mut freed: Vec<(u64, Memory)> = vec![(0, engine.buffer(room).ok_or("no buffer")?.into())];
    for _ in 0..job.disk_depth {
        freed.push((DISK, engine.buffer(MESSAGE).ok_or("no buffer")?.into()));
    }
    while !freed.is_empty() || engine.in_flight() > 0 {
        for (tag, memory) in freed.drain(..) {
            let request = if tag == DISK && reads_asked < job.disk_reads {
                reads_asked += 1;
                Request::read(&disk, random.below(blocks) * DISK_READ, memory, Policy::direct()).tagged(tag)
            } else if tag != DISK && arrived.count < job.messages {
                Request::read_stream(&pipe, memory)
            } else {
                continue; // All that there is to be is under way.
            };
            engine.submit(request).map_err(|_| "every slot is taken")?;
        }
        // One at a time: who sleeps for several when the messages have come leaves a full pipe, and its writer waiting.
        engine.turn(Wait::one()).map_err(|error| error.to_string())?;
        while let Some(completion) = engine.next_completion() {
            if completion.tag == DISK {
                errors += u64::from(completion.result != Ok(DISK_READ as u32));
                freed.push((DISK, completion.memory));
                continue;
            }
            let len = completion.result.map_err(|error| format!("read messages: {error}"))? as usize;
            let buffer = completion.memory.into_buffer().ok_or("a buffer did not come back")?;
            if len == 0 {
                return Err("the pipe ended early".into());
            }
            arrived.feed(&buffer[..len])?;
            freed.push((0, buffer.into()));
        }
    }
    Ok((arrived, errors, engine.explain().backend))
}

fn by_blocking_calls(
    job: &Job,
    blocks: u64,
    mut reader: std::io::PipeReader,
    mut writer: std::io::PipeWriter,
) -> Result<(Arrived, u64, &'static str), String> {
    let begun = AtomicU64::new(0);
    let read_disk = |seed: u32| read_disk(&job.path, blocks, job.disk_reads, &begun, seed);
    let read_disk = &read_disk;
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..job.disk_depth)
            .map(|seed| scope.spawn(move || read_disk(seed)))
            .collect();
        let sender = scope.spawn(move || {
            let mut message = vec![0; MESSAGE];
            for number in 0..job.messages {
                compose(&mut message, number);
                writer.write_all(&message).map_err(|error| error.to_string())?;
            }
            Ok(())
        });
        let mut arrived = Arrived::default();
        let mut message = vec![0; MESSAGE];
        for _ in 0..job.messages {
            reader.read_exact(&mut message).map_err(|error| error.to_string())?;
            arrived.take(&message)?;
        }
        joined(sender.join())?;
        let mut errors = 0;
        for reader in readers {
            errors += joined(reader.join())?;
        }
        Ok((arrived, errors, "blocking calls"))
    })
}

/// One of the threads that share the reads of the disk. Returns how many failed.
fn read_disk(path: &Path, blocks: u64, reads: u64, begun: &AtomicU64, seed: u32) -> Result<u64, String> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .map_err(|error| error.to_string())?;
    let arena = Arena::new(DISK_READ as usize).map_err(|error| error.to_string())?;
    let mut buffer = arena.buffer(DISK_READ as usize).ok_or("no buffer")?;
    let mut random = Random::new(u64::from(seed) + 1);
    let mut errors = 0;
    while begun.fetch_add(1, Ordering::Relaxed) < reads {
        let read = file.read_exact_at(&mut buffer, random.below(blocks) * DISK_READ);
        errors += u64::from(read.is_err());
    }
    Ok(errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_damaged_lost_or_doubled_is_told() {
        let mut stream = vec![0; 2 * MESSAGE];
        compose(&mut stream[..MESSAGE], 0);
        compose(&mut stream[MESSAGE..], 1);
        let mut arrived = Arrived::default();
        for piece in stream.chunks(1000) {
            arrived.feed(piece).unwrap();
        }
        arrived.whole(2).unwrap();
        assert!(arrived.whole(3).is_err());
        assert!(arrived.feed(&stream[MESSAGE..]).unwrap_err().contains("was due"));
        stream[4095] ^= 1;
        assert!(Arrived::default().feed(&stream).unwrap_err().contains("damaged"));
        let mut cut = Arrived::default();
        cut.feed(&stream[MESSAGE..MESSAGE + 5]).unwrap();
        assert!(cut.whole(0).is_err());
    }
}
