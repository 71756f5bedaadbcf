//! A page that somebody holds by a reference of the kernel's survives a hole. Whose bytes does it have then, and who pays?

use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::{OWN, SECRET, full_of, scene};
use baio_mapped::fixed::Fixed;
use baio_mapped::{Map, PAGE, check, descriptor};

/// A pipe: its end to read, its end to write.
fn pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }).expect("a pipe");
    (
        descriptor(ends[0]).expect("an end"),
        descriptor(ends[1]).expect("an end"),
    )
}

/// Puts a page of the mapping into a pipe, without a copy.
fn hold(map: &Map, into: &OwnedFd) {
    let range = libc::iovec {
        iov_base: map.void(0),
        iov_len: PAGE,
    };
    // SAFETY: one range, which is mapped.
    let spliced = unsafe { libc::vmsplice(into.as_raw_fd(), &raw const range, 1, 0) };
    assert_eq!(spliced, PAGE as isize);
}

/// Puts a page of the file into a pipe, without a copy and without any mapping.
fn hold_of_file(file: &OwnedFd, into: &OwnedFd) {
    let mut at = 0;
    // SAFETY: an offset, and nothing else of ours.
    let spliced = unsafe {
        libc::splice(
            file.as_raw_fd(),
            &raw mut at,
            into.as_raw_fd(),
            std::ptr::null_mut(),
            PAGE,
            0,
        )
    };
    assert_eq!(spliced, PAGE as isize);
}

fn first_byte(of: &OwnedFd) -> u8 {
    let mut byte = [0_u8];
    // SAFETY: one byte.
    let got = unsafe { libc::read(of.as_raw_fd(), byte.as_mut_ptr().cast(), 1) };
    assert_eq!(got, 1);
    byte[0]
}

#[test]
fn a_held_page_of_a_reused_frame_has_the_next_users_bytes() {
    let scene = scene();
    let ((from_map, map), (from_file, file)) = (pipe(), pipe());
    hold(&scene.client, &map);
    hold_of_file(&scene.descriptor, &file);
    // The client could give up mapping and descriptor here, and it would not help.
    drop((scene.client, scene.descriptor));
    scene.broker.write(0, &full_of(SECRET));
    assert_eq!((first_byte(&from_map), first_byte(&from_file)), (SECRET, SECRET));
}

#[test]
fn a_held_page_of_a_punched_frame_keeps_what_its_holder_could_read() {
    let scene = scene();
    let ((from_map, map), (from_file, file)) = (pipe(), pipe());
    hold(&scene.client, &map);
    hold_of_file(&scene.descriptor, &file);
    scene.memory.punch(0, 1).expect("a hole");
    scene.broker.write(0, &full_of(SECRET));
    assert_eq!((first_byte(&from_map), first_byte(&from_file)), (OWN, OWN));
}

/// Held pages are in no file any more, so nobody's figures show them but the machine's: of one frame a client keeps many.
#[test]
fn a_client_keeps_as_many_old_pages_of_a_frame_as_its_pipes_hold() {
    const KEPT: u8 = 8;
    let scene = scene();
    let (from, into) = pipe();
    for n in 0..KEPT {
        scene.broker.write(0, &full_of(n));
        hold(&scene.client, &into);
        scene.memory.punch(0, 1).expect("a hole");
    }
    assert_eq!(scene.memory.present().expect("its status"), 0);
    for n in 0..KEPT {
        let mut page = full_of(SECRET);
        // SAFETY: a page.
        let got = unsafe { libc::read(from.as_raw_fd(), page.as_mut_ptr().cast(), PAGE) };
        assert_eq!((got, page), (PAGE as isize, full_of(n)));
    }
}

/// Registered memory is pinned for long, which needs a page that can be written.
#[test]
fn a_client_cannot_register_what_it_can_only_read() {
    let ring = match Fixed::new() {
        Ok(ring) => ring,
        Err(refused) => return eprintln!("skipped: no io_uring here: {refused}"),
    };
    let scene = scene();
    let refused = ring.register(&scene.client, 0, 1).expect_err("it can only be read");
    assert_eq!(refused.raw_os_error(), Some(libc::EFAULT));
}

/// The broker's own pins, for registered memory, are in the way of its holes: the device goes on filling the page that was
/// taken out, and nobody sees it.
#[test]
fn a_read_to_registered_memory_misses_a_punched_frame() {
    let ring = match Fixed::new() {
        Ok(ring) => ring,
        Err(refused) => return eprintln!("skipped: no io_uring here: {refused}"),
    };
    let at = std::env::temp_dir().join(format!("mapped-fixed-{}", std::process::id()));
    let mut file = std::fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&at)
        .expect("a file");
    std::fs::remove_file(&at).expect("it was ours");
    file.write_all(&full_of(b'f')).expect("a page");
    let scene = scene();
    ring.register(&scene.broker, 0, 4).expect("its own memory");
    assert_eq!(
        ring.read(file.as_raw_fd(), &scene.broker, 0).expect("a read"),
        PAGE as i32
    );
    assert_eq!(scene.broker.peek(0), b'f', "as long as nothing was punched");

    scene.memory.punch(0, 1).expect("a hole");
    assert_eq!(
        ring.read(file.as_raw_fd(), &scene.broker, 0).expect("a read"),
        PAGE as i32
    );
    assert_eq!(
        scene.broker.peek(0),
        0,
        "it went to the page that was there at the registration"
    );
}
