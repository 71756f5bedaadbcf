//! Promise: a broker's figures can be had from any thread while it runs, and nobody waits for one that has ended.

use std::time::Duration;

use baio_broker::host::{Broker, Listener, Options};
use baio_engine::EngineOptions;
use baio_storage::{Core, FormatOptions};

/// Nothing here takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn while_it_runs_and_no_longer() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("volume.img"), dir.path().join("socket"));
    let format = FormatOptions {
        size_bytes: Some(16 << 20),
        ..FormatOptions::default()
    };
    Core::format(&path, &format).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let (begin, begun) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let core = Core::open(&path, &EngineOptions::default()).unwrap();
        let listener = Listener::bind(&socket, 0o600).unwrap();
        let broker = Broker::new(core, listener, Options::default()).unwrap();
        tell.send((broker.figures(), broker.stopper())).unwrap();
        begun.recv().unwrap();
        broker.run()
    });
    let (figures, stop) = told.recv().unwrap();
    // Nobody answers yet.
    assert!(figures.look(Duration::ZERO).is_none());
    begin.send(()).unwrap();
    let first = figures.look(PATIENCE).unwrap();
    assert!(first.status.owners.is_empty() && first.status.started_at_unix > 0);
    assert_eq!(first.counters.volume.unwrap().segments, 0);
    // It sleeps, and is woken for it; for several at a time as well.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(figures.look(PATIENCE).is_some()));
        }
    });
    stop.ask();
    thread.join().unwrap().unwrap();
    // What it has shown is no figure of now.
    assert!(figures.look(PATIENCE).is_none());
}
