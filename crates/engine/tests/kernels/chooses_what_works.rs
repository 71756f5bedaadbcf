//! An engine starts wherever anything works, on the best that does; what it did not take is told with reason and cure
//! (docs/inside/engine.md rule 7). What a system may forbid is forbidden here by a seccomp filter on one thread, as containers do.

use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use baio_engine::{Caching, Choice, Create, Engine, EngineOptions, Errno, File, Open, Policy, Request, Wait};

use crate::backends::tell;
use crate::config::config;
use crate::filter::forbid;

/// Runs `body` in a thread of its own, for which these system calls fail.
fn without(calls: &[libc::c_long], errno: i32, body: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            forbid(calls, errno);
            body();
        });
    });
}

const RING: &[libc::c_long] = &[libc::SYS_io_uring_setup];
const RING_AND_AIO: &[libc::c_long] = &[libc::SYS_io_uring_setup, libc::SYS_io_setup];
const RING_AIO_AND_THREADS: &[libc::c_long] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_setup,
    libc::SYS_clone,
    libc::SYS_clone3,
];

/// Starts whatever works, and uses it.
fn takes(expected: &str, rejected: &[&str]) {
    let mut engine = Engine::new(&config(Choice::Auto)).expect("something always works");
    assert_eq!(engine.explain().backend, expected);
    let told: Vec<_> = engine.rejected().iter().map(|why| why.backend).collect();
    assert_eq!(told, rejected);
    for why in engine.rejected() {
        assert!(why.cure.is_some() && why.reason.contains("EPERM"), "{why:?}");
    }
    let mut kept = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    kept.write_all(&[7; 4096]).unwrap();
    let file = File::open(kept.path(), &Open::write()).unwrap();
    for policy in [Policy::kernel(), Policy::direct()] {
        if file.gives(policy.caching) {
            let read = engine.run(Request::read(&file, 0, engine.buffer(4096).unwrap(), policy));
            assert_eq!(read.result, Ok(4096));
            assert!(read.memory.into_buffer().unwrap().iter().all(|&byte| byte == 7));
        }
    }
    let mut buffer = engine.buffer(512).unwrap();
    buffer.fill(9);
    assert_eq!(
        engine.run(Request::write(&file, 0, buffer, Policy::kernel())).result,
        Ok(512)
    );
    let mut bytes = Vec::new();
    kept.reopen().unwrap().read_to_end(&mut bytes).unwrap();
    assert!(bytes[..512].iter().all(|&byte| byte == 9));
}

#[test]
fn without_a_ring_there_is_native_aio() {
    without(RING, libc::EPERM, || takes("aio", &["uring"]));
}

#[test]
fn without_native_aio_there_are_threads() {
    without(RING_AND_AIO, libc::EPERM, || takes("threads", &["uring", "aio"]));
}

#[test]
fn without_threads_there_are_blocking_calls() {
    without(RING_AIO_AND_THREADS, libc::EPERM, || {
        takes("sync", &["uring", "aio", "threads"]);
    });
}

/// A context that can be set up and not used is found out before anybody relies on it.
#[test]
fn a_backend_that_only_starts_is_not_taken() {
    without(&[libc::SYS_io_uring_setup, libc::SYS_io_submit], libc::EPERM, || {
        takes("threads", &["uring", "aio"]);
    });
}

#[test]
fn a_backend_asked_for_by_name_tells_why_it_does_not_start() {
    for (choice, calls) in [
        (Choice::Uring, RING),
        (Choice::Aio, RING_AND_AIO),
        (Choice::Threads, RING_AIO_AND_THREADS),
    ] {
        for errno in [libc::EPERM, libc::ENOSYS] {
            without(calls, errno, || {
                let error = Engine::new(&config(choice)).err().expect("forbidden");
                assert!(error.cure.is_some(), "{choice}: {error}");
            });
        }
    }
}

#[test]
fn a_thread_that_is_refused_later_only_makes_the_pool_smaller() {
    without(&[], 0, || {
        let mut engine = Engine::new(&config(Choice::Threads)).expect("threads can be made here");
        forbid(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN);
        let kept = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let file = File::open(kept.path(), &Open::write()).unwrap();
        for round in 0..100 {
            for block in 0..16 {
                let mut buffer = engine.buffer(4096).unwrap();
                buffer.fill(round);
                let write = Request::write(&file, block * 4096, buffer, Policy::kernel());
                engine.submit(write).unwrap();
            }
            while engine.in_flight() > 0 {
                engine.turn(baio_engine::Wait::one()).unwrap();
            }
            for _ in 0..16 {
                assert_eq!(engine.next_completion().unwrap().result, Ok(4096));
            }
        }
        let features = engine.explain().features;
        let (_, told) = features.iter().find(|(name, _)| *name == "worker_threads").unwrap();
        assert!(told.as_ref().unwrap_err().contains("EAGAIN"), "{told:?}");
    });
}

