//! The promise: what is not a volume of ours, or not one that this build may touch, gives one clear error that says what it
//! is, and not one byte of it is changed. And whoever only looks never writes, whatever is broken.

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;

use baio_storage::segment::layout::{Parity, Place};
use baio_storage::segment::page::checksum;
use baio_storage::segment::superblock::Superblock;
use baio_storage::{Core, Error, FormatOptions, Identity};

use crate::harness::{BLOCK, ME, Random, TestName, child, config, create, format, open, open_write, role, sync, write};

const VOLUME: u64 = 2 << 20;

/// A volume with two segments, closed or left as by a crash.
fn image(clean: bool) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    format(&path, VOLUME);
    let mut core = open(&path);
    create(&mut core, "a", 8192);
    create(&mut core, "b", 4096);
    create(&mut core, "c", 4096);
    core.delete(ME, ME.uid, "c").unwrap();
    let handle = open_write(&mut core, "a");
    write(&mut core, handle, 0, &[5; BLOCK]).unwrap();
    sync(&mut core, handle).unwrap();
    if clean {
        core.close().unwrap();
    } else {
        drop(core);
    }
    std::fs::read(&path).unwrap()
}

fn superblock(image: &[u8]) -> Superblock {
    Superblock::decode(&image[..BLOCK], 0).unwrap()
}

/// All four copies, rewritten by `change`, with right checksums.
fn rewrite(image: &mut [u8], change: impl Fn(&mut Superblock)) {
    let mut superblock = superblock(image);
    change(&mut superblock);
    for (copy, at) in superblock.layout().superblocks_at().into_iter().enumerate() {
        let page = superblock.encode(copy as u8);
        image[at as usize..][..BLOCK].copy_from_slice(page.bytes());
    }
}

/// Opens and inspects `bytes`; both must refuse, say `code`, `text` and a cure, and change nothing.
fn refused(what: &str, bytes: &[u8], code: &str, text: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    std::fs::write(&path, bytes).unwrap();
    let check = |way: &str, error: Error| {
        assert_eq!(error.code(), code, "{what}, {way}: {error}");
        let message = error.to_string();
        assert!(message.contains(text), "{what}, {way}: {message}");
        assert!(message.contains(path.to_str().unwrap()), "{what}, {way}: {message}");
        assert!(error.cure().is_some(), "{what}, {way}: no cure in {message}");
        assert!(
            std::fs::read(&path).unwrap() == bytes,
            "{what}, {way}: the file was changed"
        );
    };
    check("open", Core::open(&path, &config()).unwrap_err());
    check("inspect", Core::inspect(&path, ME).unwrap_err());
}

#[test]
fn what_is_no_volume_is_named_and_left_alone() {
    let volume = image(true);
    let mut random = Random(7);
    refused("an empty file", &[], "ENOTVOLUME", "too small");
    refused("three bytes", b"abc", "ENOTVOLUME", "too small");
    refused(
        "random bytes",
        &random.bytes(300_000),
        "ENOTVOLUME",
        "not a baio volume",
    );
    refused("zeroes", &vec![0; 300_000], "ENOTVOLUME", "not a baio volume");
    let mut foreign = vec![0; 300_000];
    foreign[1080..1082].copy_from_slice(&[0x53, 0xef]); // ext4
    refused("a foreign file system", &foreign, "ENOTVOLUME", "not a baio volume");
    let mut only_magic = random.bytes(300_000);
    only_magic[..8].copy_from_slice(b"BAIOVOL\0");
    let error = open_error(&only_magic);
    assert!(["EVERSION", "ECORRUPT"].contains(&error.code()), "{error}");
    for cut in [BLOCK, 70_000, 140_000, volume.len() / 2, volume.len() - BLOCK] {
        refused(&format!("cut to {cut} bytes"), &volume[..cut], "ECORRUPT", "");
    }
    refused(
        "one block short",
        &volume[..volume.len() - BLOCK],
        "ECORRUPT",
        &format!("{}", volume.len() - BLOCK),
    );
}

fn open_error(bytes: &[u8]) -> Error {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    std::fs::write(&path, bytes).unwrap();
    let error = Core::open(&path, &config()).unwrap_err();
    assert!(std::fs::read(&path).unwrap() == bytes);
    error
}

