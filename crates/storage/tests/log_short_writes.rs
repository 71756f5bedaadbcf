//! A device that writes less than it was asked to, and says so.

mod log_harness;

use baio_storage::log::{LogError, LogIoKind, LogRequest};
use log_harness::{Rig, record, small};

const SIZE: u64 = 8192 + (64 << 10);

#[test]
fn a_growth_whose_copy_is_short_fails_and_loses_nothing() {
    let mut rig = Rig::create(SIZE, &small());
    let mut kept = Vec::new();
    for number in 0..40 {
        let bytes = record(number, 1500);
        kept.push((rig.write(&bytes), bytes));
        if kept.len() > 20 {
            let head = kept[10].0;
            assert_eq!(rig.truncate(head), head);
            kept.drain(..10);
        }
    }
    rig.device.bytes.resize(SIZE as usize * 2, 0x77);
    let owner = rig.start(LogRequest::Grow { size_bytes: SIZE * 2 });
    // The copy of what has wrapped is what goes behind the old end and is no zeroes.
    let is_copy = |rig: &Rig| {
        let io = &rig.ios[0];
        matches!(io.kind, LogIoKind::Write { offset, .. } if offset == SIZE) && io.bytes().iter().any(|byte| *byte != 0)
    };
    rig.pump();
    while !is_copy(&rig) {
        rig.end(0);
        rig.pump();
    }
    let io = rig.ios.remove(0);
    rig.part.io_ended(io.id, Ok(512), io.memory);
    rig.run();
    let answer = rig.take_done(owner);
    assert!(matches!(answer, Some(Err(LogError::Failed { .. }))), "{answer:?}");
    let mut rig = Rig::open(rig.crash(|_, _| false), &small());
    assert!(rig.read() == kept);
}
