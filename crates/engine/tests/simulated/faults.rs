//! Every fault of a simulated disk: that it was injected, and that the engine answers as the contract says.

use crate::backends::{Bench, blank, bytes_of, finish, next, pattern, read, write};
use baio_engine::sim::{Disk, Fault, Faults, Injected, Sim, Trigger};
use baio_engine::{Durability, Engine, Errno, Error, File, Memory, Patience, Policy, Request};

const EIO: Error = Error::System(Errno::EIO);
const LEN: usize = 64 << 10;

fn machine(faults: Faults) -> (Engine, Disk, File) {
    let disk = Disk::new(1 << 20);
    disk.poke(0, &pattern(1, 1 << 20));
    disk.set_faults(faults.listed());
    let engine = Engine::simulated(Sim::new(1).expect("a simulation"), &Bench::config()).expect("an engine");
    let file = File::simulated(&disk, "disk");
    (engine, disk, file)
}

/// What is on the disk.
fn stored(disk: &Disk, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    disk.read(offset, &mut bytes);
    bytes
}

fn only(disk: &Disk, fault: Fault) -> Injected {
    let injected = disk.take_injected();
    assert_eq!(injected.len(), 1, "{injected:?}");
    assert_eq!(injected[0].fault, fault);
    injected[0]
}

#[test]
fn a_short_read_goes_on_where_it_stopped() {
    for policy in [Policy::kernel(), Policy::direct()] {
        let (mut engine, disk, file) = machine(Faults::none().when(Trigger::nth(Fault::ShortRead, 1).times(3)));
        let done = read(&mut engine, &file, 4096, LEN, policy);
        assert_eq!(done.result, Ok(LEN as u32));
        assert!(bytes_of(&done.memory) == stored(&disk, 4096, LEN));
        let injected = disk.faults_injected().of(Fault::ShortRead);
        assert!(injected >= 2, "one sector cannot be short, two were longer");
        assert_eq!(u64::from(done.iterations), 1 + injected);
    }
}

#[test]
fn a_short_write_goes_on_where_it_stopped() {
    for policy in [Policy::kernel(), Policy::direct()] {
        let (mut engine, disk, file) = machine(Faults::none().when(Trigger::nth(Fault::ShortWrite, 1).times(3)));
        let bytes = pattern(2, LEN);
        let done = write(&mut engine, &file, 4096, &bytes, policy);
        assert_eq!(done.result, Ok(LEN as u32));
        assert!(stored(&disk, 4096, LEN) == bytes);
        assert!(stored(&disk, 0, 4096) == pattern(1, 4096), "nothing beside it");
        let injected = disk.faults_injected().of(Fault::ShortWrite);
        assert!(injected >= 2, "one sector cannot be short, two were longer");
        assert_eq!(u64::from(done.iterations), 1 + injected);
    }
}

#[test]
fn an_error_behind_some_progress_tells_how_far_it_came() {
    let faults = Faults::none()
        .when(Trigger::nth(Fault::ShortRead, 1))
        .when(Trigger::nth(Fault::ReadError, 2))
        .when(Trigger::nth(Fault::ShortWrite, 1))
        .when(Trigger::nth(Fault::WriteError, 2));
    let (mut engine, disk, file) = machine(faults);
    let done = read(&mut engine, &file, 0, LEN, Policy::direct());
    let [short, error] = disk.take_injected()[..] else {
        panic!("two faults")
    };
    assert_eq!((short.fault, error.fault), (Fault::ShortRead, Fault::ReadError));
    assert_eq!((done.result, u64::from(done.bytes_done)), (Err(EIO), short.what));
    assert_eq!(
        error.offset, short.what,
        "the second iteration began where the first stopped"
    );
    let bytes = pattern(3, LEN);
    let done = write(&mut engine, &file, 0, &bytes, Policy::direct());
    let [short, error] = disk.take_injected()[..] else {
        panic!("two faults")
    };
    assert_eq!((short.fault, error.fault), (Fault::ShortWrite, Fault::WriteError));
    assert_eq!((done.result, u64::from(done.bytes_done)), (Err(EIO), short.what));
    let moved = short.what as usize;
    assert!(moved > 0 && moved < LEN);
    assert!(stored(&disk, 0, moved) == bytes[..moved]);
    assert!(stored(&disk, short.what, LEN - moved) == pattern(1, LEN)[moved..]);
}

