//! A file on a device of one's own: `cargo run -p baio-engine --example ram`.

mod device;

use std::cell::RefCell;
use std::rc::Rc;

use baio_engine::{Config, Doorbell, Engine, File, Policy, Request};
use device::{Ram, RamBackend};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backend = RamBackend {
        doorbell: Doorbell::new()?,
        ended: Vec::new(),
    };
    let mut engine = Engine::with_backend(Box::new(backend), &Config::default())?;
    let ram = Ram(Rc::new(RefCell::new(vec![0; 65536])));
    let file = File::on(ram.clone(), "memory");

    let mut buffer = engine.buffer(512).ok_or("the arena is used up")?;
    buffer.fill(7);
    let written = engine.run(Request::write(&file, 4096, buffer, Policy::direct()));
    println!("wrote {} bytes", written.result?);
    assert_eq!(ram.0.borrow()[4095..4097], [0, 7]);
    Ok(())
}
