//! The promise: of two owners whose segments one core caches, neither waits for the other's device. What one has changed and cannot get
//! written takes half of the room for such pages at most; alone it has all of it.

use std::task::Poll;
use std::time::Duration;

use baio_engine::Wait;
use baio_engine::sim::{Disk, Fault, Faults, Trigger};
use baio_storage::{Access, Core, CreateOptions, Handle, Identity, Mode, Ticket};

use crate::harness::through_cache::{B, begin_write, end, open_cached, put, slow_disk, sync};
use crate::harness::{BLOCK, ME, STRANGER};

/// Pages of the cache; of these so many may be dirty.
const PAGES: usize = 64;
const LIMIT: usize = PAGES * 3 / 4;

fn segment(core: &mut Core, who: Identity) -> Handle {
    core.create(who, who.uid, "data", &CreateOptions::of_size(256 * B))
        .unwrap();
    core.open_segment(who, who.uid, "data", Access::Write).unwrap().0
}

/// The device works on what is written of this owner's segment for a day.
fn stop(disk: &Disk, core: &mut Core, who: Identity) {
    let data = core.volume_info().unwrap().data_at_bytes;
    let at = data + core.list(who).unwrap()[0].start_block * B;
    let day = Duration::from_secs(86400);
    let slow = Trigger::always(Fault::Delay).within(at..at + 256 * B);
    disk.set_faults(Faults::none().when(slow).delays(day..day + Duration::from_secs(1)));
}

/// Begins to write so many blocks from `from` on, one request each, of which every other one is left out, so that none is merged.
fn begin(core: &mut Core, handle: Handle, from: u64, blocks: usize) -> Vec<Ticket> {
    let each = |nth| begin_write(core, handle, from + 2 * nth as u64, &[7; BLOCK], Mode::Cached);
    (0..blocks).map(each).collect()
}

/// Those that have not ended.
fn left(core: &mut Core, tickets: Vec<Ticket>) -> Vec<Ticket> {
    core.turn(Wait::No).unwrap();
    tickets
        .into_iter()
        .filter(|&ticket| match core.poll(ticket, None) {
            Poll::Ready(outcome) => outcome.unwrap().result.map(|_| false).unwrap(),
            Poll::Pending => true,
        })
        .collect()
}

#[test]
fn an_owner_whose_device_stands_still_does_not_keep_another_from_writing() {
    let disk = slow_disk();
    let mut core = open_cached(&disk, PAGES);
    let (mine, others) = (segment(&mut core, ME), segment(&mut core, STRANGER));
    stop(&disk, &mut core, ME);
    let first = begin(&mut core, others, 200, 1);
    assert!(left(&mut core, first).is_empty());
    let waiting = begin(&mut core, mine, 0, 60);
    let waiting = left(&mut core, waiting);
    assert_eq!(waiting.len(), 60 - LIMIT / 2, "half of the room is not the first one's");
    // Many times what the cache holds.
    for round in 0..10 {
        for block in 0..100 {
            put(&mut core, others, 2 * block + round % 2, &[7; BLOCK], Mode::Cached);
        }
    }
    sync(&mut core, others).unwrap();
    let waiting = left(&mut core, waiting);
    assert_eq!(
        waiting.len(),
        60 - LIMIT,
        "nothing of the first one's has been written meanwhile"
    );
    for ticket in waiting {
        end(&mut core, ticket).result.unwrap();
    }
}

#[test]
fn an_owner_alone_has_all_the_room_and_who_comes_then_has_some_at_once() {
    let disk = slow_disk();
    let mut core = open_cached(&disk, PAGES);
    let (mine, others) = (segment(&mut core, ME), segment(&mut core, STRANGER));
    stop(&disk, &mut core, ME);
    let waiting = begin(&mut core, mine, 0, 60);
    let waiting = left(&mut core, waiting);
    assert_eq!(waiting.len(), 60 - LIMIT);
    for block in 0..100 {
        put(&mut core, others, 2 * block, &[7; BLOCK], Mode::Cached);
    }
    sync(&mut core, others).unwrap();
    let waiting = left(&mut core, waiting);
    assert_eq!(
        waiting.len(),
        60 - LIMIT,
        "nothing of the first one's has been written meanwhile"
    );
    for ticket in waiting {
        end(&mut core, ticket).result.unwrap();
    }
}
