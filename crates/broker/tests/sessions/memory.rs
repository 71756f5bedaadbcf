//! The shared memory itself: cut, grown, and with holes in it.

use baio_words::entry::Op;
use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, ftruncate};
use rustix::io::Errno;

use crate::house::{House, Victim};
use crate::raw::{BLOCK, Client};
use crate::rings;

#[test]
fn the_memory_keeps_its_length_and_its_seals() {
    let house = House::new();
    let mut victim = Victim::new(&house);
    let mut client = house.narrow(4);
    let handle = client.made("its own", 1 << 20);
    let bytes = client.welcome.memory_bytes;
    for len in [0, 4096, bytes - 1, bytes + 1, 1 << 40] {
        assert_eq!(ftruncate(client.memfd(), len), Err(Errno::PERM), "{len}");
    }
    let beyond = fallocate(client.memfd(), FallocateFlags::empty(), bytes, 4096);
    assert_eq!(beyond, Err(Errno::PERM));
    let seals = fcntl_get_seals(client.memfd()).unwrap();
    assert!(
        seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL),
        "{seals:?}"
    );
    assert_eq!(fcntl_add_seals(client.memfd(), SealFlags::WRITE), Err(Errno::PERM));
    assert_eq!(client.write(handle, 0, &[7; BLOCK as usize]).result, Ok(BLOCK));
    victim.goes_on();
    house.ends();
}

fn punch(client: &Client, at: u64, len: u64) {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(client.memfd(), flags, at, len).unwrap();
}

#[test]
fn holes_in_the_arena_are_the_clients_affair() {
    let house = House::new();
    let mut victim = Victim::new(&house);
    let mut client = house.narrow(16);
    let handle = client.made("its own", 1 << 20);
    let (at, bytes) = (client.welcome.arena_at, client.welcome.arena_bytes);
    for turn in 0..50 {
        let op = if turn % 2 == 0 { Op::Write } else { Op::Read };
        for place in 0..16 {
            let entry = client.entry(op, place, handle, u64::from(place) * u64::from(BLOCK));
            client.push(&entry.encode());
        }
        client.publish();
        punch(&client, at, bytes);
        for _ in 0..16 {
            assert_eq!(client.next().unwrap().result, Ok(BLOCK));
        }
    }
    victim.goes_on();
    house.ends();
}

#[test]
fn a_hole_in_the_rings_ends_the_session() {
    rings::goes_out("all of the memory is zero", 4, |client, handle| {
        let entry = client.entry(Op::Sync, 0, handle, 0);
        client.run(&entry);
        punch(client, 0, client.welcome.memory_bytes);
        client.ring();
    });
}
