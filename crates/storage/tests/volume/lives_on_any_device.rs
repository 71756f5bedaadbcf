//! The claim: a volume lives on any device that the engine can reach, by one door and one set of rules. The device brings its lock:
//! while somebody has it nobody else opens, makes or checks a volume there, and the error names it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use baio_engine::sim::{Disk, Sim};
use baio_engine::{Caching, Device as Below, DirectLimits, DurableBy, Engine, Errno, File, Open};
use baio_storage::{Access, Core, Device, Fault, FormatOptions, check_on, format_on, inspect_on};

use super::harness::{ME, ROOT, config, create, open_write, read, write};

const BYTES: u64 = 8 << 20;

fn simulation() -> Engine {
    Engine::simulated(Sim::new(7).unwrap(), &config()).unwrap()
}

fn system() -> Engine {
    Engine::new(&config()).unwrap()
}

fn open_file(path: &Path) -> File {
    File::open(path, &Open::write()).unwrap()
}

/// Makes a volume, and says what is in it when it was closed and opened again.
fn lives(engine: fn() -> Engine, file: &File) -> Vec<u8> {
    format_on(&mut engine(), file, &FormatOptions::default()).unwrap();
    let mut core = Core::open_on(engine(), file, &config()).unwrap();
    create(&mut core, "data", 8192);
    let handle = open_write(&mut core, "data");
    write(&mut core, handle, 4096, &[7; 4096]).unwrap();
    core.close().unwrap();

    let again = format_on(&mut engine(), file, &FormatOptions::default()).unwrap_err();
    assert!(matches!(again.fault, Fault::Occupied(_)), "{again}");
    assert!(check_on(&mut engine(), file, true).unwrap().problems.is_empty());
    assert_eq!(inspect_on(&mut engine(), file, ROOT).unwrap().1.len(), 1);
    let mut core = Core::open_to_read_on(engine(), file, &config()).unwrap();
    let (handle, _) = core.open_segment(ME, ME.uid, "data", Access::Read).unwrap();
    let bytes = read(&mut core, handle, 0, 8192).unwrap();
    core.close().unwrap();
    bytes
}

#[test]
fn a_simulated_disk_and_a_plain_file_are_opened_by_one_door() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    std::fs::File::create(&path).unwrap().set_len(BYTES).unwrap();
    let on_file = lives(system, &open_file(&path));
    let on_disk = lives(simulation, &File::simulated(&Disk::new(BYTES), "disk"));
    assert!(on_file == on_disk && on_file[..4096] == [0; 4096] && on_file[4096..] == [7; 4096]);
    // The same volume, by its path.
    assert_eq!(Core::open(&path, &config()).unwrap().list(ME).unwrap().len(), 1);
}

#[test]
fn a_file_that_is_a_volume_is_locked_and_whoever_comes_is_told_by_whom() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    std::fs::File::create(&path).unwrap().set_len(BYTES).unwrap();
    format_on(&mut system(), &open_file(&path), &FormatOptions::default()).unwrap();
    let core = Core::open_on(system(), &open_file(&path), &config()).unwrap();

    let other = open_file(&path);
    let refused = [
        Core::open_on(system(), &other, &config()).map(drop),
        Core::open(&path, &config()).map(drop),
        Core::open_to_read_on(system(), &other, &config()).map(drop),
        check_on(&mut system(), &other, false).map(drop),
        format_on(
            &mut system(),
            &other,
            &FormatOptions {
                force: true,
                ..FormatOptions::default()
            },
        )
        .map(drop),
    ];
    for refused in refused {
        let error = refused.unwrap_err();
        let holder = Some(std::process::id());
        assert!(
            matches!(error.fault, Fault::Busy { holder: by } if by == holder),
            "{error}"
        );
        assert!(error.to_string().contains("volume.img"), "{error}");
    }
    core.close().unwrap();
    Core::open_on(system(), &other, &config()).unwrap().close().unwrap();
}

/// A disk with a lock of its own, which can be lost.
struct Locks {
    disk: File,
    is_lost: Arc<AtomicBool>,
    is_locked: Arc<AtomicBool>,
}

impl Below for Locks {
    fn identity(&self) -> (u64, u64) {
        self.disk.identity()
    }

    fn size(&self) -> Result<u64, Errno> {
        self.disk.size()
    }

    fn direct_limits(&self) -> DirectLimits {
        self.disk.direct_limits()
    }

    fn durable_by(&self) -> DurableBy {
        self.disk.durable_by()
    }

    fn gives(&self, caching: Caching) -> bool {
        self.disk.gives(caching)
    }

    fn try_lock(&self, _: bool) -> Result<(), Errno> {
        match self.is_lost.load(Ordering::SeqCst) {
            true => Err(Errno::ENOTCONN),
            false => {
                self.is_locked.store(true, Ordering::SeqCst);
                Ok(())
            }
        }
    }

    fn unlock(&self) {
        self.is_locked.store(false, Ordering::SeqCst);
    }
}

#[test]
fn a_device_that_gives_no_lock_is_not_opened_and_is_named() {
    let (is_lost, is_locked) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    let locks = Locks {
        disk: File::simulated(&Disk::new(BYTES), "disk"),
        is_lost: is_lost.clone(),
        is_locked: is_locked.clone(),
    };
    let file = File::on(locks, "pool/image");
    let refused = [
        Core::open_on(simulation(), &file, &config()).map(drop),
        format_on(&mut simulation(), &file, &FormatOptions::default()).map(drop),
        check_on(&mut simulation(), &file, false).map(drop),
    ];
    for refused in refused {
        let said = refused.unwrap_err().to_string();
        assert!(said.contains("lock") && said.contains("pool/image"), "{said}");
    }
    // No backend here serves it: so it is given back when the lock was had and the first request fails. Whoever keeps others away himself
    // meets no lock at all.
    is_lost.store(false, Ordering::SeqCst);
    let error = Core::open_on(simulation(), &file, &config()).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::EBADF), "{error}");
    assert!(!is_locked.load(Ordering::SeqCst));
    is_lost.store(true, Ordering::SeqCst);
    let error = Core::open_on(simulation(), Device::unlocked(&file), &config()).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::EBADF), "{error}");
}
