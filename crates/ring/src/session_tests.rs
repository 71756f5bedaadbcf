use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::FallocateFlags;

use super::*;
use crate::bell::FarBell;
use crate::ring::{Cursor, Refused};

/// A session's memory as its service and its client have it: two mappings.
fn both(places: u32, arena_bytes: u64) -> (SessionMemory, SessionMemory) {
    let service = SessionMemory::create(places, arena_bytes).unwrap();
    let fd = service.region().fd().try_clone_to_owned().unwrap();
    let client = SessionMemory::map(fd, *service.layout()).unwrap();
    (service, client)
}

#[test]
#[cfg_attr(miri, ignore = "it has no memfd")]
fn entries_cross_both_ways_and_a_sleeper_is_told_of_once() {
    let (service, client) = both(2, 0);
    let (mut sent, mut taken) = (Cursor::default(), Cursor::default());
    assert!(service.submissions().fall_asleep(&taken));
    for word in 0..4 {
        client.submissions().push(&mut sent, &[word; SUBMISSION_WORDS]).unwrap();
    }
    let full = client.submissions().push(&mut sent, &[9; SUBMISSION_WORDS]);
    assert_eq!(full, Err(Refused::Full));
    assert!(client.submissions().publish(&sent), "the service slept");
    assert!(!client.submissions().publish(&sent), "it was rung for already");
    assert!(!service.submissions().fall_asleep(&taken), "there is something to take");
    for word in 0..4 {
        let entry = service.submissions().pop(&mut taken).unwrap();
        assert_eq!(entry, Some([word; SUBMISSION_WORDS]));
    }
    assert_eq!(service.submissions().pop(&mut taken), Ok(None));
    service.submissions().release(&taken);
    client.submissions().push(&mut sent, &[9; SUBMISSION_WORDS]).unwrap();

    let (mut posted, mut seen) = (Cursor::default(), Cursor::default());
    assert!(client.completions().fall_asleep(&seen));
    client.completions().wake_up();
    service.completions().push(&mut posted, &[5; COMPLETION_WORDS]).unwrap();
    assert!(!service.completions().publish(&posted), "the client is awake");
    assert_eq!(client.completions().pop(&mut seen), Ok(Some([5; COMPLETION_WORDS])));
}

/// Two threads, each with a mapping of its own, that sleep whenever there is nothing: every request comes back.
#[test]
#[cfg_attr(miri, ignore = "it has no memfd")]
fn two_sides_that_sleep_lose_nothing() {
    const REQUESTS: u64 = 20_000;
    let (service, client) = both(4, 0);
    let (for_service, for_client) = (Bell::default(), Bell::default());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut taken, mut posted) = (Cursor::default(), Cursor::default());
            let mut done = 0;
            while done < REQUESTS {
                let ring = service.submissions();
                let Some(entry) = ring.pop(&mut taken).unwrap() else {
                    if ring.fall_asleep(&taken) {
                        for_service.sleep(None);
                        ring.wake_up();
                    }
                    continue;
                };
                ring.release(&taken);
                let answer = [entry[0], entry[7], 0, 0];
                service.completions().push(&mut posted, &answer).unwrap();
                if service.completions().publish(&posted) {
                    for_client.ring();
                }
                done += 1;
            }
        });
        let (mut sent, mut seen) = (Cursor::default(), Cursor::default());
        let (mut asked, mut answered) = (0, 0);
        while answered < REQUESTS {
            while asked < REQUESTS && asked - answered < 4 {
                let entry = std::array::from_fn(|word| asked + word as u64);
                client.submissions().push(&mut sent, &entry).unwrap();
                asked += 1;
            }
            if client.submissions().publish(&sent) {
                for_service.ring();
            }
            let ring = client.completions();
            match ring.pop(&mut seen).unwrap() {
                Some(answer) => {
                    assert_eq!(answer[..2], [answered, answered + 7]);
                    ring.release(&seen);
                    answered += 1;
                }
                None if ring.fall_asleep(&seen) => {
                    for_client.sleep(None);
                    ring.wake_up();
                }
                None => {}
            }
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "it has no memfd")]
fn nobody_changes_its_size_and_a_hole_reads_as_zeros() {
    let (service, client) = both(2, 1 << 20);
    let file = client.region().fd();
    for size in [0, client.layout().bytes - 4096, client.layout().bytes + 4096] {
        assert!(rustix::fs::ftruncate(file, size).is_err(), "{size}");
    }
    let (mut sent, mut taken) = (Cursor::default(), Cursor::default());
    for word in 0..4 {
        client.submissions().push(&mut sent, &[word; SUBMISSION_WORDS]).unwrap();
    }
    let _ = client.submissions().publish(&sent);
    assert!(service.submissions().pop(&mut taken).unwrap().is_some());
    client.span(8000, 5).unwrap().copy_in(b"hello");
    let mut seen = [1; 5];
    service.span(8000, 5).unwrap().copy_out(&mut seen);
    assert_eq!(&seen, b"hello");

    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, hole, 0, client.layout().bytes).unwrap();
    service.span(8000, 5).unwrap().copy_out(&mut seen);
    assert_eq!(seen, [0; 5]);
    // The tail was seen before; the entries behind it are zeros now, and the counter behind those cannot be.
    for _ in 1..4 {
        assert_eq!(service.submissions().pop(&mut taken), Ok(Some([0; SUBMISSION_WORDS])));
    }
    assert_eq!(service.submissions().pop(&mut taken), Err(Refused::Broken));
    service.submissions().release(&taken);
    // What is written again is there again.
    client.span(8000, 5).unwrap().copy_in(b"again");
    service.span(8000, 5).unwrap().copy_out(&mut seen);
    assert_eq!(&seen, b"again");
}

