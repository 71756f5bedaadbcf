//! The promise: who takes free blocks takes them later than whoever had them before. So where an inode that was given up comes
//! back (a write that was lost, a stale image), it loses the blocks to the segment that has them now, and is quarantined.

use baio_engine::sim::Disk;
use baio_storage::segment::inode::InodeState;
use baio_storage::{Core, FormatOptions, ResizeOptions};

use crate::harness::images::{find, forget_clean_close, home, put, state_of};
use crate::harness::{BLOCK, ME, create, open_simulated, open_write, read, simulated_disk, write};

const BLOCKS: u64 = 4;
const BYTES: u64 = BLOCKS * BLOCK as u64;

/// Runs `take` on a volume where "old" was deleted, whose blocks lie behind those of the older "a"; then "old" comes back. "a"
/// keeps its bytes.
fn comes_back(take: impl FnOnce(&mut Core)) -> Disk {
    let disk = simulated_disk(&FormatOptions::of_size(2 << 20));
    let mut core = open_simulated(&disk);
    create(&mut core, "a", BYTES);
    create(&mut core, "old", BYTES);
    let handle = open_write(&mut core, "a");
    write(&mut core, handle, 0, &[1; BYTES as usize]).unwrap();
    core.close().unwrap();
    let (_, old) = find(&disk, "old");
    let mut core = open_simulated(&disk);
    core.delete(ME, ME.uid, "old").unwrap();
    take(&mut core);
    core.close().unwrap();
    let at = home(&disk, ME.uid, "old");
    put(&disk, at, &old);
    forget_clean_close(&disk);
    let mut core = open_simulated(&disk);
    let listed = core.list(ME).unwrap();
    let state = |name: &str| listed.iter().find(|one| one.name == name).map(|one| one.state);
    assert_eq!(state("old"), Some("quarantined"), "{listed:?}");
    assert_ne!(state("a"), Some("quarantined"), "{listed:?}");
    let handle = open_write(&mut core, "a");
    assert_eq!(read(&mut core, handle, 0, BYTES as usize).unwrap(), [1; BYTES as usize]);
    core.close().unwrap();
    assert_eq!(state_of(&disk, at), InodeState::Quarantined);
    disk
}

#[test]
fn a_segment_that_grew_keeps_its_blocks() {
    comes_back(|core| {
        let options = ResizeOptions::to_size(2 * BYTES);
        let grown = core.resize(ME, ME.uid, "a", &options).unwrap();
        assert_eq!((grown.start_block, grown.size_bytes), (0, 2 * BYTES));
    });
}

#[test]
fn a_segment_that_was_moved_keeps_its_blocks() {
    comes_back(|core| {
        let moved = core.move_segment(ME, ME.uid, "a", Some(BLOCKS)).unwrap();
        assert_eq!(moved.start_block, BLOCKS);
    });
}

#[test]
fn a_segment_that_is_being_moved_keeps_its_target() {
    let disk = comes_back(|core| {
        core.begin_move(ME, ME.uid, "a", Some(BLOCKS)).unwrap();
        while core.list(ME).unwrap()[0].state != "moving" {
            core.turn(baio_engine::Wait::one()).unwrap();
        }
        // The close stops it.
    });
    let mut core = open_simulated(&disk);
    assert!(core.list(ME).unwrap().iter().any(|one| one.name == "a"));
}
