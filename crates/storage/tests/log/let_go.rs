//! Whoever lets go of records while the log is busy with something else is heard when that is over.

use baio_storage::log::{LogRequest, Lsn};

use crate::rig::{Rig, record, small};

const SIZE: u64 = 8192 + (64 << 10);

#[test]
fn while_it_grows() {
    let mut rig = Rig::create(SIZE, &small());
    let lsns: Vec<u64> = (0..4).map(|number| rig.write(&record(number, 100))).collect();
    let held = rig.appender.retain(Lsn(lsns[0]));
    rig.truncate(lsns[3]);
    assert_eq!(held.wanted(), Some(Lsn(lsns[3])));
    // A batch stays at the device, and the growth waits for it.
    rig.batch(&record(4, 100));
    rig.device.bytes.resize(SIZE as usize * 2, 0x77);
    let owner = rig.start(LogRequest::Grow { size_bytes: SIZE * 2 });
    rig.pump();
    while rig.ios.len() > 1 {
        rig.end(1);
        rig.pump();
    }
    assert!(rig.appender.append(b"later").is_err(), "appends wait");
    drop(held);
    rig.run();
    assert!(rig.take_done(owner).unwrap().is_ok());
    assert_eq!(rig.part.usage().head, Lsn(lsns[3]));
}
