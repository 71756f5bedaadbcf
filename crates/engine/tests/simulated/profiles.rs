//! Simulated disks take the time that disks take: known answers, in virtual time.

use std::time::Duration;

use crate::backends::{Random, blank, next};
use baio_engine::sim::{Disk, Flash, Profile, Rotating, Sim, SimHandle};
use baio_engine::{Durability, Engine, EngineOptions, File, Policy, Request, Wait};

const BLOCK: usize = 4096;

struct Machine {
    engine: Engine,
    handle: SimHandle,
    file: File,
    size: u64,
}

impl Machine {
    fn with(profile: Profile, size: u64) -> Machine {
        let disk = Disk::new(size);
        disk.set_profile(profile);
        let sim = Sim::new(7).expect("a simulation");
        let handle = sim.handle();
        let config = EngineOptions {
            slots: 64,
            arena_bytes: 16 << 20,
            ..EngineOptions::default()
        };
        Machine {
            engine: Engine::simulated(sim, &config).expect("an engine"),
            handle,
            file: File::simulated(&disk, "disk"),
            size,
        }
    }

    fn read(&mut self, offset: u64, len: usize) {
        let read = Request::read(&self.file, offset, blank(&self.engine, len), Policy::direct());
        self.engine.submit(read.tagged(offset)).expect("a free slot");
    }

    fn write(&mut self, offset: u64, durability: Durability) {
        let policy = Policy::direct().durable(durability);
        let write = Request::write(&self.file, offset, blank(&self.engine, BLOCK), policy);
        self.engine.submit(write.tagged(offset)).expect("a free slot");
    }

    fn sync(&mut self) -> Duration {
        let began = self.handle.now();
        let sync = Request::sync(&self.file, Durability::Data);
        self.engine.submit(sync).expect("a free slot");
        assert_eq!(next(&mut self.engine).result, Ok(0));
        self.handle.now().since(began)
    }

    /// Ends one request; returns its tag.
    fn end_one(&mut self) -> u64 {
        let done = next(&mut self.engine);
        assert!(done.result.is_ok(), "{done:?}");
        done.tag
    }

    /// How long `count` random block reads take, so many at a time.
    fn random_reads(&mut self, count: u64, depth: u64) -> Duration {
        let mut random = Random(3);
        let blocks = self.size / BLOCK as u64;
        let began = self.handle.now();
        for nth in 0..count {
            self.read(random.below(blocks) * BLOCK as u64, BLOCK);
            if nth >= depth - 1 {
                self.end_one();
            }
        }
        for _ in 1..depth {
            self.end_one();
        }
        self.handle.now().since(began)
    }
}

fn rotating(disk: Rotating) -> Machine {
    Machine::with(Profile::Rotating(disk), 500 << 30)
}

fn nearly(is: Duration, should_be: Duration, percent: u32) {
    let (is, should_be) = (is.as_nanos(), should_be.as_nanos());
    assert!(
        is.abs_diff(should_be) * 100 <= should_be * u128::from(percent),
        "{is} ns, and not {should_be} ns within {percent} %"
    );
}

#[test]
fn sequential_reads_stream_at_the_transfer_rate_one_at_a_time_too() {
    const READ: usize = 64 << 10;
    for depth in [1, 8] {
        let disk = Rotating::default();
        let mut machine = rotating(disk);
        machine.read(1 << 30, READ);
        machine.end_one();
        let began = machine.handle.now();
        for nth in 0..512 {
            machine.read((1 << 30) + (nth + 1) * READ as u64, READ);
            if nth >= depth - 1 {
                machine.end_one();
            }
        }
        for _ in 1..depth {
            machine.end_one();
        }
        let bytes = 512.0 * READ as f64;
        let should_be = Duration::from_secs_f64(bytes / disk.bytes_per_second as f64);
        nearly(machine.handle.now().since(began), should_be, 1);
    }
}

/// The disk reads on while its reader thinks.
#[test]
fn a_reader_that_pauses_between_its_reads_streams_too() {
    const READ: usize = 64 << 10;
    let disk = Rotating::default();
    let mut machine = rotating(disk);
    machine.read(0, READ);
    machine.end_one();
    let began = machine.handle.now();
    for nth in 1..200 {
        let pause = Wait::Until {
            count: 0,
            min_wait: Duration::ZERO,
            deadline: Some(machine.engine.now().after(Duration::from_micros(200))),
        };
        machine.engine.turn(pause).expect("a turn");
        machine.read(nth * READ as u64, READ);
        machine.end_one();
    }
    let should_be = Duration::from_secs_f64(199.0 * READ as f64 / disk.bytes_per_second as f64);
    nearly(machine.handle.now().since(began), should_be, 1);
}

#[test]
fn a_random_read_costs_a_seek_and_half_a_turn() {
    let disk = Rotating::default();
    let took = rotating(disk).random_reads(4000, 1) / 4000;
    let transfer = Duration::from_secs_f64(BLOCK as f64 / disk.bytes_per_second as f64);
    nearly(took, disk.average_seek + disk.turn() / 2 + transfer, 3);
}

#[test]
fn a_deep_queue_is_served_by_the_shortest_way() {
    let one = rotating(Rotating::default()).random_reads(2000, 1);
    let many = rotating(Rotating::default()).random_reads(2000, 32);
    let short = rotating(Rotating {
        queue: 1,
        ..Rotating::default()
    })
    .random_reads(2000, 32);
    assert!(many * 2 < one, "{many:?} at depth 32, {one:?} at depth 1");
    nearly(short, one, 3);
}

