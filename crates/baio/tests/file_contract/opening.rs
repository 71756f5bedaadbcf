//! How a file is opened, and what is refused.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use baio::{Error, Fault, File, Mode, OpenOptions};
use futures_util::future::join_all;

use crate::rig::{
    Bench, Case, Made, PAGE, buffer, bytes, once, open, read, size, skip, try_open, try_read, try_write, write,
};

fn is(error: &Error, code: &str, path: &std::path::Path) {
    assert_eq!(error.code(), code, "{error}");
    assert!(
        error.to_string().contains(path.to_str().unwrap()),
        "{error} names no path"
    );
}

pub(crate) fn what_is_missing_is_not_made<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.path("missing"));
    is(&File::open(&link, &path).wait().unwrap_err(), "ENOENT", &path);
    is(
        &OpenOptions::new()
            .write()
            .truncate()
            .open(&link, &path)
            .wait()
            .unwrap_err(),
        "ENOENT",
        &path,
    );
    assert!(!path.exists());
    Ok(())
}

pub(crate) fn create_makes_it<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    for mode in [Mode::Kernel, Mode::Direct, Mode::Cached, Mode::Uncached] {
        if bench.gives(mode).is_err() {
            continue;
        }
        let path = bench.path(&format!("{mode:?}"));
        let file = OpenOptions::new()
            .write()
            .create()
            .mode(mode)
            .open(&link, &path)
            .wait()
            .unwrap();
        assert_eq!((size(&file), read(&file, 0, PAGE)), (0, vec![]), "{mode:?}");
        assert!(path.is_file());
    }
    Ok(())
}

pub(crate) fn create_keeps_what_is_there<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", 100));
    let file = OpenOptions::new().write().create().open(&link, &path).wait().unwrap();
    assert_eq!(read(&file, 0, 200), bytes(100));
    Ok(())
}

pub(crate) fn create_new_makes_it<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.path("new"));
    let file = OpenOptions::new()
        .write()
        .create_new()
        .open(&link, &path)
        .wait()
        .unwrap();
    write(&file, 0, b"first");
    assert_eq!(std::fs::read(path).unwrap(), b"first");
    Ok(())
}

pub(crate) fn create_new_refuses_what_is_there<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", 100));
    let refused = OpenOptions::new()
        .write()
        .create_new()
        .truncate()
        .open(&link, &path)
        .wait();
    is(&refused.unwrap_err(), "EEXIST", &path);
    assert_eq!(std::fs::read(path).unwrap(), bytes(100));
    Ok(())
}

pub(crate) fn a_directory_is_refused<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.path("folder"));
    std::fs::create_dir(&path).unwrap();
    is(&File::open(&link, &path).wait().unwrap_err(), "EISDIR", &path);
    is(&try_open(&link, &path, Mode::Kernel).unwrap_err(), "EISDIR", &path);
    Ok(())
}

pub(crate) fn a_path_through_a_file_is_refused<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", 1).join("below"));
    is(&File::open(&link, &path).wait().unwrap_err(), "ENOTDIR", &path);
    Ok(())
}

pub(crate) fn an_open_without_permission_is_refused<L: Made>(bench: &Bench<L>) -> Case {
    if rustix::process::geteuid().is_root() {
        return skip("root may open everything");
    }
    let (link, path) = (bench.link(), bench.file("one", 100));
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o400)).unwrap();
    is(&try_open(&link, &path, Mode::Kernel).unwrap_err(), "EACCES", &path);
    assert_eq!(read(&File::open(&link, &path).wait().unwrap(), 0, 100), bytes(100));
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o000)).unwrap();
    is(&File::open(&link, &path).wait().unwrap_err(), "EACCES", &path);
    Ok(())
}

