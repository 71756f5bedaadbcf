//! A file on a device of one's own: `cargo run -p baio-engine --example ram`.

mod device;

use baio_engine::{Config, Doorbell, Engine, File, Policy, Request};
use device::{Ram, RamBackend};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backend = RamBackend {
        doorbell: Doorbell::new()?,
        ended: Vec::new(),
    };
    let mut engine = Engine::with_backend(Box::new(backend), &Config::default())?;
    let ram = Ram::of(vec![0; 65536]);
    let file = File::on(ram.clone(), "memory");

    let mut buffer = engine.buffer(512).ok_or("the arena is used up")?;
    buffer.fill(7);
    let written = engine.run(Request::write(&file, 4096, buffer, Policy::direct()));
    println!("wrote {} bytes", written.result?);
    assert_eq!(ram.bytes()[4095..4097], [0, 7]);
    Ok(())
}
