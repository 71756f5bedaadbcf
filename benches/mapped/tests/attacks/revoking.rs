//! Does taking a page back take it? The frame goes on to another user's page; what does the first client see?

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use crate::{OWN, SECRET, full_of, scene};
use baio_mapped::{Child, Map, Memory, PAGE, hear, say};

#[test]
fn without_punching_a_mapping_shows_the_next_users_page() {
    let scene = scene();
    scene.broker.write(0, &full_of(SECRET));
    assert_eq!(scene.client.peek(0), SECRET);
}

/// The device fills the frame before anybody can know whether the client may read the page; so does a fill by a copy.
#[test]
fn a_fill_by_the_device_shows_before_the_page_is_published() {
    let at = std::env::temp_dir().join(format!("mapped-{}", std::process::id()));
    std::fs::write(&at, full_of(SECRET)).expect("a file");
    let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&at);
    std::fs::remove_file(&at).expect("it was ours");
    let Ok(file) = direct else {
        eprintln!(
            "skipped: {} has no direct I/O; set TMPDIR",
            std::env::temp_dir().display()
        );
        return;
    };
    let scene = scene();
    // SAFETY: a page of the broker's mapping.
    let read = unsafe { libc::pread(file.as_raw_fd(), scene.broker.void(0), PAGE, 0) };
    assert_eq!(read, PAGE as isize);
    // Here the broker would look at the rights and name the frame in the table. It is too late.
    assert_eq!(scene.client.peek(0), SECRET);
}

/// A hole takes away what was there. It does not take away the place: the mapping is of the file, and faults again.
#[test]
fn after_punching_a_mapping_shows_zeros_and_then_the_next_users_page() {
    let scene = scene();
    scene.memory.punch(0, 1).expect("a hole");
    assert_eq!(scene.client.peek(0), 0);
    scene.broker.write(0, &full_of(SECRET));
    assert_eq!(scene.client.peek(0), SECRET);
}

/// Nor does it help that the client has not looked between the two.
#[test]
fn after_punching_and_filling_a_mapping_shows_the_next_users_page_at_once() {
    let scene = scene();
    scene.memory.punch(0, 1).expect("a hole");
    scene.broker.write(0, &full_of(SECRET));
    assert_eq!(scene.client.peek(0), SECRET);
}

/// A client without any mapping, but with the descriptor, is no better.
#[test]
fn the_descriptor_is_as_good_as_a_mapping() {
    let scene = scene();
    drop(scene.client);
    scene.memory.punch(0, 1).expect("a hole");
    scene.broker.write(0, &full_of(SECRET));
    let mut byte = [0_u8];
    // SAFETY: one byte.
    let got = unsafe { libc::pread(scene.descriptor.as_raw_fd(), byte.as_mut_ptr().cast(), 1, 0) };
    assert_eq!((got, byte[0]), (1, SECRET));
}

#[test]
fn a_cut_file_kills_who_looks_and_a_longer_one_shows_the_next_users_page() {
    let scene = scene();
    scene.memory.resize(0).expect("no seal forbids it");
    let looker = Child::run(|_| scene.client.peek(0)).expect("a process");
    assert_eq!(looker.end().expect("its end"), -libc::SIGBUS);
    scene.memory.resize(4).expect("no seal forbids it");
    scene.broker.write(0, &full_of(SECRET));
    assert_eq!(scene.client.peek(0), SECRET);
}

/// mlock and populate are no pins: a hole takes such pages too, in another process as well.
#[test]
fn neither_mlock_nor_populate_keeps_a_page() {
    let scene = scene();
    let client = Child::run(|socket| {
        // SAFETY: a page of the mapping.
        let locked = unsafe { libc::mlock(scene.client.void(0), PAGE) };
        let populated = scene.client.advise(0, 1, libc::MADV_POPULATE_READ);
        if locked != 0 || populated.is_err() || say(socket).is_err() || hear(socket).is_err() {
            return 255;
        }
        scene.client.peek(0)
    })
    .expect("a process");
    assert!(hear(&client.socket).expect("it has locked the page"));
    scene.memory.punch(0, 1).expect("a hole");
    say(&client.socket).expect("it listens");
    assert_eq!(client.end().expect("its end"), 0);
}

/// What does revoke: nothing of another's ever comes to the memory that a client has, so it is left and not used again.
#[test]
fn memory_that_is_left_shows_zeros_for_good() {
    let scene = scene();
    let next = Memory::new(4).expect("a memfd");
    next.map().expect("a mapping").write(0, &full_of(OWN));
    scene.memory.punch(0, 4).expect("a hole");
    next.map().expect("a mapping").write(0, &full_of(SECRET));
    assert_eq!(scene.client.peek(0), 0);
    let again = Map::to_read(&scene.descriptor, 4).expect("a mapping");
    assert_eq!(again.peek(0), 0);
}

/// What takes a mapping away in the client is the client's to do: another mapping of the descriptor is out of its reach.
#[test]
fn a_client_that_promises_to_protect_a_page_has_another_mapping() {
    let scene = scene();
    let second = Map::to_read(&scene.descriptor, 4).expect("a mapping");
    scene.client.protect(0, 1, libc::PROT_NONE).expect("its own mapping");
    scene.broker.write(0, &full_of(SECRET));
    assert_eq!(second.peek(0), SECRET);
    scene.client.protect(0, 1, libc::PROT_READ).expect("its own mapping");
    assert_eq!(scene.client.peek(0), SECRET);
}

/// A client cannot even hand its mapping to a broker's userfaultfd: one that can only be read is refused.
#[test]
fn userfaultfd_refuses_a_mapping_that_can_only_be_read() {
    // _IOWR(0xaa, 0x3f, 24 bytes) and _IOWR(0xaa, 0x00, 32 bytes), with MISSING.
    const API: libc::c_ulong = 0xc018_aa3f;
    const REGISTER: libc::c_ulong = 0xc020_aa00;
    // UFFD_USER_MODE_ONLY needs no right.
    // SAFETY: a number.
    let made = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1) };
    let Ok(fd) = baio_mapped::descriptor(made as libc::c_int) else {
        eprintln!("skipped: no userfaultfd here");
        return;
    };
    let mut api = [0xaa_u64, 0, 0];
    // SAFETY: a structure of 24 bytes.
    assert_eq!(unsafe { libc::ioctl(fd.as_raw_fd(), API, api.as_mut_ptr()) }, 0);
    let scene = scene();
    let range = |map: &Map| {
        let mut asked = [map.at(0) as u64, PAGE as u64, 1, 0];
        // SAFETY: a structure of 32 bytes, and a range of a mapping.
        let answer = unsafe { libc::ioctl(fd.as_raw_fd(), REGISTER, asked.as_mut_ptr()) };
        baio_mapped::check(answer).map_err(|error| error.raw_os_error())
    };
    assert_eq!(range(&scene.client), Err(Some(libc::EPERM)));
    assert_eq!(range(&scene.broker), Ok(0));
}
