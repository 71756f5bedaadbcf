//! An epoch is in both copies of the header before anything is appended: whichever rots, none is given twice.

use crate::rig::{Rig, record, small};

#[test]
fn an_epoch_falls_back_to_either_copy_of_the_header() {
    for copy in [0, 4096] {
        let mut rig = Rig::create(8192 + (64 << 10), &small());
        rig.write(&record(0, 100));
        let mut rig = Rig::open(rig.crash(|_, _| false), &small());
        let epoch = rig.recovered().epoch;
        // It gives an LSN, and the record is lost.
        let lsn = rig.batch(&record(1, 100));
        let mut device = rig.crash(|_, _| false);
        device.flip(copy + 100);
        let mut rig = Rig::open(device, &small());
        assert_eq!(rig.payloads(), [record(0, 100)]);
        assert!(rig.recovered().epoch > epoch, "copy at {copy}");
        assert!(rig.append(&record(2, 100)) > lsn, "copy at {copy}");
    }
}
