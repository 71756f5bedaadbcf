//! One write that is slow: others behind it end, and more follow, farther than the window of batches in flight.

mod log_harness;

use baio_storage::log::LogError;
use log_harness::{Rig, record, small};

#[test]
fn rot_of_a_batch_that_was_slow_is_told() {
    let mut rig = Rig::create(8192 + (64 << 10), &small());
    let first = rig.batch(&record(0, 100));
    // Far more than the window, one by one, while the first is at the device.
    for number in 1..12 {
        rig.batch(&record(number, 1900));
        rig.end(1);
    }
    assert!(!rig.is_durable(first));
    rig.end(0);
    assert!(rig.is_durable(first));
    // The only batch that says so.
    rig.write(&record(12, 100));
    rig.device.flip(8192 + 100);
    let error = Rig::try_open(rig.crash(|_, _| false), &small()).err();
    assert!(matches!(error, Some(LogError::Rot { .. })), "{error:?}");
}
