//! Pages of the buffer pool wait for the log that they are under, and hear of it by themselves.

use baio::{Access, Backend, CreateOptions, Durability, LinkOptions, Local, Remote};

use crate::rig::{Made, Place, Rig, segment};

fn pages_wait_for_their_log<L: Made>() {
    let rig = Rig::new(Place {
        backend: Backend::Auto,
        is_file: false,
        is_far: false,
        block_bytes: 512,
    });
    let options = LinkOptions {
        identity: baio::Identity::new(0, 0),
        ..LinkOptions::default()
    };
    let link = L::open_with(&rig.volume, &options.with_cache(1 << 20)).unwrap();
    let size = CreateOptions::of_size(1 << 20);
    let [one, other] = ["one", "two"].map(|name| {
        link.create_segment(name, &size).wait().unwrap();
        link.open_segment(name, Access::Write).wait().unwrap()
    });
    let logs = ["log", "other"].map(|name| segment(&link, name).create_log(&rig.options()).wait().unwrap());
    one.set_log(&logs[0]).wait().unwrap();
    other.set_log(&logs[1]).wait().unwrap();
    for round in 0..20_u8 {
        for (pages, log) in [(&one, &logs[0]), (&other, &logs[1])] {
            let pin = pages.pin(u64::from(round)).wait().unwrap();
            let lsn = log.append(&[round; 100]).unwrap();
            pin.change(lsn.0, move |bytes| bytes[0] = round + 1).wait().unwrap();
            drop(pin);
        }
        // The sync of one waits for its log, without anybody who says how far that is.
        let lsn = logs[0].end_lsn();
        one.sync(Durability::Data).wait().unwrap();
        assert!(logs[0].durable_lsn() >= lsn);
    }
    other.sync(Durability::Data).wait().unwrap();
    for pages in [&one, &other] {
        let read = pages
            .read_at(19 * 4096, pages.buffer(4096).unwrap())
            .direct()
            .wait()
            .unwrap();
        assert_eq!(read.buffer[0], 20);
    }
    assert!(
        segment(&link, "log").set_log(&logs[1]).wait().is_err(),
        "a log is no page store"
    );
    drop((one, other, logs));
    link.close().unwrap();
}

#[test]
fn pages_wait_for_their_log_on_both_links() {
    pages_wait_for_their_log::<Local>();
    pages_wait_for_their_log::<Remote>();
}