pub(crate) fn a_handle_to_read_refuses_changes<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", 2 * PAGE));
    for mode in [Mode::Kernel, Mode::Direct, Mode::Cached, Mode::Uncached] {
        if bench.gives(mode).is_err() {
            continue;
        }
        let file = OpenOptions::new().mode(mode).open(&link, &path).wait().unwrap();
        let failed = file.write_at(0, buffer(&link, &[1; PAGE])).wait().unwrap_err();
        assert!(matches!(failed.error.fault, Fault::ReadOnly), "{mode:?}: {failed}");
        assert_eq!(failed.buffer.unwrap()[..], [1; PAGE], "{mode:?}");
        assert_eq!(read(&file, 0, PAGE), bytes(2 * PAGE)[..PAGE]);
    }
    assert_eq!(std::fs::read(path).unwrap(), bytes(2 * PAGE));
    Ok(())
}

pub(crate) fn a_kernel_handle_refuses_direct_requests<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    let file = open(&link, &path, Mode::Kernel).with_mode(Mode::Direct);
    let error = try_read(&file, 0, PAGE).unwrap_err();
    assert_eq!(error.code(), "EINVAL", "{error}");
    assert!(error.to_string().contains("open the file for that mode"), "{error}");
    Ok(())
}

pub(crate) fn a_direct_handle_refuses_kernel_requests<L: Made>(bench: &Bench<L>) -> Case {
    bench.gives(Mode::Direct)?;
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    let file = open(&link, &path, Mode::Direct);
    for mode in [Mode::Kernel, Mode::Uncached] {
        let failed = file
            .read_at(0, buffer(&link, &[0; PAGE]))
            .mode(mode)
            .wait()
            .unwrap_err();
        assert_eq!(
            (failed.error.code(), failed.buffer.is_some()),
            ("EINVAL", true),
            "{failed}"
        );
    }
    assert_eq!(read(&file, 0, PAGE), bytes(PAGE));
    Ok(())
}

pub(crate) fn every_mode_gives_every_mode<L: Made>(bench: &Bench<L>) -> Case {
    bench.gives(Mode::Direct)?;
    let (link, path) = (bench.link(), bench.file("one", 4 * PAGE));
    let file = OpenOptions::new()
        .write()
        .every_mode()
        .open(&link, &path)
        .wait()
        .unwrap();
    assert_eq!(file.default_mode(), Mode::Kernel);
    for (nth, mode) in [Mode::Kernel, Mode::Direct, Mode::Cached, Mode::Uncached]
        .into_iter()
        .enumerate()
    {
        let offset = nth as u64 * 4096;
        file.write_at(offset, buffer(&link, &[nth as u8 + 1; PAGE]))
            .mode(mode)
            .wait()
            .unwrap();
        for seen in [Mode::Kernel, Mode::Direct, Mode::Cached, Mode::Uncached] {
            let done = file
                .read_at(offset, buffer(&link, &[0; PAGE]))
                .mode(seen)
                .wait()
                .unwrap();
            assert_eq!(
                done.buffer[..],
                [nth as u8 + 1; PAGE],
                "written {mode:?}, read {seen:?}"
            );
        }
    }
    Ok(())
}

pub(crate) fn cached_needs_a_cache<L: Made>(bench: &Bench<L>) -> Case {
    let mut options = bench.options();
    options.cache = None;
    let (link, path) = (bench.link_with(&options), bench.file("one", PAGE));
    let file = open(&link, &path, Mode::Cached);
    let failed = file.read_at(0, buffer(&link, &[0; PAGE])).wait().unwrap_err();
    assert!(matches!(failed.error.fault, Fault::NoCache), "{failed}");
    assert_eq!(failed.buffer.map(|back| back.len()), Some(PAGE));
    assert_eq!(
        file.read_at(0, buffer(&link, &[0; PAGE]))
            .mode(Mode::Kernel)
            .wait()
            .unwrap()
            .bytes,
        PAGE
    );
    Ok(())
}

pub(crate) fn a_file_system_without_direct_says_so<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), PathBuf::from("/proc/self/status"));
    let error = OpenOptions::new().direct().open(&link, &path).wait().unwrap_err();
    is(&error, "EINVAL", &path);
    assert!(error.to_string().contains("O_DIRECT"), "{error}");
    let file = File::open(&link, &path).wait().unwrap();
    assert!(read(&file, 0, 4096).starts_with(b"Name:"));
    Ok(())
}

