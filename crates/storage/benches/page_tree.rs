//! What a look-up in the tree of pages costs: `cargo bench -p baio-storage --bench page_tree` prints ns, the best of some
//! rounds. That the cost is that of few nodes is tested elsewhere, by counting them.

use std::hint::black_box;
use std::time::Instant;

use baio_storage::cache::tree::{Tag, Tree};

const PAGES: u64 = 1_000_000;

fn main() {
    let mut tree = Tree::new();
    for index in 0..PAGES {
        tree.insert(index, index as u32);
    }
    for n in 0..10 {
        tree.tag(n * 99_991 + 77, Tag::Dirty);
    }
    let mut out = [(0, 0); 16];
    print("ten dirty among a million", 10_000, |_| {
        assert_eq!(tree.gang(0, Some(Tag::Dirty), black_box(&mut out)), 10);
    });
    print("look-up hit, in order", PAGES, |n| {
        assert!(tree.get(black_box(n)).is_some());
    });
    print("look-up hit, at random", PAGES, |n| {
        assert!(
            tree.get(black_box(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % PAGES))
                .is_some()
        );
    });
}

fn print(what: &str, times: u64, mut run: impl FnMut(u64)) {
    let best = (0..5)
        .map(|_| {
            let start = Instant::now();
            (0..times).for_each(&mut run);
            start.elapsed().as_nanos() as f64 / times as f64
        })
        .fold(f64::INFINITY, f64::min);
    println!("{what:28} {best:10.1} ns");
}
