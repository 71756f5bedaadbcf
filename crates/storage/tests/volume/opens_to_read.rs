//! The promise: a volume that is opened to read serves reads by the rules of reading, beside other readers and on what cannot
//! be written; it heals nothing, writes nothing, and refuses whatever would.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use baio_storage::{Access, Core, CreateOptions, Error, Fault, Limits, ResizeOptions};

use crate::harness::{BLOCK, ME, ROOT, config, create, format, open, open_write, read, sync, write};

fn volume(path: &Path, clean: bool) -> Vec<u8> {
    format(path, 2 << 20);
    let mut core = open(path);
    create(&mut core, "a", 8192);
    let handle = open_write(&mut core, "a");
    write(&mut core, handle, 0, &[5; BLOCK]).unwrap();
    sync(&mut core, handle).unwrap();
    if clean {
        core.close().unwrap();
    } else {
        drop(core);
    }
    std::fs::read(path).unwrap()
}

fn is_refused<T: std::fmt::Debug>(result: Result<T, Error>) {
    let error = result.unwrap_err();
    assert!(matches!(error.fault, Fault::ReadOnlyVolume), "{error}");
    assert_eq!(error.code(), "EROFS");
    assert!(error.need().is_some() && error.cure().is_some(), "{error}");
}

#[test]
fn it_reads_and_writes_nothing() {
    for clean in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume.img");
        let before = volume(&path, clean);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
        let mut core = Core::open_to_read(&path, &config()).unwrap();
        let mut beside = Core::open_to_read(&path, &config()).unwrap();
        for core in [&mut core, &mut beside] {
            let (handle, _) = core.open_segment(ME, ME.uid, "a", Access::Read).unwrap();
            assert_eq!(read(core, handle, 0, BLOCK).unwrap(), vec![5; BLOCK]);
            assert_eq!(write(core, handle, 0, &[6; BLOCK]).unwrap_err().code(), "EBADF");
            assert_eq!(core.list(ME).unwrap().len(), 1);
            assert_eq!(core.volume_info().unwrap().clean, clean);
            is_refused(core.open_segment(ME, ME.uid, "a", Access::Write));
            is_refused(core.create(ME, ME.uid, "b", &CreateOptions::of_size(4096)));
            is_refused(core.delete(ME, ME.uid, "a"));
            is_refused(core.rename(ME, ME.uid, "a", "b"));
            is_refused(core.resize(ME, ME.uid, "a", &ResizeOptions::to_size(4096)));
            is_refused(core.move_segment(ME, ME.uid, "a", None));
            is_refused(core.set_quota(ROOT, ME.uid, Limits::default()));
            is_refused(core.resize_volume(ROOT, 4 << 20));
        }
        // Else an ordinary user would be told of the mode.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(
            Core::open(&path, &config()).unwrap_err().code(),
            "EBUSY",
            "who reads is waited for"
        );
        core.close().unwrap();
        drop(beside);
        assert!(
            std::fs::read(&path).unwrap() == before,
            "clean {clean}: a byte has changed"
        );
    }
}

#[test]
fn nobody_reads_beside_a_writer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    volume(&path, true);
    let writer = open(&path);
    let error = Core::open_to_read(&path, &config()).unwrap_err();
    assert!(matches!(error.fault, Fault::Busy { .. }), "{error}");
    writer.close().unwrap();
    Core::open_to_read(&path, &config()).unwrap().close().unwrap();
}
