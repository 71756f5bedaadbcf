//! The promise: a sparse volume whose host is full refuses what needs more of the host, and nothing else. The metadata has its
//! room from the format on; a create that finds too little gives back what it took; an update of the inode table that the
//! host refuses changes nothing.

use std::os::unix::fs::MetadataExt;

use baio_engine::sim::{Disk, Faults, Sim};
use baio_engine::{Engine, File};
use baio_storage::{Core, CreateOptions, Error, Fault, FormatOptions, ResizeOptions, format_on};

use crate::harness::{self, BLOCK, ME, config, create, open_simulated, open_write, read, sync, write};

const PAGE: u64 = BLOCK as u64;

fn format() -> FormatOptions {
    FormatOptions {
        size_bytes: Some(64 << 20),
        ..FormatOptions::default()
    }
}

/// A formatted disk that has room for so many bytes when it is formatted.
fn disk(real_bytes: u64) -> Disk {
    let disk = Disk::new(64 << 20);
    disk.set_faults(Faults::none().real_bytes(real_bytes));
    let mut engine = Engine::simulated(Sim::new(1).unwrap(), &config()).unwrap();
    format_on(&mut engine, &File::simulated(&disk, "disk"), &format()).unwrap();
    disk
}

fn try_create(core: &mut Core, name: &str, bytes: u64) -> Result<(), Error> {
    core.create(ME, ME.uid, name, &CreateOptions::of_size(bytes)).map(drop)
}

fn nothing_leaked(core: &mut Core) {
    let segments = core.list(ME).unwrap();
    let info = core.volume_info().unwrap();
    let used: u64 = segments.iter().map(|segment| segment.reserve_bytes).sum();
    assert_eq!(info.free_bytes + used, info.size_bytes, "{segments:?}");
    assert_eq!(core.quota(ME, ME.uid).unwrap().used.blocks * PAGE, used);
    assert_eq!(core.quota(ME, ME.uid).unwrap().used.segments, segments.len() as u64);
}

#[test]
fn format_takes_the_room_of_the_metadata() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let info = Core::format(&path, &format()).unwrap();
    let file = std::fs::metadata(&path).unwrap();
    if rustix::fs::fallocate(
        std::fs::File::create(dir.path().join("probe")).unwrap(),
        rustix::fs::FallocateFlags::empty(),
        0,
        PAGE,
    )
    .is_err()
    {
        harness::skip("the file system of the temporary directory reserves nothing");
        return;
    }
    assert!(file.blocks() * 512 >= info.data_at_bytes, "{} blocks", file.blocks());
    assert!(file.blocks() * 512 < 2 * info.data_at_bytes, "the data is sparse");
}

#[test]
fn a_create_that_fails_gives_its_room_back() {
    let disk = disk(4 << 20);
    let mut core = open_simulated(&disk);
    create(&mut core, "a", 1 << 20);
    for _ in 0..3 {
        assert_eq!(try_create(&mut core, "big", 32 << 20).unwrap_err().code(), "ENOSPC");
        nothing_leaked(&mut core);
    }
    create(&mut core, "b", 1 << 20);
    let longer = ResizeOptions::to_size(8 << 20);
    assert_eq!(core.resize(ME, ME.uid, "b", &longer).unwrap_err().code(), "ENOSPC");
    nothing_leaked(&mut core);
    create(&mut core, "c", 512 << 10);
}

#[test]
fn what_needs_no_room_goes_on() {
    let disk = disk(4 << 20);
    let mut core = open_simulated(&disk);
    create(&mut core, "a", 1 << 20);
    create(&mut core, "b", 1 << 20);
    let handle = open_write(&mut core, "b");
    write(&mut core, handle, 0, &[7; BLOCK]).unwrap();
    sync(&mut core, handle).unwrap();
    for fill in 0.. {
        match try_create(&mut core, &format!("fill-{fill}"), PAGE) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.code(), "ENOSPC");
                break;
            }
        }
    }
    let shorter = ResizeOptions::to_size(512 << 10);
    core.resize(ME, ME.uid, "b", &shorter).unwrap();
    core.rename(ME, ME.uid, "b", "c").unwrap();
    core.delete(ME, ME.uid, "a").unwrap();
    core.close().unwrap();
    // Without a clean close as well.
    for _ in 0..2 {
        let mut core = open_simulated(&disk);
        let handle = open_write(&mut core, "c");
        assert_eq!(read(&mut core, handle, 0, BLOCK).unwrap(), vec![7; BLOCK]);
        nothing_leaked(&mut core);
    }
}

/// Where the metadata has no room of its own, the host may refuse any page of it. Only an update of which one half was written
/// is in doubt.
#[test]
fn an_update_that_the_host_refuses_changes_nothing() {
    type Change = fn(&mut Core) -> Result<(), Error>;
    let changes: [(&str, Change); 4] = [
        ("create", |core| try_create(core, "new", PAGE)),
        ("delete", |core| core.delete(ME, ME.uid, "a").map(drop)),
        ("resize", |core| {
            let options = ResizeOptions::to_size(PAGE);
            core.resize(ME, ME.uid, "a", &options).map(drop)
        }),
        ("move", |core| core.move_segment(ME, ME.uid, "a", Some(100)).map(drop)),
    ];
    for (name, change) in changes {
        let (mut refused, mut latched) = (0, 0);
        for pages in 0.. {
            let disk = disk(20 * PAGE);
            disk.set_faults(Faults::none().real_bytes(1 << 30));
            let mut core = open_simulated(&disk);
            create(&mut core, "a", 2 * PAGE);
            let handle = open_write(&mut core, "a");
            write(&mut core, handle, 0, &[7; BLOCK]).unwrap();
            disk.set_faults(Faults::none().real_bytes(pages * PAGE));
            let changed = change(&mut core);
            disk.set_faults(Faults::none());
            match changed {
                Ok(()) => break,
                Err(error) => assert_eq!(error.code(), "ENOSPC", "{name}, {pages} pages"),
            }
            refused += 1;
            match change(&mut core) {
                Ok(()) => {}
                Err(error) => {
                    assert!(matches!(error.fault, Fault::Latched), "{name}, {pages} pages: {error}");
                    latched += 1;
                    continue;
                }
            }
            nothing_leaked(&mut core);
            if name != "delete" {
                assert_eq!(read(&mut core, handle, 0, BLOCK).unwrap(), vec![7; BLOCK], "{name}");
            }
        }
        assert!(refused > 1, "{name}: {refused} were refused");
        assert!(latched <= 2, "{name}: latched {latched} times of {refused}");
        assert!(refused > latched, "{name}: latched {latched} times of {refused}");
    }
}
