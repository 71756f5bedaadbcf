//! Promise: a request's own priority, `IOCB_FLAG_IOPRIO` with `aio_reqprio`, is carried: a class that there is not is refused, one that the
//! thread may not have is not done, and the others go through. Told by both libraries alike, but for where the second is told.

#![allow(unsafe_code)]

mod common;

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use baio_libaio::{FLAG_PRIORITY, command};
use common::{Library, request};

const REAL_TIME: i16 = 1 << 13;
const BEST_EFFORT: i16 = 2 << 13;
const IDLE: i16 = 3 << 13;
const NO_CLASS: i16 = 4 << 13;

/// Runs a claim over both.
fn both(claim: impl Fn(&Library)) {
    claim(&Library::ours());
    match Library::original() {
        Some(original) => claim(&original),
        None => {
            let thread = std::thread::current();
            let test = format!("priorities::{}: the comparison", thread.name().unwrap_or_default());
            common::skipped(&test, "libaio.so.1 (`apt install libaio1`)");
        }
    }
}

/// Reads a block with this priority: what the submission says if that is an error, else what the event says.
fn read_at(library: &Library, priority: i16, flags: u32) -> i64 {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&[7; 512], 0).unwrap();
    let context = library.context(1);
    let mut bytes = [0; 512];
    let mut read = request(command::PREAD, file.as_raw_fd(), bytes.as_mut_ptr(), 512, 0);
    read.flags = flags;
    read.priority = priority;
    let told = match library.submit_one(context, &mut read) {
        1 => library.events(context, 1)[0].result,
        refused => i64::from(refused),
    };
    library.end(context);
    assert_eq!(bytes == [7; 512], told == 512, "{}: {told}", library.name);
    told
}

#[test]
fn classes_that_there_are_go_through_and_others_are_refused() {
    both(|library| {
        for good in [0, BEST_EFFORT, BEST_EFFORT | 7, IDLE] {
            assert_eq!(
                read_at(library, good, FLAG_PRIORITY),
                512,
                "{}: {good:#x}",
                library.name
            );
        }
        for bad in [1, NO_CLASS, NO_CLASS | 3, 7 << 13] {
            let told = read_at(library, bad, FLAG_PRIORITY);
            assert_eq!(told, -i64::from(libc::EINVAL), "{}: {bad:#x}", library.name);
            // Without the flag it is no priority.
            assert_eq!(read_at(library, bad, 0), 512, "{}: {bad:#x}", library.name);
        }
    });
}

/// The kernel is asked: who may not have a class does not get it, and nobody else would say so.
#[test]
fn the_kernel_gets_the_priority() {
    both(|library| {
        std::thread::scope(|scope| {
            let reads = scope.spawn(|| {
                if rustix::process::geteuid().is_root() {
                    // SAFETY: it makes this thread, by the bare system call, a user's without rights; it ends soon.
                    assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) }, 0);
                }
                read_at(library, REAL_TIME, FLAG_PRIORITY)
            });
            assert_eq!(reads.join().unwrap(), -i64::from(libc::EPERM), "{}", library.name);
        });
    });
}
