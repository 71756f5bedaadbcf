//! A freeze, and a write that waits for its thaw, come to their end whoever drives the link and wherever the freeze is dropped.

use std::time::Duration;

use baio::{FrozenVolume, Link, Local, Remote, Segment};

use crate::common;
use crate::common::story::tell_of;

/// Where and when a freeze is dropped.
#[derive(Clone, Copy)]
enum Thaw {
    AtOnce,
    #[cfg(feature = "tokio")]
    AMomentLater,
    ByAnotherThread,
}

/// A write is under way when this drops the freeze, and ends.
async fn a_write_waits_for_the_thaw(segment: &Segment<Local>, frozen: FrozenVolume, thaw: Thaw) {
    let write = common::begun_here(segment.write_at(0, segment.buffer(4096).unwrap())).await;
    match thaw {
        Thaw::AtOnce => drop(frozen),
        #[cfg(feature = "tokio")]
        Thaw::AMomentLater => {
            tokio::time::sleep(Duration::from_millis(50)).await;
            drop(frozen);
        }
        Thaw::ByAnotherThread => {
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(100));
                drop(frozen);
            });
        }
    }
    write.await.unwrap();
}

fn in_block_on(thaw: Thaw) {
    tell_of(move || {
        let (_dir, volume) = common::cached(64, 64);
        let segment = common::segment(&volume, "one", 64 << 10);
        let work = async {
            let frozen = volume.freeze().await.unwrap();
            a_write_waits_for_the_thaw(&segment, frozen, thaw).await;
        };
        volume.block_on(work).unwrap();
    });
}

#[test]
fn a_write_in_block_on_waits_for_a_thaw_here() {
    in_block_on(Thaw::AtOnce);
}

#[test]
fn a_write_in_block_on_waits_for_a_thaw_elsewhere() {
    in_block_on(Thaw::ByAnotherThread);
}

#[test]
fn a_freeze_ends_beside_any_executor() {
    tell_of(|| {
        let (_dir, volume) = common::cached(64, 64);
        drop(common::run_elsewhere(&volume, volume.freeze()).unwrap());
    });
}

#[test]
fn a_freeze_of_a_service_needs_no_driver() {
    tell_of(|| {
        let (_dir, path) = common::image(16 << 20);
        let volume = Remote::open_with(&path, &common::cached_options(64, 64)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let freeze = async { tokio::time::timeout(Duration::from_secs(3), volume.freeze()).await };
        drop(runtime.unwrap().block_on(freeze).expect("in time").unwrap());
    });
}

#[cfg(feature = "tokio")]
mod beside_tokio {
    use baio::Backend;

    use super::*;

    #[test]
    fn a_freeze_without_a_cache_ends() {
        tell_of(|| {
            let (_dir, volume) = common::volume(Backend::Auto);
            drop(common::beside_tokio(&volume, volume.freeze()).unwrap());
        });
    }

    #[test]
    fn a_freeze_of_a_clean_cache_ends() {
        tell_of(|| {
            let (_dir, volume) = common::cached(64, 64);
            drop(common::beside_tokio(&volume, volume.freeze()).unwrap());
        });
    }

    #[test]
    fn a_freeze_of_a_dirty_cache_ends() {
        tell_of(|| {
            let (_dir, volume) = common::cached(64, 64);
            let segment = common::segment(&volume, "one", 64 << 10);
            let write = segment.write_at(0, segment.buffer(4096).unwrap()).cached();
            write.wait().unwrap();
            drop(common::beside_tokio(&volume, volume.freeze()).unwrap());
        });
    }

    fn frozen_and_written(thaws: &'static [Thaw]) {
        tell_of(move || {
            let (_dir, volume) = common::cached(64, 64);
            let segment = common::segment(&volume, "one", 64 << 10);
            common::beside_tokio(&volume, async {
                for thaw in thaws {
                    let frozen = volume.freeze().await.unwrap();
                    a_write_waits_for_the_thaw(&segment, frozen, *thaw).await;
                }
            });
        });
    }

    #[test]
    fn a_write_waits_for_a_thaw_here() {
        frozen_and_written(&[Thaw::AMomentLater]);
    }

    #[test]
    fn a_write_waits_for_a_thaw_elsewhere() {
        frozen_and_written(&[Thaw::ByAnotherThread]);
    }

    #[test]
    fn a_thawed_volume_is_frozen_again() {
        frozen_and_written(&[Thaw::AMomentLater, Thaw::ByAnotherThread]);
    }

    /// Nothing but the thaw happens beside the driver: it must wake it.
    fn frozen_before(thaw: Thaw) {
        tell_of(move || {
            let (_dir, volume) = common::cached(64, 64);
            let segment = common::segment(&volume, "one", 64 << 10);
            let frozen = volume.freeze().wait().unwrap();
            common::beside_tokio(&volume, a_write_waits_for_the_thaw(&segment, frozen, thaw));
        });
    }

    #[test]
    fn a_thaw_here_wakes_the_driver() {
        frozen_before(Thaw::AMomentLater);
    }

    #[test]
    fn a_thaw_elsewhere_wakes_the_driver() {
        frozen_before(Thaw::ByAnotherThread);
    }
}
