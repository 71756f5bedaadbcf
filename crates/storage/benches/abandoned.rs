//! What must not grow: a request's cost in the core, by the number of requests that were abandoned and that the device still has.
//!
//! `cargo bench -p baio-storage --bench abandoned` prints the CPU time of a read that the page cache answers, and of a direct write
//! that is started and cancelled, the best of some rounds. The device is a simulated disk that needs weeks for a write, so that the
//! abandoned ones are under way all the time. That nobody walks the engine's table for them is tested there, by a counter.

use std::time::Duration;

use baio_engine::sim::{Disk, Flash, Profile, Sim};
use baio_engine::{Buffer, Engine, EngineOptions, File, Memory, Wait};
use baio_storage::cache::CacheOptions;
use baio_storage::{
    Access, Core, CreateOptions, FormatOptions, Handle, Identity, Mode, Outcome, SegmentOp, SegmentRequest, format_on,
};

const PAGE: usize = 4096;
const SIZE: u64 = 64 << 20;
const TIMES: usize = 20_000;
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for count in [0, 100, 1000, 3000] {
        let mut world = World::new(count)?;
        let mut buffer = world.core.buffer(PAGE)?;
        let (mut hit, mut cancelled) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..ROUNDS {
            let begun = cpu_ns();
            for _ in 0..TIMES {
                buffer = world.hit(buffer);
            }
            hit = hit.min((cpu_ns() - begun) as f64 / TIMES as f64);
            let begun = cpu_ns();
            for _ in 0..TIMES {
                buffer = world.cancelled(buffer);
            }
            cancelled = cancelled.min((cpu_ns() - begun) as f64 / TIMES as f64);
        }
        assert_eq!(world.core.in_flight(), count, "all of them are under way still");
        println!("beside {count:>4} abandoned requests: hit {hit:>6.0} ns, cancelled write {cancelled:>6.0} ns");
    }
    Ok(())
}

struct World {
    core: Core,
    handle: Handle,
    other: Handle,
}

impl World {
    fn new(abandoned: usize) -> Result<World, Box<dyn std::error::Error>> {
        let config = EngineOptions {
            slots: 8192,
            arena_bytes: 64 << 20,
            ..EngineOptions::default()
        };
        let disk = Disk::new(4 * SIZE);
        disk.set_profile(Profile::Flash(Flash {
            write: Duration::from_secs(10_000_000),
            channels: u32::MAX,
            ..Flash::default()
        }));
        let file = File::simulated(&disk, "disk");
        let mut engine = Engine::simulated(Sim::new(1)?, &config)?;
        format_on(&mut engine, &file, &FormatOptions::default())?;
        let mut core = Core::open_on(engine, &file, &config)?;
        core.use_cache(&CacheOptions {
            bytes: 16 << 20,
            ..CacheOptions::default()
        })?;
        let who = Identity::new(7, 7);
        let mut segment = |name: &str| {
            core.create(who, who.uid, name, &CreateOptions::of_size(SIZE))?;
            Ok::<_, baio_storage::Error>(core.open_segment(who, who.uid, name, Access::Write)?.0)
        };
        let (handle, other) = (segment("data")?, segment("other")?);
        let mut world = World { core, handle, other };
        let buffer = world.core.buffer(PAGE)?;
        world.hit(buffer);
        // Some can be called back.
        for block in 0..SIZE / PAGE as u64 {
            if world.core.in_flight() >= abandoned {
                break;
            }
            let buffer = world.core.buffer(PAGE)?;
            let write = world.write(buffer, block * PAGE as u64);
            let ticket = world.core.start(write).map_err(|_| "no slot")?;
            world.core.turn(Wait::No)?;
            world.core.abandon(ticket);
            world.core.turn(Wait::No)?;
        }
        Ok(world)
    }

    fn write(&self, buffer: Buffer, offset: u64) -> SegmentRequest {
        SegmentRequest::new(self.other, SegmentOp::Write { offset }, buffer)
    }

    /// A read of a page that is in memory, once it is.
    fn hit(&mut self, buffer: Buffer) -> Buffer {
        let request = SegmentRequest {
            mode: Mode::Cached,
            ..SegmentRequest::new(self.handle, SegmentOp::Read { offset: 0 }, buffer)
        };
        let ticket = self.core.start(request).expect("a slot");
        let outcome = self.core.wait(ticket).expect("a core that runs").expect("an outcome");
        assert!(outcome.result.is_ok(), "{:?}", outcome.result);
        own(outcome)
    }

    /// A direct write beyond the abandoned ones that never reaches the disk.
    fn cancelled(&mut self, buffer: Buffer) -> Buffer {
        let write = self.write(buffer, SIZE - PAGE as u64);
        let ticket = self.core.start(write).expect("a slot");
        self.core.cancel(ticket);
        self.core.turn(Wait::No).expect("a core that runs");
        own(self.core.next_outcome().expect("it has ended"))
    }
}

fn own(outcome: Outcome) -> Buffer {
    match outcome.memory {
        Memory::Own(buffer) => buffer,
        other => panic!("{other:?}"),
    }
}

fn cpu_ns() -> u64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}
