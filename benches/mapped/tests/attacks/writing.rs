//! A client is given a descriptor that can only read. Can it make more of it?

use std::io::ErrorKind;
use std::os::fd::AsRawFd;

use crate::{OWN, full_of, scene};
use baio_mapped::{Child, Map, Memory, PAGE, open_again};

const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;

#[test]
fn a_mapping_of_it_cannot_be_made_writable_or_punched() {
    let scene = scene();
    let refused = |done: std::io::Result<()>| done.expect_err("only to be read").kind();
    assert_eq!(refused(scene.client.protect(0, 1, BOTH)), ErrorKind::PermissionDenied);
    assert_eq!(
        refused(scene.client.advise(0, 1, libc::MADV_REMOVE)),
        ErrorKind::PermissionDenied
    );
    let mapped = Map::of(scene.descriptor.as_raw_fd(), 1, BOTH, libc::MAP_SHARED);
    assert_eq!(refused(mapped.map(drop)), ErrorKind::PermissionDenied);
}

#[test]
fn what_is_written_to_a_private_mapping_is_the_clients_own() {
    let scene = scene();
    let private = Map::of(scene.descriptor.as_raw_fd(), 1, BOTH, libc::MAP_PRIVATE).expect("a mapping");
    private.write(0, &full_of(b'x'));
    assert_eq!((scene.client.peek(0), scene.broker.peek(0)), (OWN, OWN));
}

/// Can a process of another user open it to write? Exit status 1: yes. `None` if this test cannot be another user.
fn another_user_writes(memory: &Memory) -> Option<bool> {
    let descriptor = memory.for_a_client().expect("a descriptor to read");
    let client = Child::run(|_| {
        // SAFETY: it takes nothing.
        if unsafe { libc::geteuid() } != 0 {
            return 2;
        }
        // SAFETY: numbers; by the bare call, as the C library would ask threads that this process does not have.
        let left = unsafe { libc::syscall(libc::SYS_setgid, 65534) | libc::syscall(libc::SYS_setuid, 65534) };
        if left != 0 {
            return 2;
        }
        match open_again(descriptor.as_raw_fd(), libc::O_RDWR) {
            Ok(_) => 1,
            Err(_) => 0,
        }
    })
    .expect("a process");
    match client.end().expect("its end") {
        0 => Some(false),
        1 => Some(true),
        _ => {
            eprintln!("skipped: to be another user needs root");
            None
        }
    }
}

/// A memfd comes with mode 0777, and /proc lets everybody who has a descriptor open it again.
#[test]
fn another_user_opens_it_again_to_write_unless_its_mode_forbids_it() {
    let memory = Memory::new(1).expect("a memfd");
    memory.permit(0o777).expect("its owner's right");
    if let Some(writes) = another_user_writes(&memory) {
        assert!(writes, "as a memfd comes");
        memory.permit(0o600).expect("its owner's right");
        assert_eq!(another_user_writes(&memory), Some(false));
    }
}

/// The broker's own user is kept away by nothing but a seal.
#[test]
fn the_same_user_opens_it_again_to_write() {
    let scene = scene();
    let again = open_again(scene.descriptor.as_raw_fd(), libc::O_RDWR).expect("the same user");
    let mapped = Map::of(again.as_raw_fd(), 1, BOTH, libc::MAP_SHARED).expect("a mapping");
    mapped.write(0, &full_of(b'x'));
    assert_eq!(scene.broker.peek(0), b'x');
}

/// The seal that leaves the broker its mapping leaves it no holes.
#[test]
fn the_seal_against_writing_forbids_holes_too() {
    let scene = scene();
    scene.memory.seal(libc::F_SEAL_FUTURE_WRITE).expect("a seal");
    let again = open_again(scene.descriptor.as_raw_fd(), libc::O_RDWR).expect("the same user");
    let mapped = Map::of(again.as_raw_fd(), 1, BOTH, libc::MAP_SHARED);
    assert_eq!(
        mapped.map(drop).expect_err("sealed").kind(),
        ErrorKind::PermissionDenied
    );
    scene.broker.write(0, &full_of(b'b'));
    assert_eq!(scene.client.peek(0), b'b');
    assert_eq!(
        scene.memory.punch(0, 1).expect_err("sealed").kind(),
        ErrorKind::PermissionDenied
    );
    let removed = scene.broker.advise(0, 1, libc::MADV_REMOVE);
    assert_eq!(removed.expect_err("sealed").kind(), ErrorKind::PermissionDenied);
}

/// Looking at a hole fills it: memory of the broker's file that the client takes, and that stays when it has died.
#[test]
fn a_client_that_only_reads_makes_the_brokers_memory_grow() {
    const PAGES: usize = 256;
    let memory = Memory::new(PAGES).expect("a memfd");
    memory
        .seal(libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL)
        .expect("seals");
    let descriptor = memory.for_a_client().expect("a descriptor to read");
    let client = Child::run(|_| match Map::to_read(&descriptor, PAGES) {
        Ok(map) => (0..PAGES).fold(0, |all, page| all | map.peek(page)),
        Err(_) => 255,
    })
    .expect("a process");
    assert_eq!(client.end().expect("its end"), 0);
    assert_eq!(memory.present().expect("its status"), PAGES as u64);
    // A read call is no such look.
    memory.punch(0, PAGES).expect("a hole");
    let mut page = full_of(1);
    // SAFETY: a page.
    let got = unsafe { libc::pread(descriptor.as_raw_fd(), page.as_mut_ptr().cast(), PAGE, 0) };
    assert_eq!((got, page), (PAGE as isize, full_of(0)));
    assert_eq!(memory.present().expect("its status"), 0);
}
