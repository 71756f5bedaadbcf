//! The promise: two live inodes that claim one block never stop a mount; the later allocation wins, and the other is
//! quarantined, reported, and readable by `check` (DESIGN §5). So what it has and nobody else claims must not be given away.

mod harness;

use baio_engine::sim::Disk;
use baio_storage::segment::bucket::{BucketId, Pair};
use baio_storage::segment::inode::Inode;
use baio_storage::segment::layout::{BUCKET_BYTES, Place};
use baio_storage::segment::superblock::Superblock;
use baio_storage::{Access, CreateOptions, Format};
use harness::{BLOCK, ME, create, open_simulated, open_write, read, simulated_disk, write};

/// Rewrites the inode of a segment as a broken program would: a right image with wrong numbers.
fn tamper(disk: &Disk, name: &str, change: impl Fn(&mut Inode)) {
    let mut page = [0; BLOCK];
    disk.read(0, &mut page);
    let superblock = Superblock::decode(&page, 0).unwrap();
    let (layout, geometry) = (superblock.layout(), superblock.geometry());
    for bucket in 0..layout.buckets() {
        let mut bytes = [0; BUCKET_BYTES as usize];
        disk.read(layout.bucket_at(bucket, Place::Table).unwrap(), &mut bytes);
        let uuid = superblock.uuid;
        let pair = Pair::read(&bytes[..BLOCK], &bytes[BLOCK..], BucketId { uuid, bucket });
        let image = pair.newest().unwrap();
        for (slot, inode) in image.slots(geometry).into_iter().enumerate() {
            let mut inode = inode.unwrap();
            if inode.name.as_ref().is_some_and(|found| found.as_str() == name) {
                change(&mut inode);
                let next = image.next(slot, &inode, superblock.epoch).unwrap();
                for place in [Place::Table, Place::Mirror] {
                    let at = layout.image_at(bucket, next.parity(), place).unwrap();
                    disk.poke(at, next.page().bytes());
                }
                return;
            }
        }
    }
    panic!("no segment {name}");
}

#[test]
fn the_blocks_of_a_quarantined_segment_are_not_given_away() {
    let disk = simulated_disk(&Format {
        size_bytes: Some(2 << 20),
        ..Format::default()
    });
    let mut core = open_simulated(&disk);
    create(&mut core, "old", 8 * BLOCK as u64);
    create(&mut core, "new", BLOCK as u64);
    let handle = open_write(&mut core, "old");
    write(&mut core, handle, 0, &[0x0d; 8 * BLOCK]).unwrap();
    core.close().unwrap();
    let start = open_simulated(&disk).list(ME).unwrap()[1].start_block;
    tamper(&disk, "new", |inode| inode.start_block = start + 3);

    let mut core = open_simulated(&disk);
    let states: Vec<_> = core
        .list(ME)
        .unwrap()
        .into_iter()
        .map(|info| (info.name, info.state))
        .collect();
    assert_eq!(states, [("new".into(), "live"), ("old".into(), "quarantined")]);
    let error = core.open_segment(ME, ME.uid, "old", Access::Read).unwrap_err();
    assert_eq!(error.code(), "ECORRUPT", "{error}");
    let handle = open_write(&mut core, "new");
    assert_eq!(read(&mut core, handle, 0, BLOCK).unwrap(), [0x0d; BLOCK]);
    // Everything that is free is made somebody's, and with that zero.
    for number in 0.. {
        let largest = core.volume_info().unwrap().largest_free_bytes;
        if largest == 0 {
            break;
        }
        let options = CreateOptions::of_size(largest);
        core.create(ME, ME.uid, &format!("filler{number}"), &options).unwrap();
    }
    core.delete(ME, ME.uid, "new").unwrap();
    core.close().unwrap();
    // With its rival gone it is served again, and whole.
    let mut core = open_simulated(&disk);
    let handle = open_write(&mut core, "old");
    assert!(
        read(&mut core, handle, 0, 8 * BLOCK).unwrap() == [0x0d; 8 * BLOCK],
        "some were given away"
    );
    core.close().unwrap();
}