fn pipe<L: Made>(bench: &Bench<L>) -> PathBuf {
    let path = bench.path("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    path
}

pub(crate) fn a_pipe_is_written_and_read<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), pipe(bench));
    // Opened for both it waits for nobody (fifo(7)).
    let file = open(&link, &path, Mode::Kernel);
    write(&file, 0, b"through a pipe");
    assert_eq!(read(&file, 0, 7), b"through");
    assert_eq!(read(&file, 0, 100), b" a pipe");
    assert_eq!(size(&file), 0);
    Ok(())
}

/// Opening it to read waits for a writer: in a thread of its own, and whoever gives up waiting is not held by it.
pub(crate) fn a_pipe_that_nobody_writes_holds_nobody_up<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), pipe(bench));
    let other = bench.file("one", PAGE);
    let mut opening = File::open(&link, &path);
    let meanwhile = async {
        assert!(once(&mut opening).await.is_none());
        let file = File::open(&link, &other).await.unwrap();
        let done = file.read_at(0, buffer(&link, &[0; PAGE])).await.unwrap();
        assert_eq!(done.buffer[..], bytes(PAGE));
    };
    link.block_on(meanwhile).unwrap();
    // A writer has come.
    let writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let reader = opening.wait().unwrap();
    std::io::Write::write_all(&mut &writer, b"late").unwrap();
    assert_eq!(read(&reader, 0, 10), b"late");
    drop(writer);
    assert_eq!(read(&reader, 0, 10), b"", "its end");
    Ok(())
}

/// A loop device over a file, given back at the end.
struct Loop(PathBuf);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).output();
    }
}

pub(crate) fn a_block_device_is_a_file<L: Made>(bench: &Bench<L>) -> Case {
    if !rustix::process::geteuid().is_root() {
        return skip("needs root");
    }
    let backing = bench.path("backing");
    std::fs::File::create(&backing).unwrap().set_len(1 << 20).unwrap();
    let made = Command::new("losetup")
        .args(["--find", "--show"])
        .arg(&backing)
        .output();
    let device = match made {
        Ok(output) if output.status.success() => Loop(String::from_utf8(output.stdout).unwrap().trim().into()),
        Ok(output) => return skip(format!("no loop device: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => return skip(format!("no losetup: {error}")),
    };
    let link = bench.link();
    for mode in [Mode::Kernel, Mode::Direct, Mode::Cached] {
        let file = OpenOptions::new()
            .write()
            .create()
            .mode(mode)
            .claim_device()
            .open(&link, &device.0)
            .wait()
            .unwrap();
        assert_eq!(size(&file), 1 << 20, "{mode:?}");
        write(&file, 8192, &[mode as u8 + 1; PAGE]);
        assert_eq!(read(&file, 8192, PAGE), [mode as u8 + 1; PAGE], "{mode:?}");
        assert_eq!(read(&file, 1 << 20, PAGE), [], "{mode:?}");
        let refused = try_write(&file, 1 << 20, &[1; PAGE]).unwrap_err();
        assert_eq!(refused.code(), "ENOSPC", "{mode:?}: {refused}");
        let claimed = OpenOptions::new()
            .claim_device()
            .open(&link, &device.0)
            .wait()
            .unwrap_err();
        is(&claimed, "EBUSY", &device.0);
        file.sync(baio::Durability::Full).wait().unwrap();
        drop(file);
        // The close is on its way over a service, and what was cached is written first.
        for _ in 0..1000 {
            let again = OpenOptions::new().claim_device().open(&link, &device.0).wait();
            if again.is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    Ok(())
}

pub(crate) fn many_at_once<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let paths: Vec<_> = (0..50).map(|nth| bench.file(&nth.to_string(), nth)).collect();
    let opened = link
        .block_on(join_all(paths.iter().map(|path| File::open(&link, path))))
        .unwrap();
    for (nth, file) in opened.into_iter().enumerate() {
        let file = file.unwrap();
        assert_eq!(
            (file.name(), read(&file, 0, 100)),
            (paths[nth].to_str().unwrap(), bytes(nth))
        );
    }
    Ok(())
}
