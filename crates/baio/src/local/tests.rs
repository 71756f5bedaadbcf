//! How often a request borrows the core: each borrow looks at who waits for what it made free.

use std::cell::Cell;

use super::*;
use crate::{File, Link};

thread_local! {
    /// How often this thread has borrowed a core.
    pub(super) static BORROWS: Cell<u32> = const { Cell::new(0) };
}

/// To be started, for the turn that ends it, and to be taken. Who stops driving the link borrows it once more, for those who wait still.
#[test]
fn a_lone_read_borrows_the_core_three_times() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, [7; 4096]).unwrap();
    let link = Local::new().unwrap();
    let file = File::options().open(&link, &path).wait().unwrap();
    for _ in 0..3 {
        let buffer = link.buffer(4096).unwrap();
        let counted = async {
            let read = file.read_at(0, buffer);
            let before = BORROWS.get();
            let read = read.await.unwrap();
            (BORROWS.get() - before, read)
        };
        let (borrows, read) = link.block_on(counted).unwrap();
        assert!(borrows <= 3, "it borrowed the core {borrows} times");
        assert_eq!((read.bytes, read.buffer[4095]), (4096, 7));
    }
}
