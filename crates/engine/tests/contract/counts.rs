//! A wait for a count is a wait for so many results, whatever their requests are made of (docs/inside/engine.md rule 9). A backend
//! counts iterations: one that must go on, or that another request waits for, is no result, and what follows from it has to
//! be handed over within the same turn. So every mix of requests that take several iterations, or wait for one another, is
//! waited for as a whole, alone and beside what never ends. Who reaches the deadline has slept for ever.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use baio_engine::{Doorbell, Durability, Engine, File, Memory, Op, Policy, Request, RequestId, Vectored, Wait};

use crate::backends::{Bench, Case, FOR_EVER, Stop, blank, buffer, direct, next};
use crate::streams::{file, has_streams, holds_requests, shrink};

/// More than a socket or a pipe takes at a time.
const MUCH: usize = 1 << 20;

/// More parts of a list than the kernel takes at a time.
const PARTS: usize = 1200;

/// A disk that ends inside a block: a read across its end is short, and goes on to find the end.
const END: u64 = 65536 + 512;

/// What the mixes of one case share.
struct Mixer<'a> {
    bench: &'a Bench,
    engine: Engine,
    disk: File,
    policy: Policy,
    /// Peers that end by themselves once they have been served.
    peers: Vec<std::thread::JoinHandle<()>>,
}

/// Submits some requests that end without any help, and tells how many.
type Part = fn(&mut Mixer) -> usize;

/// A message larger than the socket's buffer, and the answer, which comes when all of it has.
fn dialogue(mixer: &mut Mixer) -> usize {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
    let ours = file(ours);
    let (message, answer) = (blank(&mixer.engine, MUCH), blank(&mixer.engine, 16));
    mixer.submit(Request::send(&ours, message));
    mixer.submit(Request::receive(&ours, answer));
    mixer.peers.push(std::thread::spawn(move || {
        theirs.read_exact(&mut vec![0; MUCH]).expect("the message");
        theirs.write_all(b"answer").expect("a socket");
    }));
    2
}

fn transfer(mixer: &mut Mixer) -> usize {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let writer = writer.into();
    shrink(&writer);
    let (disk, window, policy) = (mixer.disk.clone(), blank(&mixer.engine, 16384), Policy::kernel());
    mixer.submit(Request::transfer(&disk, 0, 65536, &file(writer), window, policy));
    mixer.peers.push(std::thread::spawn(move || {
        reader.read_exact(&mut [0; 65536]).expect("the bytes");
    }));
    1
}

fn write_and_fence(mixer: &mut Mixer) -> usize {
    let (disk, bytes) = (mixer.disk.clone(), buffer(&mixer.engine, &[3; 4096]));
    mixer.submit(Request::write(&disk, 4096, bytes, mixer.policy));
    mixer.submit(Request::bare(Op::Fence, Some(&disk), Policy::direct()));
    2
}

/// The second one is held until the first has ended, as that has begun.
fn syncs(mixer: &mut Mixer) -> usize {
    let disk = mixer.disk.clone();
    mixer.submit(Request::sync(&disk, Durability::Data));
    mixer.engine.turn(Wait::No).expect("a turn");
    mixer.submit(Request::sync(&disk, Durability::Full));
    2
}

fn long_list(mixer: &mut Mixer) -> usize {
    let disk = mixer.disk.clone();
    let byte = buffer(&mixer.engine, &[4]).freeze();
    let mut list = Vectored::with_capacity(PARTS);
    for _ in 0..PARTS {
        list.push(byte.clone().into()).expect("a part");
    }
    mixer.submit(Request::write(&disk, 8192, Memory::Many(list), Policy::kernel()));
    1
}

fn read_across_the_end(mixer: &mut Mixer) -> usize {
    let (disk, memory) = (mixer.disk.clone(), blank(&mixer.engine, 8192));
    mixer.submit(Request::read(&disk, 61440, memory, mixer.policy));
    1
}

fn soon(mixer: &mut Mixer) -> usize {
    let at = mixer.engine.now().after(Duration::from_micros(300));
    mixer.submit(Request::bare(Op::Timer { at }, None, Policy::kernel()));
    1
}

const ON_DISKS: [Part; 4] = [write_and_fence, syncs, long_list, read_across_the_end];