#[test]
fn a_span_stays_in_the_arena() {
    let memory = SessionMemory::create(3, 10_000).unwrap();
    assert_eq!(memory.arena().map(|all| all.len()), Some(10_000));
    assert_eq!(memory.arena().unwrap().pointer().addr() % 4096, 0);
    memory.span(9_999, 1).unwrap().copy_in(b"z");
    let mut all = [0; 10_000];
    memory.arena().unwrap().copy_out(&mut all);
    assert_eq!((all[9_999], all[..9_999].iter().all(|byte| *byte == 0)), (b'z', true));
    for (at, len) in [(9_999, 2), (10_001, 0), (0, 10_001), (u64::MAX, 2), (u64::MAX, 0)] {
        assert!(memory.span(at, len).is_none(), "{len} at {at}");
    }
    assert_eq!(memory.span(10_000, 0).map(|none| none.len()), Some(0));
    let none = SessionMemory::create(1, 0).unwrap();
    assert!(none.arena().is_some_and(|all| all.is_empty()));
    assert!(none.span(0, 1).is_none());
}

#[test]
fn sizes_that_no_session_has_are_refused_with_the_limits() {
    for (places, arena_bytes) in [(0, 0), (u32::MAX, 0), (1, u64::MAX)] {
        let error = SessionMemory::create(places, arena_bytes).unwrap_err();
        assert_eq!(error.errno, Errno::EINVAL, "{error}");
        assert!(error.to_string().contains("requests and at most"), "{error}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "it has no memfd")]
fn a_client_believes_no_layout_that_cannot_be() {
    let service = SessionMemory::create(2, 1 << 20).unwrap();
    let map = |change: &dyn Fn(&mut Layout)| {
        let mut layout = *service.layout();
        change(&mut layout);
        let fd = service.region().fd().try_clone_to_owned().unwrap();
        SessionMemory::map(fd, layout).map_err(|error| (error.errno, error.to_string()))
    };
    assert!(map(&|_| {}).is_ok());
    let (errno, why) = map(&|layout| layout.submissions.cells = layout.completions.cells).unwrap_err();
    assert_eq!(errno, Errno::EPROTO);
    assert!(why.contains("bytes of its own"), "{why}");
    // It fits itself, and not the memory.
    let (errno, why) = map(&|layout| {
        layout.bytes += 4096;
        layout.arena_bytes += 4096;
    })
    .unwrap_err();
    assert_eq!(errno, Errno::EPROTO);
    assert!(why.contains("the memory's own"), "{why}");
    let (errno, _) = map(&|layout| layout.submissions.head = u64::MAX - 3).unwrap_err();
    assert_eq!(errno, Errno::EPROTO);
    // And no memory that can be taken away.
    let loose = rustix::fs::memfd_create("loose", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&loose, service.layout().bytes).unwrap();
    let error = SessionMemory::map(loose.as_fd().try_clone_to_owned().unwrap(), *service.layout()).unwrap_err();
    assert_eq!(error.errno, Errno::EPERM, "{error}");
}

#[derive(Default)]
struct Counted {
    rung: AtomicU32,
    slept: AtomicU32,
}

impl FarBell for Counted {
    fn ring(&self) {
        self.rung.fetch_add(1, Ordering::Relaxed);
    }

    fn sleep(&self, limit: Option<Duration>) {
        assert_eq!(limit, Some(Duration::from_secs(9)));
        self.slept.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn what_is_far_has_its_rings_in_the_memory_and_the_bell_it_was_given() {
    let memory = SessionMemory::create(4, 0).unwrap();
    let counted = Arc::new(Counted::default());
    let bell = || Bell::far(Arc::clone(&counted) as Arc<dyn FarBell>);
    assert!(Shared::<()>::far(&memory, 5, bell()).is_none());
    let shared = Shared::<u8>::far(&memory, 4, bell()).unwrap();
    assert_eq!(shared.exchange.places(), 4);
    let (mut sent, mut taken) = (Cursor::default(), Cursor::default());
    shared
        .submissions
        .ring()
        .push(&mut sent, &[3; SUBMISSION_WORDS])
        .unwrap();
    let _ = shared.submissions.ring().publish(&sent);
    assert_eq!(memory.submissions().pop(&mut taken), Ok(Some([3; SUBMISSION_WORDS])));
    let (mut posted, mut seen) = (Cursor::default(), Cursor::default());
    memory.completions().push(&mut posted, &[4; COMPLETION_WORDS]).unwrap();
    let _ = memory.completions().publish(&posted);
    drop(memory);
    assert_eq!(
        shared.completions.ring().pop(&mut seen),
        Ok(Some([4; COMPLETION_WORDS]))
    );
    shared.bell.sleep(Some(Duration::from_secs(9)));
    assert!(!shared.has_ended());
    shared.end();
    assert!(shared.has_ended());
    assert_eq!(counted.rung.load(Ordering::Relaxed), 1, "its end rings");
    assert_eq!(counted.slept.load(Ordering::Relaxed), 1);
}
