//! The promise that a page which its borrower gives back, on another thread, while somebody changes it keeps its bytes. The moment that
//! matters lies within one call, so it is met by many rounds.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use baio_engine::Durability;
use baio_storage::cache::{Borrower, LentPages};

use crate::rig::hand::{Hand, hand};
use crate::rig::{Random, bytes};

const ROUNDS: u32 = 20_000;

/// Who gives back, in a thread of his own.
#[derive(Default)]
struct Giver {
    lent: Mutex<Option<LentPages>>,
    /// The round in which he shall, and how long he waits before.
    go: AtomicU32,
    spin: AtomicU32,
    /// The last round in which he has.
    done: AtomicU32,
}

impl Giver {
    fn start() -> (Arc<Giver>, JoinHandle<()>) {
        let giver = Arc::new(Giver::default());
        let own = Arc::clone(&giver);
        let thread = thread::spawn(move || {
            for round in 1..=ROUNDS {
                wait_for(&own.go, round);
                let lent = own.lent.lock().unwrap().take();
                (0..own.spin.load(Ordering::Relaxed)).for_each(|_| std::hint::spin_loop());
                drop(lent);
                own.done.store(round, Ordering::Release);
            }
        });
        (giver, thread)
    }
}

fn wait_for(word: &AtomicU32, round: u32) {
    let mut looks = 0;
    while word.load(Ordering::Acquire) < round {
        looks += 1;
        if looks > 1000 {
            thread::yield_now(); // There may be one processor.
        }
    }
}

/// Page 0 is lent, no frame is free, and the loan is being given back.
fn begin(h: &mut Hand, giver: &Giver, round: u32, random: &mut Random, at: &mut u64) {
    while h.cache.stats().frames_free > 0 {
        *at = *at % 900 + 1;
        h.cached(50 + *at, 1, 0x11);
    }
    let lent = h.cache.lend(h.object, 0..1, &Borrower::new(1 << 30));
    *giver.lent.lock().unwrap() = Some(lent.expect("it is here"));
    giver.spin.store(random.below(60) as u32, Ordering::Relaxed);
    giver.go.store(round, Ordering::Release);
    (0..random.below(60)).for_each(|_| std::hint::spin_loop());
}

#[test]
fn a_page_that_comes_back_while_it_is_changed_by_a_pin_keeps_its_bytes() {
    let (mut h, mut random, mut at) = (hand(16), Random(1), 0);
    let (giver, thread) = Giver::start();
    h.cached(0, 1, 0xaa);
    let pin = h.hit(0);
    for round in 1..=ROUNDS {
        begin(&mut h, &giver, round, &mut random, &mut at);
        if let Ok(page) = h.cache.change(&pin, 0) {
            assert!(
                page.iter().all(|byte| *byte == 0xaa),
                "in round {round}: {:#x}",
                page[0]
            );
        }
        wait_for(&giver.done, round);
    }
    thread.join().unwrap();
}

#[test]
fn a_page_that_comes_back_while_a_part_of_it_is_written_keeps_the_rest() {
    let (mut h, mut random, mut at) = (hand(16), Random(2), 0);
    let (giver, thread) = Giver::start();
    h.cached(0, 1, 0xaa);
    for round in 1..=ROUNDS {
        begin(&mut h, &giver, round, &mut random, &mut at);
        let write = h.write_with(100, 8, 0xbb, Durability::None);
        h.good(write);
        wait_for(&giver.done, round);
        let read = h.read(0, 1);
        let page = bytes(&h.good(read).memory);
        assert!(
            page[..100].iter().all(|byte| *byte == 0xaa),
            "in round {round}: {:#x}",
            page[0]
        );
    }
    thread.join().unwrap();
}