#[test]
fn who_waits_never_sees_an_interruption_and_who_does_not_does() {
    for (fault, errno) in [(Fault::Interrupted, Errno::EINTR), (Fault::TryAgain, Errno::EAGAIN)] {
        let (mut engine, disk, file) = machine(Faults::none().when(Trigger::nth(fault, 1).times(5)));
        let done = read(&mut engine, &file, 0, LEN, Policy::direct());
        assert_eq!((done.result, done.iterations), (Ok(LEN as u32), 6));
        assert_eq!(disk.faults_injected().of(fault), 5);

        let (mut engine, disk, file) = machine(Faults::none().when(Trigger::nth(fault, 1).times(5)));
        assert_eq!(
            finish(&mut engine, Request::sync(&file, Durability::Data)).result,
            Ok(0)
        );
        assert_eq!(
            disk.faults_injected().of(fault),
            5,
            "a sync that was interrupted goes on"
        );

        let (mut engine, _, file) = machine(Faults::none().when(Trigger::always(fault)));
        let impatient = Policy {
            patience: Patience::NoWait,
            ..Policy::direct()
        };
        let done = read(&mut engine, &file, 0, LEN, impatient);
        assert_eq!((done.result, done.iterations), (Err(Error::System(errno)), 1));

        let done = read(&mut engine, &file, 0, LEN, Policy::direct());
        assert_eq!(done.result, Ok(LEN as u32), "nobody is interrupted for ever");
    }
}

#[test]
fn errors_by_range_strike_there_and_nowhere_else() {
    let faults = Faults::none()
        .when(Trigger::always(Fault::ReadError).within(8192..8193))
        .when(Trigger::always(Fault::WriteError).within(16384..20480));
    let (mut engine, disk, file) = machine(faults);
    assert_eq!(read(&mut engine, &file, 0, 8192, Policy::direct()).result, Ok(8192));
    assert_eq!(read(&mut engine, &file, 4096, 8192, Policy::direct()).result, Err(EIO));
    assert_eq!(
        write(&mut engine, &file, 16384, &[1; 4096], Policy::direct()).result,
        Err(EIO)
    );
    assert!(
        stored(&disk, 16384, 4096) == pattern(1, 20480)[16384..],
        "nothing of it is stored"
    );
    let counts = disk.faults_injected();
    assert_eq!((counts.of(Fault::ReadError), counts.of(Fault::WriteError)), (1, 1));
    assert_eq!(
        file.acknowledge_failure(),
        None,
        "an error told to its own caller poisons nothing"
    );
}

#[test]
fn a_thin_disk_fills_up_and_tells_how_far_it_came() {
    let disk = Disk::new(1 << 20);
    disk.set_faults(Faults::none().real_bytes(64 << 10));
    let mut engine = Engine::simulated(Sim::new(1).expect("a simulation"), &Bench::config()).expect("an engine");
    let file = File::simulated(&disk, "disk");
    let bytes = pattern(4, 100 << 10);
    let done = write(&mut engine, &file, 0, &bytes, Policy::direct());
    assert_eq!(
        (done.result, done.bytes_done),
        (Err(Error::System(Errno::ENOSPC)), 64 << 10)
    );
    assert!(stored(&disk, 0, 64 << 10) == bytes[..64 << 10]);
    let again = write(&mut engine, &file, 0, &pattern(5, 64 << 10), Policy::direct());
    assert_eq!(again.result, Ok(64 << 10), "what has its blocks can be written again");
    let space = |space| {
        let op = baio_engine::Op::Allocate {
            offset: 0,
            len: 8192,
            space,
        };
        Request::bare(op, Some(&file), Policy::kernel())
    };
    assert_eq!(finish(&mut engine, space(baio_engine::Space::Discard)).result, Ok(0));
    assert_eq!(
        write(&mut engine, &file, 1 << 19, &[1; 8192], Policy::direct()).result,
        Ok(8192)
    );
    let full = finish(&mut engine, space(baio_engine::Space::Reserve));
    assert_eq!(full.result, Err(Error::System(Errno::ENOSPC)));
}

#[test]
fn an_injected_enospc_is_the_result() {
    let (mut engine, disk, file) = machine(Faults::none().when(Trigger::nth(Fault::NoSpace, 1)));
    let done = write(&mut engine, &file, 0, &[1; 4096], Policy::direct());
    assert_eq!(done.result, Err(Error::System(Errno::ENOSPC)));
    only(&disk, Fault::NoSpace);
}

#[test]
fn a_delayed_request_is_overtaken() {
    let (mut engine, disk, file) = machine(Faults::none().when(Trigger::nth(Fault::Delay, 1)));
    for block in 0..2 {
        let memory = blank(&engine, 4096);
        let read = Request::read(&file, block * 4096, memory, Policy::direct());
        engine.submit(read.tagged(block)).expect("a free slot");
    }
    assert_eq!((next(&mut engine).tag, next(&mut engine).tag), (1, 0));
    assert_eq!(disk.faults_injected().of(Fault::Delay), 1);
}

#[test]
fn a_lost_write_is_acknowledged_and_not_there() {
    let (mut engine, disk, file) = machine(Faults::none().when(Trigger::nth(Fault::LostWrite, 1)));
    let durable = Policy::direct().durable(Durability::Data);
    assert_eq!(write(&mut engine, &file, 4096, &[1; 4096], durable).result, Ok(4096));
    assert!(stored(&disk, 0, 1 << 20) == pattern(1, 1 << 20));
    assert_eq!(only(&disk, Fault::LostWrite).offset, 4096);
}