/// All users together have 65,536 by default.
#[test]
fn used_up_aio_operations_are_told_with_the_sysctl() {
    let most = std::fs::read_to_string("/proc/sys/fs/aio-max-nr").unwrap();
    let most: u32 = most.trim().parse().unwrap();
    if most >= EngineOptions::SLOTS_MAX {
        return eprintln!("skipped: fs.aio-max-nr is {most} here");
    }
    let config = EngineOptions {
        slots: most + 1,
        ..config(Choice::Aio)
    };
    let error = Engine::new(&config).err().expect("more than there are");
    assert_eq!(error.errno, Errno::EAGAIN);
    let (need, cure) = (error.need.unwrap(), error.cure.unwrap());
    assert!(
        need.contains("aio-nr") && cure.contains("sysctl -w fs.aio-max-nr="),
        "{need}; {cure}"
    );
}

#[test]
fn every_choice_has_one_name() {
    for choice in Choice::ALL {
        assert_eq!(choice.name().parse(), Ok(choice));
        assert_eq!(choice.to_string(), choice.name());
    }
    let refused = "io_uring".parse::<Choice>().unwrap_err();
    assert!(refused.contains("uring") && refused.contains("threads"), "{refused}");
}

/// Memory is taken for each slot from the start on: more than anybody has aborted the program.
#[test]
fn more_slots_than_there_can_be_are_refused() {
    for choice in Choice::ALL {
        for slots in [EngineOptions::SLOTS_MAX + 1, u32::MAX] {
            let config = EngineOptions {
                slots,
                ..config(choice)
            };
            let error = Engine::new(&config).err().expect("too many");
            assert_eq!(error.errno, Errno::EINVAL, "{choice}: {error}");
            assert!(error.cure.is_some(), "{choice}: {error}");
        }
    }
}

/// Who sleeps for the doorbell alone hears it also where the kernel takes no poll of it.
#[test]
fn the_doorbell_is_heard_when_submissions_are_refused_later() {
    without(&[], 0, || {
        let Ok(mut engine) = Engine::new(&config(Choice::Aio)) else {
            return println!("SKIPPED: the_doorbell_is_heard_when_submissions_are_refused_later: needs Linux AIO");
        };
        forbid(&[libc::SYS_io_submit], libc::EPERM);
        let doorbell = engine.doorbell();
        for _ in 0..3 {
            doorbell.ring();
            let until = engine.now().after(Duration::from_secs(5));
            let wait = Wait::Until {
                count: 0,
                min_wait: Duration::ZERO,
                deadline: Some(until),
            };
            engine.turn(wait).unwrap();
            assert!(engine.now() < until, "only the deadline ended the sleep");
        }
    });
}

/// Runs it in a thread with a root directory and a umask of its own.
fn apart(name: &str, body: impl FnOnce() + Send) {
    if !rustix::process::geteuid().is_root() {
        return tell(&format!("SKIPPED: chooses_what_works::{name}: needs root"));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: it only separates this thread from the others of the process.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_FS) }, 0);
            body();
        });
    });
}

fn both_new(path: &Path) -> Result<File, baio_engine::SetupError> {
    let options = Open {
        create: Create::IfMissing,
        ..Open::write()
    };
    File::open(path, &options)
}

/// The file system gives direct I/O: then a file has it, however it was opened the second time.
#[test]
fn without_proc_a_file_still_has_both_descriptions() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if !both_new(&dir.path().join("other")).unwrap().gives(Caching::Direct) {
        return println!("SKIPPED: without_proc_a_file_still_has_both_descriptions: needs O_DIRECT");
    }
    apart("without_proc_a_file_still_has_both_descriptions", || {
        std::os::unix::fs::chroot(dir.path()).unwrap();
        std::env::set_current_dir("/").unwrap();
        let file = both_new(Path::new("/file")).unwrap();
        assert!(file.gives(Caching::Direct) && file.gives(Caching::Kernel));
    });
}

/// A umask may deny its owner a file that was just made. That is told, and no file comes back that lacks what was asked for.
#[test]
fn a_second_description_that_is_denied_is_told() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if !both_new(&dir.path().join("other")).unwrap().gives(Caching::Direct) {
        return println!("SKIPPED: a_second_description_that_is_denied_is_told: needs O_DIRECT");
    }
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(dir.path(), open).unwrap();
    apart("a_second_description_that_is_denied_is_told", || {
        std::env::set_current_dir(dir.path()).unwrap();
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o777));
        const NOBODY: libc::c_long = 65_534;
        // SAFETY: the call itself, not the library's, changes the user of this thread alone.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) }, 0);
        let error = both_new(Path::new("file")).unwrap_err();
        assert_eq!(error.errno, Errno::EACCES, "{error}");
        let cure = error.cure.as_ref().unwrap();
        assert!(cure.contains("umask") && cure.contains("chmod u+rw"), "{error}");
        assert!(error.need.as_ref().unwrap().contains("read and write"), "{error}");
    });
}
