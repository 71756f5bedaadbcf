//! The table: what it promises an honest client, and what it tells a curious one.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use crate::{OWN, full_of};
use baio_mapped::table::{Missed, Table, table_pages};
use baio_mapped::{Map, Memory, PAGE};

const FRAMES: usize = 8;

/// The table as the broker has it, and as a client has it.
fn both_sides() -> (Memory, Table, Table) {
    let (frames, words) = (Memory::new(FRAMES), Memory::new(table_pages(FRAMES)));
    let (frames, words) = (frames.expect("a memfd"), words.expect("a memfd"));
    let client = |memory: &Memory, pages| {
        Map::to_read(&memory.for_a_client().expect("a descriptor to read"), pages).expect("a mapping")
    };
    let theirs = Table::new(client(&frames, FRAMES), client(&words, table_pages(FRAMES)), FRAMES);
    let ours = Table::new(
        frames.map().expect("a mapping"),
        words.map().expect("a mapping"),
        FRAMES,
    );
    (frames, ours, theirs)
}

fn bring_in(table: &Table, frame: usize, key: u64, byte: u8) {
    table.take_back(frame);
    table.frames.write(frame, &full_of(byte));
    table.name(frame, key).expect("room");
    table.publish(frame);
}

#[test]
fn a_page_is_read_while_it_is_published() {
    let (_memory, broker, client) = both_sides();
    let mut page = full_of(0);
    assert_eq!(client.read(7, &mut page), Err(Missed::Absent));
    bring_in(&broker, 3, 7, OWN);
    assert_eq!(client.read(7, &mut page), Ok(()));
    assert_eq!(page, full_of(OWN));
    assert_eq!(client.read(8, &mut page), Err(Missed::Absent));
}

/// The order beside a direct write: its pages are taken back before it goes to the device. From then on nobody reads them by
/// the map, so who begins after its end asks the broker, and has what was written.
#[test]
fn a_page_that_was_taken_back_for_a_direct_write_is_not_read() {
    let (_memory, broker, client) = both_sides();
    bring_in(&broker, 0, 7, OWN);
    broker.take_back(0);
    assert_eq!(client.read(7, &mut full_of(0)), Err(Missed::Changed));
    broker.frames.write(0, &full_of(b'n'));
    broker.publish(0);
    let mut page = full_of(0);
    assert_eq!(client.read(7, &mut page), Ok(()));
    assert_eq!(page, full_of(b'n'));
}

/// Half of a change, or a whole one, between a reader's two looks.
#[test]
fn what_changes_during_a_read_is_not_believed() {
    let (_memory, broker, client) = both_sides();
    bring_in(&broker, 0, 7, OWN);
    let half = || {
        broker.take_back(0);
        broker.frames.write(0, &full_of(b'n'));
    };
    assert_eq!(client.read_while(7, &mut full_of(0), half), Err(Missed::Changed));
    broker.publish(0);
    let whole = || bring_in(&broker, 0, 8, b'o');
    assert_eq!(client.read_while(7, &mut full_of(0), whole), Err(Missed::Changed));
}

/// Who has the table sees each page come, of whoever asked for it, and needs no read of its own for that.
#[test]
fn a_watcher_sees_which_page_another_client_has_read() {
    let (_memory, broker, client) = both_sides();
    let keys = |table: &Table| {
        (0..FRAMES)
            .map(|frame| table.words.word(frame * 2 + 1).load(Ordering::Relaxed))
            .collect()
    };
    let before: Vec<u64> = keys(&client);
    bring_in(&broker, 5, 7, OWN);
    let after: Vec<u64> = keys(&client);
    assert_eq!(before[5], 0);
    assert_eq!(after[5], 7);
}

/// Without a table the descriptor tells it: where a file has data is asked with lseek(2), and how much with fstat(2).
#[test]
fn the_descriptor_alone_tells_which_pages_are_there() {
    let memory = Memory::new(FRAMES).expect("a memfd");
    let descriptor = memory.for_a_client().expect("a descriptor to read");
    // SAFETY: numbers.
    let data = || unsafe { libc::lseek(descriptor.as_raw_fd(), 0, libc::SEEK_DATA) };
    assert_eq!(data(), -1);
    memory.map().expect("a mapping").write(5, &full_of(OWN));
    assert_eq!(data(), (5 * PAGE) as i64);
}
