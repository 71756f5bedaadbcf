//! The promise: neither an error nor the volume itself tells anybody what is not his. To whoever is neither uid 0 nor the user that the volume's file
//! belongs to, a refusal names what was asked, the volume shows what he holds himself, and neither has a figure of what others have or leave; a volume in use names the
//! process that has it to root and to that process's own user.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use baio_storage::{Core, CreateOptions, Error, Fault, FormatOptions, Identity, ResizeOptions};

use crate::harness::{
    self, BLOCK, ME, ROOT, STRANGER, TestName, child_at, config, open_simulated, role, simulated_disk,
};

const B: u64 = BLOCK as u64;

/// All that an error tells, in words and to programs.
fn told(error: &Error) -> String {
    let (need, cure) = (error.need(), error.cure());
    format!("{error} {error:?} {need:?} {cure:?} {}", error.code())
}

type Attempt = (&'static str, fn(&mut Core, Identity) -> Result<(), Error>);

/// What somebody may try with what is his own: "own", of one block.
const ATTEMPTS: &[Attempt] = &[
    ("create", |core, who| {
        core.create(who, who.uid, "more", &CreateOptions::of_size(1 << 30))
            .map(drop)
    }),
    ("resize", |core, who| {
        core.resize(who, who.uid, "own", &ResizeOptions::to_size(1 << 30))
            .map(drop)
    }),
    ("reserve", |core, who| {
        let options = ResizeOptions {
            reserve_bytes: Some(1 << 30),
            ..ResizeOptions::to_size(B)
        };
        core.resize(who, who.uid, "own", &options).map(drop)
    }),
    ("move to a place that is taken", |core, who| {
        core.move_segment(who, who.uid, "own", Some(3)).map(drop)
    }),
];

#[test]
fn a_refusal_names_what_was_asked_and_no_figure_of_others() {
    let disk = simulated_disk(&FormatOptions {
        segments: Some(37),
        ..FormatOptions::of_size(8 << 20)
    });
    let mut core = open_simulated(&disk);
    // Sizes that occur nowhere else; the hole keeps the longest free run from being all that is free.
    for (name, blocks) in [("a", 97), ("hole", 61), ("b", 89)] {
        core.create(ME, ME.uid, name, &CreateOptions::of_size(blocks * B))
            .unwrap();
    }
    for who in [STRANGER, ROOT] {
        core.create(who, who.uid, "own", &CreateOptions::of_size(B)).unwrap();
    }
    core.delete(ME, ME.uid, "hole").unwrap();
    let info = core.volume_info().unwrap();
    assert_ne!(info.free_bytes, info.largest_free_bytes);
    let figures = [info.free_bytes, info.largest_free_bytes].map(|bytes| [bytes, bytes / B]);
    let names = |text: &str| {
        figures
            .iter()
            .flatten()
            .any(|figure| text.contains(&figure.to_string()))
    };
    for (what, attempt) in ATTEMPTS {
        let refused = attempt(&mut core, STRANGER).unwrap_err();
        assert_eq!(refused.code(), "ENOSPC", "{what}: {refused}");
        let text = told(&refused);
        assert!(!names(&text), "{what}: {text}");
        let Fault::NoSpace { asked, .. } = refused.fault else {
            panic!("{what}: {refused}");
        };
        assert!(refused.to_string().contains(&asked.to_string()), "{what}: {refused}");
        // Root is told, so there was something to tell.
        let refused = attempt(&mut core, ROOT).unwrap_err();
        assert!(names(&told(&refused)), "{what}: {refused}");
    }
    let full = loop {
        let name = "n".repeat(core.volume_info().unwrap().segments as usize); // Without a figure.
        if let Err(error) = core.create(STRANGER, STRANGER.uid, &name, &CreateOptions::of_size(1)) {
            break error;
        }
    };
    assert!(matches!(full.fault, Fault::TableFull { .. }), "{full}");
    for figure in [info.segments_max, core.volume_info().unwrap().segments] {
        assert!(!told(&full).contains(&figure.to_string()), "{}", told(&full));
    }
}

#[test]
fn a_volume_shows_a_stranger_his_own_account() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    harness::format(&path, 8 << 20);
    let mut core = harness::open(&path);
    core.create(ME, ME.uid, "a", &CreateOptions::of_size(97 * B)).unwrap();
    let other = Identity::new(4242, 4242); // Whom the file does not belong to, whoever runs this.
    core.create(other, other.uid, "own", &CreateOptions::of_size(3 * B))
        .unwrap();
    let whole = core.volume_info().unwrap();
    let now = core.volume_view(other).unwrap();
    for who in [ROOT, Identity::effective()] {
        assert_eq!(core.volume_view(who).unwrap().whole.as_ref(), Some(&whole));
    }
    core.close().unwrap();
    let closed = Core::inspect_view(&path, other).unwrap();
    for view in [now, closed] {
        assert_eq!((view.own.used.blocks, view.own.used.segments), (3, 1));
        assert_eq!((view.size_bytes, view.block_size), (whole.size_bytes, whole.block_size));
        let text = format!("{view:?}");
        for figure in [
            whole.free_bytes,
            whole.largest_free_bytes,
            whole.device_bytes,
            whole.data_at_bytes,
        ] {
            assert!(!text.contains(&figure.to_string()), "{figure}: {text}");
        }
        assert!(!text.contains(&format!("{:?}", whole.uuid)), "{text}");
    }
    let seen = Core::inspect_view(&path, Identity::effective()).unwrap().whole.unwrap();
    assert_eq!((seen.free_bytes, seen.uuid), (whole.free_bytes, whole.uuid));
}

/// A process of another user, who may open the file: tells what it is told.
fn look(path: &Path) {
    for error in [
        Core::open(path, &config()).map(drop).unwrap_err(),
        Core::inspect(path, Identity::effective()).map(drop).unwrap_err(),
    ] {
        assert_eq!(error.code(), "EBUSY", "{error}");
        eprintln!("TOLD {}", told(&error));
    }
}

#[test]
fn the_holders_process_is_named_to_root_and_to_its_own_user() {
    if let Some(role) = role() {
        return look(Path::new(&role));
    }
    if !harness::is_root() {
        return harness::skip(harness::NEEDS_ROOT); // Only root can start processes of other users.
    }
    let dir = tempfile::tempdir().unwrap();
    let open_to_all = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    open_to_all(dir.path(), 0o755);
    // This program may lie where others cannot reach it.
    let program = dir.path().join("looker");
    let copied = Command::new("cp")
        .arg(std::env::current_exe().unwrap())
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    let path = dir.path().join("volume.img");
    harness::format(&path, 4 << 20);
    open_to_all(&path, 0o666);
    let holder = harness::open(&path);
    let pid = format!("process {}", std::process::id());
    for (uid, is_named) in [(0, true), (STRANGER.uid, false)] {
        let output = child_at(
            &program,
            TestName::of(the_holders_process_is_named_to_root_and_to_its_own_user),
            &path.display().to_string(),
        )
        .uid(uid)
        .gid(uid)
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "uid {uid}: {said}");
        assert_eq!(said.matches("TOLD").count(), 2, "{said}");
        assert_eq!(said.contains(&pid), is_named, "uid {uid}: {said}");
    }
    drop(holder);
}