#[test]
fn without_a_write_cache_a_rewrite_costs_a_turn() {
    let disk = Rotating::default();
    let mut machine = rotating(disk);
    machine.write(1 << 30, Durability::None);
    machine.end_one();
    for _ in 0..50 {
        let began = machine.handle.now();
        machine.write(1 << 30, Durability::None);
        machine.end_one();
        nearly(machine.handle.now().since(began), disk.turn(), 1);
    }
}

#[test]
fn with_a_write_cache_a_rewrite_is_fast_and_its_flush_is_not() {
    let disk = Rotating::default().cached(8 << 20);
    let mut machine = rotating(disk);
    machine.read(0, BLOCK);
    machine.end_one();
    let began = machine.handle.now();
    for block in 0..50 {
        machine.write(block << 30, Durability::None);
        machine.end_one();
    }
    assert!(machine.handle.now().since(began) < disk.turn());
    let flush = machine.sync();
    assert!(flush > disk.turn() * 10, "fifty writes are put away in {flush:?}");
    assert!(machine.sync() < disk.turn(), "nothing is left to put away");
    // Past the cache it is a seek and a turn again.
    let began = machine.handle.now();
    machine.write(400 << 30, Durability::Data);
    machine.end_one();
    assert!(machine.handle.now().since(began) > disk.track_seek);
}

#[test]
fn a_full_write_cache_is_as_slow_as_the_disk() {
    let disk = Rotating::default().cached(64 << 10);
    let mut machine = rotating(disk);
    let mut random = Random(5);
    let began = machine.handle.now();
    for _ in 0..1000 {
        machine.write(random.below(100 << 30) / 4096 * 4096, Durability::None);
        machine.end_one();
    }
    assert!(machine.handle.now().since(began) > disk.turn() * 200);
}

#[test]
fn nobody_waits_for_ever_behind_nearer_requests() {
    let mut machine = rotating(Rotating::default());
    let far = 499 << 30;
    machine.read(0, BLOCK);
    machine.read(far, BLOCK);
    let mut random = Random(9);
    for nth in 0..20_000 {
        // Always someone nearer.
        machine.read(random.below(1 << 30) / 4096 * 4096, BLOCK);
        if nth >= 20 && machine.end_one() == far {
            assert!(machine.handle.now().since(baio_engine::Time(0)) < Duration::from_millis(1500));
            return;
        }
    }
    panic!("the far one was never served");
}

#[test]
fn flash_serves_many_at_a_time_and_out_of_order() {
    let flash = Flash::default();
    let mut machine = Machine::with(Profile::Flash(flash), 1 << 30);
    let one = machine.random_reads(1000, 1);
    let many = machine.random_reads(1000, 32);
    let latency = one / 1000;
    assert!(latency >= flash.read && latency < flash.read * 2, "{latency:?}");
    assert!(many * 16 < one, "{many:?} against {one:?}");
    let mut order = Vec::new();
    for block in 0..32 {
        machine.read(block * 4096, BLOCK);
    }
    for _ in 0..32 {
        order.push(machine.end_one());
    }
    assert!(!order.is_sorted(), "completions come as they end");
}

#[test]
fn without_a_profile_everything_ends_at_once_and_in_order() {
    let mut machine = Machine::with(Profile::Instant, 1 << 30);
    for block in 0..32 {
        machine.read(block * 4096, BLOCK);
    }
    machine.engine.turn(Wait::No).expect("a turn");
    assert_eq!(machine.engine.completed(), 32);
    let order: Vec<_> = (0..32).map(|_| machine.end_one()).collect();
    assert!(order.is_sorted());
}

/// It did nothing once a machine had seen the disk.
#[test]
fn another_profile_holds_for_what_comes_after_it() {
    let disk = Disk::new(1 << 30);
    let sim = Sim::new(7).expect("a simulation");
    let handle = sim.handle();
    let mut engine = Engine::simulated(sim, &EngineOptions::default()).expect("an engine");
    let file = File::simulated(&disk, "disk");
    let takes = |engine: &mut Engine, disk: &Disk, profile: Profile| {
        disk.set_profile(profile);
        let began = handle.now();
        let read = Request::read(&file, 512 << 20, blank(engine, BLOCK), Policy::direct());
        assert_eq!(engine.run(read).result, Ok(BLOCK as u32));
        handle.now().since(began)
    };
    let (milli, micro) = (Duration::from_millis(1), Duration::from_micros(10));
    for _ in 0..2 {
        assert!(takes(&mut engine, &disk, Profile::Instant) < micro);
        assert!(takes(&mut engine, &disk, Profile::Rotating(Rotating::default())) > milli);
        let flash = takes(&mut engine, &disk, Profile::Flash(Flash::default()));
        assert!((micro..milli).contains(&flash), "{flash:?}");
    }
    // While some wait and one is under way: all end, once.
    disk.set_profile(Profile::Rotating(Rotating::default()));
    for block in 0..32 {
        let policy = Policy::direct();
        let memory = blank(&engine, BLOCK);
        let request = match block % 2 {
            0 => Request::read(&file, block << 20, memory, policy),
            _ => Request::write(&file, block << 20, memory, policy),
        };
        engine.submit(request).expect("a free slot");
    }
    engine.turn(Wait::one()).expect("a turn");
    disk.set_profile(Profile::Flash(Flash::default()));
    engine
        .submit(Request::sync(&file, Durability::Data))
        .expect("a free slot");
    for _ in 0..33 {
        assert!(next(&mut engine).result.is_ok());
    }
    assert_eq!((engine.in_flight(), engine.completed()), (0, 0));
}
