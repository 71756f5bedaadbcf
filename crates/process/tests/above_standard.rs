//! The claim: what is made to stay stands above the standard streams, also where a program has closed them, and exec closes it.

use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;

use baio_process::descriptor;
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::time::{TimerfdClockId, TimerfdFlags};

const IN_CHILD: &str = "BAIO_CLOSED_STREAMS";

#[test]
fn everything_stands_above_them() {
    if std::env::var_os(IN_CHILD).is_some() {
        std::process::exit(made_without_streams());
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "everything_stands_above_them"])
        .env(IN_CHILD, "1")
        .output()
        .unwrap();
    assert_eq!(
        child.status.code(),
        Some(0),
        "which of them stood below: {:?}",
        child.status
    );
}

/// The status says which one was wrong.
fn made_without_streams() -> i32 {
    for stream in 0..3 {
        // SAFETY: this process ends with the test, and nothing of it uses the streams any more.
        #[allow(unsafe_code)]
        drop(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(stream) });
    }
    let none = SocketFlags::empty();
    let makers: [fn() -> rustix::io::Result<OwnedFd>; 8] = [
        descriptor::event,
        descriptor::epoll,
        || descriptor::timer(TimerfdClockId::Monotonic, TimerfdFlags::empty()),
        || descriptor::memory("some", MemfdFlags::empty()),
        || descriptor::open("/", OFlags::RDONLY, Mode::empty()),
        || descriptor::socket(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None),
        || descriptor::duplicate(descriptor::event()?),
        || descriptor::above_standard(rustix::event::eventfd(0, rustix::event::EventfdFlags::empty())?),
    ];
    let mut kept = Vec::new();
    for (number, make) in makers.iter().enumerate() {
        let Ok(made) = make() else { return 100 + number as i32 };
        kept.push(made);
    }
    let Ok((one, other)) = descriptor::socket_pair(AddressFamily::UNIX, SocketType::STREAM, none, None) else {
        return 110;
    };
    kept.extend([one, other]);
    for (number, made) in kept.iter().enumerate() {
        let closes = rustix::io::fcntl_getfd(made).is_ok_and(|flags| flags.contains(rustix::io::FdFlags::CLOEXEC));
        if made.as_raw_fd() < 3 || !closes {
            return 1 + number as i32;
        }
    }
    0
}

const WITHOUT_NUMBERS: &str = "BAIO_WITHOUT_NUMBERS";

/// A socket whose name cannot be given its permissions has no name: nobody would find out who may connect there.
#[test]
fn a_name_that_cannot_be_given_its_mode_is_taken_back() {
    let path = std::env::temp_dir().join(format!("baio-bound-{}", std::process::id()));
    let Some(told) = std::env::var_os(WITHOUT_NUMBERS) else {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_name_that_cannot_be_given_its_mode_is_taken_back"])
            .env(WITHOUT_NUMBERS, &path)
            .status();
        assert!(child.unwrap().success());
        return;
    };
    let path = std::path::Path::new(&told);
    let socket = descriptor::socket(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None).unwrap();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let few = rustix::process::Rlimit {
        current: Some(descriptor::duplicate(&socket).unwrap().as_raw_fd() as u64),
        ..limit
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
    let bound = descriptor::bind(&socket, path, Mode::RUSR | Mode::WUSR);
    assert_eq!(bound, Err(rustix::io::Errno::MFILE));
    assert!(std::fs::symlink_metadata(path).is_err(), "the name is there");
}
