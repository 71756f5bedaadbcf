//! What runs on the core's thread: [`Link::with_pool`].

use std::panic::{AssertUnwindSafe, catch_unwind};

use baio::{Fault, Wait};

use crate::rig::{Made, Volume, byte_of, options, page, segment};

pub(crate) fn pages_are_read_and_changed_at_once<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 8);
    let handle = open.handle();
    let seen = link
        .with_pool(move |pool| pool.read(handle, 2, |bytes| bytes[0]))
        .wait()
        .unwrap();
    assert_eq!(seen.unwrap(), None, "it is not there");
    let pins = [open.pin(2).wait().unwrap(), open.pin(3).wait().unwrap()];
    let swap = link.with_pool(move |pool| -> baio::Result<u8> {
        pool.change(handle, 2, 0, |bytes| bytes.fill(5))?;
        pool.change(handle, 3, 0, |bytes| bytes.fill(6))?;
        Ok(pool.read(handle, 2, |bytes| bytes[9])?.unwrap_or(0))
    });
    assert_eq!(swap.wait().unwrap().unwrap(), 5);
    drop(pins);
    assert_eq!((byte_of(&open, 2), byte_of(&open, 3)), (5, 6));
    drop(open);
    let stale = link
        .with_pool(move |pool| pool.read(handle, 2, |_| ()).map(drop))
        .wait()
        .unwrap();
    assert!(matches!(stale.unwrap_err().fault, Fault::Stale));
}

pub(crate) fn what_comes_of_it_comes_back<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let given = vec![String::from("moved"), String::from("there")];
    let back = link.with_pool(move |pool| {
        assert!(format!("{pool:?}").starts_with("Pool("));
        (given, std::thread::current().id())
    });
    let (given, _) = back.wait().unwrap();
    assert_eq!(given, ["moved", "there"]);
    link.with_pool(|_| ()).wait().unwrap();
    // One that is never awaited never runs.
    let (told, ran) = std::sync::mpsc::channel();
    drop(link.with_pool(move |_| told.send(())));
    assert!(ran.recv().is_err());
}

pub(crate) fn a_panic_is_its_callers<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 8);
    let pin = open.pin(0).wait().unwrap();
    let message = |panic: Box<dyn std::any::Any + Send>| panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let caught = catch_unwind(AssertUnwindSafe(|| {
        link.with_pool(|_| -> u8 { panic!("in the pool") }).wait()
    }));
    assert_eq!(caught.map(drop).map_err(message), Err(Some("in the pool".into())));
    let caught = catch_unwind(AssertUnwindSafe(|| pin.read(|_| -> u8 { panic!("in a look") }).wait()));
    assert_eq!(caught.map(drop).map_err(message), Err(Some("in a look".into())));
    let changing = catch_unwind(AssertUnwindSafe(|| {
        pin.change(0, |bytes| {
            bytes[0] = 1;
            panic!("in a change")
        })
        .wait()
    }));
    assert_eq!(
        changing.map(|_: baio::Result<()>| ()).map_err(message),
        Err(Some("in a change".into()))
    );
    // The link lives on.
    assert_eq!(pin.read(|bytes| bytes[0]).wait().unwrap(), 1);
    open.write_at(4096, page(&link, 2)).wait().unwrap();
    assert_eq!(byte_of(&open, 1), 2);
    drop((pin, open));
    link.close().unwrap();
}

/// What looks at a cached page panics: the page can leave the cache all the same.
pub(crate) fn a_panic_over_a_page_lets_it_go<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 16);
    let handle = open.handle();
    drop(open.pin(0).wait().unwrap());
    let look = link.with_pool(move |pool| pool.read(handle, 0, |_| panic!("of the caller")).map(drop));
    assert!(catch_unwind(AssertUnwindSafe(|| look.wait())).is_err());
    let mut left = 0;
    for _ in 0..100 {
        left += open.drop_cached(0..1).wait().unwrap();
        let _ = link.turn(Wait::No);
    }
    assert_eq!(left, 1);
    link.close().unwrap();
}

pub(crate) fn the_log_as_the_pool_sees_it<L: Made>() {
    let volume = Volume::new();
    let link = L::open_with(&volume.path, &options(16)).unwrap();
    let open = segment(&link, "one", 8);
    let pin = open.pin_new(0, 7).wait().unwrap();
    let seen = |link: &L| {
        let look = link.with_pool(|pool| (pool.oldest_recovery_lsn(), pool.lsn_wanted()));
        look.wait().unwrap()
    };
    assert_eq!(seen(&link), (Some(7), None));
    link.with_pool(|pool| pool.set_durable_lsn(7)).wait().unwrap().unwrap();
    open.sync(baio::Durability::Data).wait().unwrap();
    assert_eq!(seen(&link), (None, None));
    drop(pin);
}
