//! The promise: whoever drives a core can have sockets and timers in the same loop. Requests under tags of the driver's own, on the core's
//! engine, come out by `next_foreign`, each once; nothing else does, and nothing of the core's is lost beside them.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use baio_engine::{Choice, EngineOptions, File, Op, Policy, Request, Wait};
use baio_storage::cache::CacheOptions;
use baio_storage::{Core, Mode, SegmentRequest};

use crate::harness::{self, BLOCK, ME, config, create, format, open_write, read, read_request, write_request};

const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const TIMER: u64 = Core::FOREIGN_TAGS.end - 1;

/// A server of blocks: each request names one by a byte, and is answered with that block.
#[test]
fn a_socket_and_a_segment_share_one_loop() {
    for backend in [Choice::Auto, Choice::Threads] {
        for mode in [Mode::Direct, Mode::Cached] {
            serve(backend, mode);
        }
    }
}

fn serve(backend: Choice, mode: Mode) {
    const BLOCKS: u8 = 8;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    format(&path, 8 << 20);
    let config = EngineOptions { backend, ..config() };
    let mut core = Core::open(&path, &config).unwrap();
    let cache = CacheOptions::of_size(1 << 20);
    core.use_cache(&cache).unwrap();
    create(&mut core, "data", u64::from(BLOCKS) * BLOCK as u64);
    let handle = open_write(&mut core, "data");

    let (ours, theirs) = UnixStream::pair().unwrap();
    let socket = File::from_fd(OwnedFd::from(ours), "a socket").unwrap();
    let client = std::thread::spawn(move || {
        let mut theirs = theirs;
        for block in 0..BLOCKS {
            theirs.write_all(&[block]).unwrap();
            let mut answer = vec![0; BLOCK];
            theirs.read_exact(&mut answer).unwrap();
            assert!(answer.iter().all(|byte| *byte == block + 1), "block {block}");
        }
    });

    for block in 0..BLOCKS {
        let mut write = write_request(&core, handle, u64::from(block) * BLOCK as u64, &[block + 1; BLOCK]);
        write.mode = mode;
        harness::run(&mut core, write).result.unwrap();
    }
    let receive = |core: &mut Core| {
        let byte = core.buffer(1).unwrap();
        let receive = Request::receive(&socket, byte).tagged(RECEIVE);
        core.engine_mut().submit(receive).unwrap();
    };
    receive(&mut core);
    let (mut asked, mut sent, mut ended) = (0, 0, false);
    while !ended {
        core.turn(Wait::one()).unwrap();
        while let Some(completion) = core.next_foreign() {
            let done = completion.result.unwrap();
            match completion.tag {
                RECEIVE if done == 0 => ended = true,
                RECEIVE => {
                    let block = completion.memory.into_buffer().unwrap()[0];
                    let offset = u64::from(block) * BLOCK as u64;
                    let request = SegmentRequest {
                        mode,
                        tag: RECEIVE, // A caller's tags are another matter.
                        ..read_request(&core, handle, offset, BLOCK)
                    };
                    core.start(request).unwrap();
                    asked += 1;
                    receive(&mut core);
                }
                SEND => sent += 1,
                tag => panic!("nothing was asked under {tag}"),
            }
        }
        while let Some(outcome) = core.next_outcome() {
            outcome.result.unwrap();
            let send = Request::send(&socket, outcome.memory).tagged(SEND);
            core.engine_mut().submit(send).unwrap();
        }
    }
    client.join().unwrap();
    assert_eq!((asked, sent, core.in_flight()), (BLOCKS, BLOCKS, 0));
    core.close().unwrap();
}

/// Calls that turn the core until something of their own has ended lose nothing of the driver's.
#[test]
fn what_ends_beside_an_operation_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    format(&path, 8 << 20);
    let mut core = harness::open(&path);
    let at = core.engine().now().after(Duration::from_micros(1));
    for tag in [TIMER, 5, TIMER] {
        let timer = Request::bare(Op::Timer { at }, None, Policy::kernel());
        core.engine_mut().submit(timer.tagged(tag)).unwrap();
    }
    create(&mut core, "data", BLOCK as u64);
    let handle = open_write(&mut core, "data");
    assert_eq!(read(&mut core, handle, 0, BLOCK).unwrap(), [0; BLOCK]);
    core.list(ME).unwrap();
    while core.in_flight() > 0 {
        core.turn(Wait::one()).unwrap();
    }
    let mut tags: Vec<u64> = std::iter::from_fn(|| core.next_foreign())
        .map(|completion| completion.tag)
        .collect();
    tags.sort_unstable();
    assert_eq!(tags, [5, TIMER, TIMER]);
    core.close().unwrap();
}
