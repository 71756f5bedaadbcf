//! A file on a device of one's own. First in an engine of its own, then beside the kernel's files in one engine and one queue of
//! completions.
//!
//! ```sh
//! cargo run -p baio-engine --example ram
//! ```

mod device;

use baio_engine::{Doorbell, Engine, EngineOptions, File, Policy, Request, SetupError, Wait};
use device::{Ram, RamBackend};

fn backend(doorbell: Doorbell) -> Box<RamBackend> {
    let ended = Vec::new();
    Box::new(RamBackend { doorbell, ended })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ram = Ram::of(vec![0; 65536]);
    let in_memory = File::on(ram.clone(), "memory");
    alone(&ram, &in_memory)?;
    beside_files(&in_memory)
}

fn alone(ram: &Ram, in_memory: &File) -> Result<(), Box<dyn std::error::Error>> {
    let mut engine = Engine::with_backend(backend(Doorbell::new()?), &EngineOptions::default())?;
    let mut buffer = engine.buffer(512).ok_or("the arena is used up")?;
    buffer.fill(7);
    let written = engine.run(Request::write(in_memory, 4096, buffer, Policy::direct()));
    println!("wrote {} bytes", written.result?);
    assert_eq!(ram.bytes()[4095..4097], [0, 7]);
    Ok(())
}

fn beside_files(in_memory: &File) -> Result<(), Box<dyn std::error::Error>> {
    let mut engine = Engine::new(&EngineOptions::default())?;
    engine.add_helper(|doorbell| Ok::<_, SetupError>(backend(doorbell)))?;
    let path = std::env::current_exe()?;
    let on_disk = File::open(&path, &baio_engine::Open::read())?;
    for (tag, file) in [&on_disk, in_memory].into_iter().enumerate() {
        let buffer = engine.buffer(4096).ok_or("the arena is used up")?;
        let read = Request::read(file, 4096, buffer, Policy::kernel()).tagged(tag as u64);
        engine.submit(read).map_err(|_| "every slot is taken")?;
    }
    engine.turn(Wait::for_count(2))?;
    while let Some(done) = engine.next_completion() {
        println!("{}: read {} bytes", ["disk", "memory"][done.tag as usize], done.result?);
    }
    Ok(())
}
