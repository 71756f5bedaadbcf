//! No heap allocation per record, batch or waiter once a log is warm: its whole round of append, wait, write, acknowledge, wake.

use std::task::Waker;

use baio_engine::{Arena, Memory};
use baio_storage::log::{Fired, LogIoId, LogIoKind, LogOptions, LogPart, LogRequest, Salt, WaitKey};

use crate::allocations;

fn end((id, kind, memory): (LogIoId, LogIoKind, Memory), part: &mut LogPart) {
    let result = match kind {
        LogIoKind::Read { len, .. } | LogIoKind::Write { len, .. } => Ok(len),
        LogIoKind::Sync | LogIoKind::Allocate { .. } => Ok(0),
    };
    part.io_ended(id, result, memory);
}

#[test]
fn a_warm_log_allocates_nothing() {
    let arena = Arena::new(16 << 20).unwrap();
    let options = LogOptions::default();
    let mut part = LogPart::create(&arena, 64 << 20, [7; 16], Salt([8; 16]), &options).unwrap();
    let appender = part.appender();
    let mut fired: Vec<Fired> = Vec::with_capacity(16);
    // Eight at a time wait, as many tasks by one waker; each has a key of its own.
    let mut keys: Vec<WaitKey> = (0..8).map(|_| WaitKey::default()).collect();
    let mut round = |part: &mut LogPart| {
        let record = [3; 256];
        for key in &mut keys {
            let lsn = appender.append(&record).unwrap();
            assert!(appender.poll_durable(lsn, key, Waker::noop()).is_pending());
        }
        while let Some(io) = part.next_io() {
            end(io, part);
        }
        part.take_fired(&mut fired);
        fired.drain(..).for_each(Fired::fire);
        assert!(part.next_done().is_none());
        let durable = appender.durable_lsn();
        keys.iter_mut().for_each(|key| *key = WaitKey::default());
        durable
    };
    while let Some(io) = part.next_io() {
        end(io, &mut part);
    }
    for _ in 0..50 {
        round(&mut part);
    }
    let before = allocations::so_far();
    let mut last = round(&mut part);
    for _ in 0..2000 {
        let durable = round(&mut part);
        assert!(durable > last);
        last = durable;
    }
    let allocations = allocations::so_far() - before;
    // 8 MB of log: the index of its places has grown.
    assert!(allocations <= 4, "{allocations}");
    part.start(1, LogRequest::Close);
}

#[test]
fn an_append_allocates_nothing() {
    let arena = Arena::new(64 << 20).unwrap();
    let mut part = LogPart::create(&arena, 64 << 20, [7; 16], Salt([8; 16]), &LogOptions::default()).unwrap();
    let appender = part.appender();
    while let Some(io) = part.next_io() {
        end(io, &mut part);
    }
    // Beyond what one batch holds, and beyond the buffers that are kept: twice, as the lists grow once.
    let mut counted = 0;
    for _ in 0..3 {
        let before = allocations::so_far();
        for _ in 0..10_000 {
            appender.append(&[5; 256]).unwrap();
        }
        counted = allocations::so_far() - before;
        while let Some(io) = part.next_io() {
            end(io, &mut part);
        }
    }
    assert_eq!(counted, 0);
}
