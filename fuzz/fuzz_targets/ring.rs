//! Entries and counters from a hostile peer: decoding never panics, an accepted entry has one form, and
//! no counter makes a ring reach outside of its cells.
#![no_main]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use baio_ring::ring::{Cursor, Ring};
use baio_words::entry::{COMPLETION_WORDS, Completion, Limits, SUBMISSION_WORDS, Submission};
use libfuzzer_sys::fuzz_target;

fn words<const N: usize>(data: &[u8]) -> Option<[u64; N]> {
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(data.chunks(8)) {
        let mut eight = [0; 8];
        eight[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(eight);
    }
    (!data.is_empty()).then_some(words)
}

fuzz_target!(|data: &[u8]| {
    let limits = Limits {
        places: 64,
        arena_bytes: 1 << 20,
    };
    if let Some(raw) = words::<SUBMISSION_WORDS>(data)
        && let Ok(submission) = Submission::decode(&raw, &limits)
    {
        assert_eq!(submission.encode(), raw, "an accepted entry has one form");
    }
    if let Some(raw) = words::<COMPLETION_WORDS>(data) {
        let _ = Completion::decode(&raw);
    }
    let (head, tail, sleeping) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    let cells: Vec<[AtomicU64; 2]> = (0..8).map(|_| [const { AtomicU64::new(0) }; 2]).collect();
    let Some(ring) = Ring::new(&head, &tail, &sleeping, &cells) else {
        return;
    };
    let (mut consumer, mut producer) = (Cursor::default(), Cursor::default());
    for step in data.chunks_exact(5) {
        let value = u32::from_le_bytes([step[1], step[2], step[3], step[4]]);
        match step[0] % 6 {
            0 => tail.store(value, Ordering::Release),
            1 => head.store(value, Ordering::Release),
            2 => {
                let _ = ring.push(&mut producer, &[u64::from(value); 2]);
            }
            3 => drop(ring.publish(&producer)),
            4 => {
                let _ = ring.pop(&mut consumer);
            }
            _ => {
                ring.release(&consumer);
                let _ = ring.fall_asleep(&consumer);
                ring.wake_up();
            }
        }
        let _ = ring.unread(&consumer);
    }
});