#[test]
fn a_newer_volume_is_refused_whole_or_read_only() {
    for clean in [true, false] {
        let volume = image(clean);
        let places = superblock(&volume).layout().superblocks_at().map(|at| at as usize);
        // All copies; and only those that were written first, or last, by an update that was cut off.
        for copies in [&places[..], &places[..2], &places[2..]] {
            let mut newer = volume.clone();
            for at in copies {
                make_newer(&mut newer[*at..][..BLOCK]);
            }
            refused("a newer version", &newer, "EVERSION", "version 9");
        }
        // A page that is damaged in this very place is no newer volume, nor are two.
        for damaged in [&places[..1], &places[..2], &places[2..]] {
            let mut volume = volume.clone();
            for at in damaged {
                volume[at + 8] = 9;
            }
            assert_eq!(looked_at(&volume), 2, "{damaged:?}");
        }
        // And one whole page of another version, beside three of this one, decides nothing.
        let mut single = volume.clone();
        make_newer(&mut single[..BLOCK]);
        single[places[1]..][..BLOCK].fill(0xff);
        assert_eq!(looked_at(&single), 2);
        let mut newer = volume.clone();
        rewrite(&mut newer, |superblock| superblock.feature_incompat = 1 << 40);
        refused("an incompatible feature", &newer, "EVERSION", "features");
        // What may be read may be read, but not written.
        let mut newer = volume.clone();
        rewrite(&mut newer, |superblock| superblock.feature_ro_compat = 2);
        let error = open_error(&newer);
        assert_eq!(error.code(), "EVERSION");
        assert!(error.to_string().contains("may be read but not written"), "{error}");
        assert_eq!(looked_at(&newer), 2);
        // What does not matter does not matter.
        let mut newer = volume.clone();
        rewrite(&mut newer, |superblock| superblock.feature_compat = 4);
        assert_eq!(looked_at(&newer), 2);
    }
}

/// The superblock of a program that is newer: whole, as it says of itself.
fn make_newer(page: &mut [u8]) {
    page[8] = 9;
    let sum = checksum(page.as_ref().try_into().unwrap(), 16);
    page[16..20].copy_from_slice(&sum.to_le_bytes());
}

/// Inspects a copy; the copy must not change. Returns how many segments there were.
fn looked_at(bytes: &[u8]) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    std::fs::write(&path, bytes).unwrap();
    let (_, segments) = Core::inspect(&path, ME).unwrap();
    assert!(std::fs::read(&path).unwrap() == bytes, "looking has written");
    segments.len()
}

/// Two pairs of one sequence that contradict each other: no program of ours leaves that, so none decides.
#[test]
fn copies_that_contradict_each_other_are_refused() {
    let mut volume = image(true);
    let mut other = superblock(&volume);
    other.alloc_hint += 1;
    let places = other.layout().superblocks_at();
    for copy in [2_u8, 3] {
        volume[places[usize::from(copy)] as usize..][..BLOCK].copy_from_slice(other.encode(copy).bytes());
    }
    refused("a conflict", &volume, "ECORRUPT", "contradict");
}

/// The search for lost copies must not be started on a volume that is refused anyway: this one would take minutes.
#[test]
fn a_huge_newer_volume_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    format(&path, 1 << 40);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut page = vec![0; BLOCK];
    file.read_exact_at(&mut page, 0).unwrap();
    // All four: a search would find none and go to the end.
    for (copy, at) in (0..).zip(superblock(&page).layout().superblocks_at()) {
        let mut newer = *superblock(&page).encode(copy).bytes();
        make_newer(&mut newer);
        file.write_all_at(&newer, at).unwrap();
    }
    assert_eq!(Core::open(&path, &config()).unwrap_err().code(), "EVERSION");
    assert_eq!(Core::inspect(&path, ME).unwrap_err().code(), "EVERSION");
}

