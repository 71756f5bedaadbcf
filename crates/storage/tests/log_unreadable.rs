//! With `salvage` a log is served but for what cannot be read, wherever that lies among the rest.

mod log_harness;

use baio_storage::log::LogOptions;
use log_harness::{Rig, record, small};

#[test]
fn what_lies_around_an_unreadable_batch_is_read() {
    let mut rig = Rig::create(8192 + (64 << 10), &small());
    for number in 0..6 {
        rig.write(&record(number, 100));
    }
    rig.tick(1000);
    rig.run();
    let mut device = rig.crash(|_, _| false);
    // The third of the batches, each of which has a block.
    device.unreadable.push(8192 + 1024..8192 + 1536);
    let options = LogOptions {
        salvage: true,
        ..small()
    };
    let mut rig = Rig::open(device, &options);
    assert_eq!(rig.recovered().holes.len(), 1);
    let kept: Vec<Vec<u8>> = [0, 1, 3, 4, 5].map(|number| record(number, 100)).to_vec();
    let head = rig.part.usage().head.0;
    let read = rig.try_read(head).unwrap();
    let read: Vec<Vec<u8>> = read.into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(read, kept);
}
