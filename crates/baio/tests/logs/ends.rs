//! How a log ends badly: a write that fails, a service that dies, a core that goes.

use std::time::Duration;

use baio::metrics::LogCounters;
use baio::{
    Access, Core, CreateOptions, EngineOptions, Errno, Fault, Identity, Link, LinkOptions, Local, Log, LogError,
    LogOptions, Remote,
};
use baio_engine::sim::{Disk, Fault as DiskFault, Faults, Sim, Trigger};
use baio_engine::{Engine, File};

use crate::rig::payloads;

const LOG_BYTES: u64 = 512 << 10;

fn config() -> EngineOptions {
    EngineOptions {
        slots: 64,
        arena_bytes: 8 << 20,
        ..EngineOptions::default()
    }
}

pub(crate) fn options() -> LogOptions {
    LogOptions {
        batch_bytes_max: 16 << 10,
        ..LogOptions::default()
    }
}

pub(crate) fn formatted() -> Disk {
    let disk = Disk::new(4 << 20);
    let file = File::simulated(&disk, "volume");
    let mut engine = Engine::simulated(Sim::new(1).unwrap(), &config()).unwrap();
    baio_storage::format_on(&mut engine, &file, &baio::FormatOptions::default()).unwrap();
    let link = local(&disk);
    link.create_segment("log", &CreateOptions::of_size(LOG_BYTES))
        .wait()
        .unwrap();
    link.close().unwrap();
    disk
}

fn core(disk: &Disk) -> baio::Result<Core> {
    let engine = Engine::simulated(Sim::new(2).unwrap(), &config()).unwrap();
    Core::open_on(engine, &File::simulated(disk, "volume"), &config())
}

fn local(disk: &Disk) -> Local {
    Local::around(core(disk).unwrap(), Identity::effective())
}

pub(crate) fn remote(disk: &Disk) -> Remote {
    let disk = disk.clone();
    let options = LinkOptions {
        engine: config(),
        ..LinkOptions::default()
    };
    Remote::around(move || core(&disk), &options).unwrap()
}

fn failed(error: &baio::Error) -> bool {
    matches!(&error.fault, Fault::Log(error) if matches!(**error, LogError::Failed { .. }))
}

/// What the metrics have of the one log that is open.
fn only_log<L: Link>(link: &L) -> LogCounters {
    let mut logs = link.metrics().wait().unwrap().logs;
    assert_eq!(logs.len(), 1, "{logs:?}");
    logs.remove(0)
}

fn a_failed_write<L: Link>(disk: &Disk, link: L) {
    let segment = link.open_segment("log", Access::Write).wait().unwrap();
    let log: Log<L> = segment.create_log(&options()).wait().unwrap();
    let good = log.append_durable(b"good").wait().unwrap();
    let figures = only_log(&link);
    assert_eq!((figures.name.as_str(), figures.failed), (log.name(), false));
    assert_eq!((figures.usage.appends, figures.usage.durable), (1, log.durable_lsn()));
    disk.set_faults(Faults::none().when(Trigger::always(DiskFault::WriteError)));
    let bad = log.append(b"bad").unwrap();
    let error = log.durable(bad).wait().unwrap_err();
    assert!(failed(&error), "{error}");
    assert_eq!(error.errno(), Some(Errno::EIO));
    assert!(error.to_string().contains("log"), "{error}");
    disk.set_faults(Faults::none());
    assert!(failed(&log.append(b"later").unwrap_err()), "only a new opening helps");
    assert!(failed(&log.durable(bad).wait().unwrap_err()));
    log.durable(good).wait().unwrap();
    assert_eq!(payloads(&log), [b"good"], "what was durable is read still");
    let figures = only_log(&link);
    assert!(figures.failed && figures.usage.pending_bytes > 0, "{figures:?}");
    assert!(failed(&log.room(10).wait().unwrap_err()));
    let _ = log.close().wait();
    drop(log);
    let log = segment.open_log(&options()).wait().unwrap();
    let found = payloads(&log);
    assert!(found[0] == b"good" && found.len() <= 2, "{found:?}");
    log.append_durable(b"again").wait().unwrap();
    let figures = only_log(&link);
    assert_eq!((figures.failed, figures.usage.epoch), (false, 2));
    log.close().wait().unwrap();
    assert!(
        link.metrics().wait().unwrap().logs.is_empty(),
        "a closed log has no figures"
    );
    drop((log, segment));
    link.close().unwrap();
}

#[test]
fn a_failed_write_ends_the_log_until_it_is_opened_again() {
    let disk = formatted();
    a_failed_write(&disk, local(&disk));
    let disk = formatted();
    a_failed_write(&disk, remote(&disk));
}

#[test]
fn what_was_acknowledged_survives_power_cuts() {
    let mut disk = formatted();
    let mut acknowledged: Vec<Vec<u8>> = Vec::new();
    for round in 0..30_u64 {
        let link = local(&disk);
        let segment = link.open_segment("log", Access::Write).wait().unwrap();
        let log = match round {
            0 => segment.create_log(&options()).wait().unwrap(),
            _ => segment.open_log(&options()).wait().unwrap(),
        };
        let found = payloads(&log);
        assert!(found.starts_with(&acknowledged), "round {round}");
        acknowledged = found;
        let mut waiting = Vec::new();
        for number in 0..20 {
            let record = vec![round as u8; (round * 7 + number * 31) as usize % 900];
            let lsn = log.append(&record).unwrap();
            waiting.push(record);
            if number % 4 == round % 4 {
                log.durable(lsn).wait().unwrap();
                acknowledged.append(&mut waiting);
            }
        }
        // Something is under way when the power goes.
        let _ = link.turn(baio::Wait::No);
        disk = disk.power_cut(round);
        drop((log, segment, link));
    }
}

#[test]
fn who_waits_hears_that_the_service_has_gone() {
    let disk = formatted();
    let link = remote(&disk);
    let segment = link.open_segment("log", Access::Write).wait().unwrap();
    let log = segment.create_log(&options()).wait().unwrap();
    let waiting = {
        let log = log.clone();
        // For a record that nobody appends.
        std::thread::spawn(move || {
            let next = log.end_lsn();
            let mut future = std::pin::pin!(log.durable(next));
            let thread = std::thread::current();
            let waker = std::task::Waker::from(std::sync::Arc::new(Unpark(thread)));
            let mut context = std::task::Context::from_waker(&waker);
            loop {
                if let std::task::Poll::Ready(result) = std::future::Future::poll(future.as_mut(), &mut context) {
                    return result;
                }
                std::thread::park(); // By its waker alone.
            }
        })
    };
    std::thread::sleep(Duration::from_millis(20));
    link.clone().close().unwrap();
    let error = waiting.join().unwrap().unwrap_err();
    assert_eq!(error.errno(), Some(Errno::ESTALE), "{error}");
    assert!(log.append(b"x").is_err());
}

struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

/// With nobody who turns the core a wait would last for ever.
#[test]
fn without_a_driver_it_says_so() {
    let disk = formatted();
    let link = local(&disk);
    let segment = link.open_segment("log", Access::Write).wait().unwrap();
    let log = segment.create_log(&options()).wait().unwrap();
    let mut future = std::pin::pin!(log.append_durable(b"x"));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::future::Future::poll(future.as_mut(), &mut context) {
        std::task::Poll::Ready(Err(error)) => assert_eq!(error.errno(), Some(Errno::EDEADLK), "{error}"),
        other => panic!("{other:?}"),
    }
    drop((segment, link));
}