fn parts(bench: &Bench) -> Vec<Part> {
    let others: &[Part] = match bench.row.name {
        "sim" => &[soon],
        "sync" => &[transfer],
        "ram" => &[],
        _ => &[soon, transfer, dialogue],
    };
    ON_DISKS.iter().chain(others).copied().collect()
}

impl Mixer<'_> {
    fn new(bench: &Bench) -> Mixer<'_> {
        let disk = bench.file(&vec![1; END as usize]);
        Mixer {
            bench,
            engine: bench.engine(),
            policy: direct(&disk).unwrap_or(Policy::kernel()),
            disk,
            peers: Vec::new(),
        }
    }

    fn submit(&mut self, request: Request) {
        self.engine.submit(request).expect("a slot");
    }

    /// Waits for `count` results, which come without any help.
    fn turn_for(&mut self, count: usize, mix: usize) {
        let deadline = self.engine.now().after(FOR_EVER);
        let wait = Wait::Until {
            count: count as u32,
            min_wait: Duration::ZERO,
            deadline: Some(deadline),
        };
        let ready = self.engine.turn(wait).expect("a turn");
        let name = self.bench.row.name;
        assert!(
            self.engine.now() < deadline,
            "{name}: mix {mix:#b} slept with {ready} of {count}"
        );
        assert!(ready >= count, "{name}: mix {mix:#b} returned with {ready} of {count}");
    }

    /// Every mix of parts: for all of its results at once, or for two and then for all.
    fn every_mix(&mut self) {
        let parts = parts(self.bench);
        for mix in 1..1_usize << parts.len() {
            let chosen = (0..parts.len()).filter(|part| mix & (1 << part) != 0);
            let count = chosen.map(|part| parts[part](self)).sum();
            if mix.count_ones() % 2 == 0 {
                self.turn_for(2.min(count), mix);
            }
            self.turn_for(count, mix);
            for _ in 0..count {
                assert!(next(&mut self.engine).result.is_ok(), "mix {mix:#b}");
            }
            for peer in self.peers.drain(..) {
                peer.join().expect("a peer");
            }
        }
    }
}

fn beside(bench: &Bench, stands: impl FnOnce(&mut Mixer) -> Result<RequestId, Stop>) -> Case {
    let mut mixer = Mixer::new(bench);
    let id = stands(&mut mixer)?;
    mixer.every_mix();
    mixer.engine.cancel(id);
    next(&mut mixer.engine);
    Ok(())
}

pub(crate) fn every_mix_is_waited_for_as_a_whole(bench: &Bench) -> Case {
    Mixer::new(bench).every_mix();
    Ok(())
}

pub(crate) fn the_same_with_a_doorbell_given_away(bench: &Bench) -> Case {
    let mut mixer = Mixer::new(bench);
    let _doorbell: Doorbell = mixer.engine.doorbell();
    mixer.every_mix();
    Ok(())
}

pub(crate) fn the_same_beside_a_receive_that_stands(bench: &Bench) -> Case {
    holds_requests(bench)?;
    has_streams(bench)?;
    let (ours, _theirs) = UnixStream::pair().expect("a pair of sockets");
    let ours = file(ours);
    beside(bench, |mixer| {
        let memory = blank(&mixer.engine, 16);
        begin!(mixer.engine, Request::receive(&ours, memory))
    })
}

pub(crate) fn the_same_beside_a_poll_that_stands(bench: &Bench) -> Case {
    holds_requests(bench)?;
    let (reader, _writer) = bench.pipe()?;
    beside(bench, |mixer| {
        let events = libc::POLLIN as u32;
        begin!(
            mixer.engine,
            Request::bare(Op::Poll { events }, Some(&reader), Policy::kernel())
        )
    })
}

pub(crate) fn the_same_beside_a_timer_far_away(bench: &Bench) -> Case {
    beside(bench, |mixer| {
        let at = mixer.engine.now().after(1000 * FOR_EVER);
        begin!(mixer.engine, Request::bare(Op::Timer { at }, None, Policy::kernel()))
    })
}

pub(crate) fn the_same_beside_an_event(bench: &Bench) -> Case {
    beside(bench, |mixer| begin!(mixer.engine, Request::event()))
}