/// Looking at a volume writes nothing, even where an open would heal.
#[test]
fn looking_never_writes_even_at_what_an_open_would_heal() {
    for clean in [true, false] {
        let volume = image(clean);
        assert_eq!(looked_at(&volume), 2);
        let layout = *superblock(&volume).layout();
        for at in layout.superblocks_at() {
            let mut rotten = volume.clone();
            rotten[at as usize + 100] ^= 1;
            assert_eq!(looked_at(&rotten), 2);
        }
        for bucket in 0..layout.buckets() {
            for place in [Place::Table, Place::Mirror] {
                for parity in Parity::BOTH {
                    let at = layout.image_at(bucket, parity, place).unwrap() as usize;
                    let mut rotten = volume.clone();
                    rotten[at + 200] ^= 1;
                    assert_eq!(looked_at(&rotten), 2);
                }
            }
        }
    }
}

#[test]
fn what_cannot_hold_a_volume_is_refused_without_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let missing = dir.path().join("missing");
    for (path, code) in [
        (dir.path(), "EISDIR"),
        (missing.as_path(), "ENOENT"),
        (fifo.as_path(), "ENOTVOLUME"),
        (Path::new("/dev/null"), "ENOTVOLUME"),
        (Path::new("/dev/zero"), "ENOTVOLUME"),
    ] {
        for result in [Core::open(path, &config()).map(drop), Core::inspect(path, ME).map(drop)] {
            let error = result.unwrap_err();
            assert_eq!(error.code(), code, "{error}");
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        }
    }
    assert!(!missing.exists());
    let error = Core::format(&missing, &FormatOptions::default()).unwrap_err();
    assert_eq!(error.code(), "EINVAL", "{error}");
    let too_small = FormatOptions::of_size(4096);
    assert_eq!(Core::format(&missing, &too_small).unwrap_err().code(), "EINVAL");
    assert!(!missing.exists(), "a failed format leaves no file behind");
    // Larger than most file systems' files: fails when the file is there already.
    let too_large = FormatOptions::of_size(1 << 60);
    if let Err(error) = Core::format(&missing, &too_large) {
        assert_eq!(error.code(), "EFBIG", "{error}");
        assert!(!missing.exists(), "a failed format leaves no file behind");
    }
}

/// What somebody may miss is not formatted over unasked.
#[test]
fn format_overwrites_nothing_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let mut late = vec![0; VOLUME as usize];
    late[64 << 10] = 1;
    for bytes in [image(true), image(false), late, b"a letter".to_vec()] {
        std::fs::write(&path, &bytes).unwrap();
        for size_bytes in [None, Some(VOLUME * 2)] {
            let options = FormatOptions {
                size_bytes,
                ..FormatOptions::default()
            };
            let error = Core::format(&path, &options).unwrap_err();
            if bytes.len() > 8 || size_bytes.is_some() {
                assert_eq!(error.code(), "EEXIST", "{error}");
            }
            assert!(std::fs::read(&path).unwrap() == bytes);
        }
    }
    let forced = FormatOptions {
        force: true,
        ..FormatOptions::of_size(VOLUME)
    };
    Core::format(&path, &forced).unwrap();
    assert_eq!(Core::inspect(&path, Identity::new(0, 0)).unwrap().1.len(), 0);
}

/// As an ordinary user on a file that may only be read: looking works, opening says why not.
#[test]
fn a_file_that_may_only_be_read_is_looked_at_but_not_opened() {
    if let Some(path) = role() {
        let path = Path::new(&path);
        let error = Core::open(path, &config()).unwrap_err();
        assert_eq!(error.code(), "EACCES", "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        assert!(error.cure().unwrap().contains("chmod u+rw"), "{error}");
        assert!(!error.to_string().contains("second"), "{error}");
        assert_eq!(Core::inspect(path, ME).unwrap().1.len(), 2);
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let path = dir.path().join("volume.img");
    let bytes = image(true);
    std::fs::write(&path, &bytes).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o444)).unwrap();
    let mut child = child(
        TestName::of(a_file_that_may_only_be_read_is_looked_at_but_not_opened),
        path.to_str().unwrap(),
    );
    if rustix::process::geteuid().is_root() {
        child.uid(ME.uid).gid(ME.gid);
    }
    let output = child.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(std::fs::read(&path).unwrap() == bytes);
}