#[test]
fn a_torn_write_leaves_its_first_sectors_and_an_error() {
    let mut seen = Vec::new();
    for seed in 0..100 {
        let disk = Disk::new(1 << 20);
        disk.set_faults(Faults::none().when(Trigger::nth(Fault::TornWrite, 1)).listed());
        let sim = Sim::new(seed).expect("a simulation");
        let mut engine = Engine::simulated(sim, &Bench::config()).expect("an engine");
        let file = File::simulated(&disk, "disk");
        assert_eq!(
            write(&mut engine, &file, 4096, &[1; 4096], Policy::direct()).result,
            Err(EIO)
        );
        let torn = only(&disk, Fault::TornWrite).what as usize;
        assert!(torn <= 4096 && torn.is_multiple_of(512));
        seen.push(torn);
        let mut expected = vec![0; 4096];
        expected[..torn].fill(1);
        assert!(stored(&disk, 4096, 4096) == expected);
    }
    // A device may lose the status of a write that it has stored.
    assert!(seen.contains(&0) && seen.contains(&4096), "{seen:?}");
}

#[test]
fn a_misdirected_write_is_elsewhere() {
    let (mut engine, disk, file) = machine(Faults::none().when(Trigger::nth(Fault::Misdirected, 1)));
    assert_eq!(
        write(&mut engine, &file, 4096, &[1; 4096], Policy::direct()).result,
        Ok(4096)
    );
    let injected = only(&disk, Fault::Misdirected);
    let mut expected = pattern(1, 1 << 20);
    expected[injected.what as usize..][..4096].fill(1);
    assert_ne!(injected.what, 4096);
    assert!(stored(&disk, 0, 1 << 20) == expected);
}

#[test]
fn a_rotten_bit_stays_rotten() {
    let (mut engine, disk, file) = machine(Faults::none().when(Trigger::nth(Fault::Rot, 1)));
    let done = read(&mut engine, &file, 4096, 4096, Policy::direct());
    assert_eq!(done.result, Ok(4096), "nobody notices");
    let injected = only(&disk, Fault::Rot);
    let mut expected = pattern(1, 1 << 20);
    expected[injected.offset as usize] ^= 1 << injected.what;
    assert!(bytes_of(&done.memory) == &expected[4096..8192]);
    assert!(stored(&disk, 0, 1 << 20) == expected);
    assert!(
        stored(&disk.power_cut(1), 0, 1 << 20) == expected,
        "it is on the medium"
    );
    let again = read(&mut engine, &file, 4096, 4096, Policy::direct());
    assert!(bytes_of(&again.memory) == &expected[4096..8192]);
}

#[test]
fn a_failed_flush_poisons_and_takes_what_it_covered() {
    let (mut engine, disk, file) = machine(Faults::none().when(Trigger::nth(Fault::FailedFlush, 1)));
    assert_eq!(
        write(&mut engine, &file, 4096, &[1; 4096], Policy::kernel()).result,
        Ok(4096)
    );
    assert!(stored(&disk, 4096, 4096) == [1; 4096]);
    let sync = || Request::sync(&file, Durability::Data);
    assert_eq!(finish(&mut engine, sync()).result, Err(EIO));
    let lost = only(&disk, Fault::FailedFlush);
    assert_eq!((lost.offset, lost.len), (4096, 4096));
    assert!(
        stored(&disk, 0, 1 << 20) == pattern(1, 1 << 20),
        "the cached write is gone"
    );
    assert_eq!(finish(&mut engine, sync()).result, Err(Error::Poisoned(Errno::EIO)));
    assert_eq!(file.acknowledge_failure(), Some(Errno::EIO));
    assert_eq!(finish(&mut engine, sync()).result, Ok(0), "the device tells it once");
    assert_eq!(disk.faults_injected().of(Fault::FailedFlush), 1);
}

#[test]
fn bytes_behind_what_a_read_moved_are_left_alone() {
    let faults = Faults::none()
        .when(Trigger::nth(Fault::ShortRead, 1))
        .when(Trigger::nth(Fault::ReadError, 2));
    let (mut engine, disk, file) = machine(faults);
    let done = read(&mut engine, &file, 0, LEN, Policy::direct());
    let moved = disk.take_injected()[0].what as usize;
    let Memory::Own(memory) = done.memory else {
        panic!("a buffer")
    };
    assert!(memory[moved..].iter().all(|&byte| byte == 0xa5), "as `blank` left it");
}

/// Nothing tells when a disk that says `EAGAIN` is worth another try: so each try comes later than the one before.
#[test]
fn a_disk_that_says_again_is_not_stormed() {
    let (mut engine, disk, file) = machine(Faults::none().when(Trigger::nth(Fault::TryAgain, 1).times(12)));
    let before = engine.now();
    let done = finish(&mut engine, Request::sync(&file, Durability::Data));
    assert_eq!((done.result, done.iterations), (Ok(0), 13));
    assert_eq!(disk.faults_injected().of(Fault::TryAgain), 12);
    assert!(
        engine.now().since(before) > std::time::Duration::from_millis(20),
        "in virtual time"
    );
    // A pause that ends is no failure of the sync.
    assert_eq!(
        finish(&mut engine, Request::sync(&file, Durability::Data)).result,
        Ok(0)
    );
}
