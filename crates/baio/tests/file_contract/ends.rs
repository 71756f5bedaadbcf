//! How a request ends early: by a deadline, a cancel, or with nobody left who waits for it.

use std::time::Duration;

use baio::{Durability, Error, Failed, Fault, File, IoBuf, Mode, Result, Status, StatusWord, Time, Wait};
use futures_util::future::join_all;

use crate::rig::{Bench, Case, Made, PAGE, buffer, bytes, once, open, read, write};

/// Ended early, if it is an error: had no effect, or nobody knows.
fn is_early<B: IoBuf>(failed: &Failed<B>) {
    let code = failed.error.code();
    assert!(matches!(code, "ECANCELED" | "EINDETERMINATE"), "{failed}");
    assert_eq!(failed.bytes_done, 0);
    if code == "ECANCELED" {
        assert!(failed.buffer.is_some(), "nobody has it: {failed}");
    }
}

fn past_deadline<L: Made>(bench: &Bench<L>, mode: Mode) -> Case {
    let (link, path) = (bench.link(), bench.file("one", 16 * PAGE));
    let file = open(&link, &path, mode);
    for page in 0..16_u64 {
        let read = file.read_at(page * 4096, buffer(&link, &[0; PAGE])).deadline(Time(1));
        // Overdue or just in time.
        match read.wait() {
            Ok(done) => assert_eq!(done.buffer[..], bytes(16 * PAGE)[page as usize * PAGE..][..PAGE]),
            Err(failed) => is_early(&failed),
        }
    }
    assert_eq!(read(&file, 0, PAGE), bytes(16 * PAGE)[..PAGE]);
    Ok(())
}

pub(crate) fn a_deadline_in_the_past_ends_it<L: Made>(bench: &Bench<L>) -> Case {
    past_deadline(bench, Mode::Kernel)
}

pub(crate) fn a_deadline_in_the_past_of_a_cached_request<L: Made>(bench: &Bench<L>) -> Case {
    past_deadline(bench, Mode::Cached)
}

pub(crate) fn a_deadline_far_off_changes_nothing<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    let file = open(&link, &path, Mode::Kernel);
    for far in [Duration::from_secs(3600), Duration::MAX] {
        let read = file.read_at(0, buffer(&link, &[0; PAGE])).within(far);
        assert_eq!(read.wait().unwrap().buffer[..], bytes(PAGE));
    }
    let at = link.deadline(Duration::from_secs(60));
    assert!(at > link.now());
    file.write_at(0, buffer(&link, &[1; 10]))
        .deadline(at)
        .durable(Durability::Data)
        .wait()
        .unwrap();
    Ok(())
}

pub(crate) fn cancelled_before_it_began_it_has_no_effect<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    for mode in [Mode::Kernel, Mode::Cached] {
        let file = open(&link, &path, mode);
        let mut write = file.write_at(0, buffer(&link, &[7; PAGE]));
        write.cancel();
        let failed = write.wait().unwrap_err();
        assert_eq!(failed.error.code(), "ECANCELED", "{failed}");
        assert_eq!(failed.buffer.unwrap()[..], [7; PAGE]);
        assert_eq!(read(&file, 0, PAGE), bytes(PAGE));
    }
    assert_eq!(std::fs::read(path).unwrap(), bytes(PAGE));
    Ok(())
}

pub(crate) fn cancelled_under_way_it_has_an_end<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", 64 * PAGE));
    for mode in [Mode::Kernel, Mode::Cached] {
        let file = open(&link, &path, mode);
        let ends = async {
            let mut reads: Vec<_> = (0..30)
                .map(|page| file.read_at(page * 4096, buffer(&link, &[0; PAGE])))
                .collect();
            for read in &mut reads {
                assert!(once(read).await.is_none(), "it needs the device");
            }
            reads.iter_mut().skip(1).step_by(2).for_each(baio::Request::cancel);
            // Again changes nothing.
            reads[1].cancel();
            join_all(reads).await
        };
        for (nth, ended) in link.block_on(ends).unwrap().into_iter().enumerate() {
            match ended {
                Ok(done) => assert_eq!(done.buffer[..], bytes(64 * PAGE)[nth * PAGE..][..PAGE]),
                Err(failed) if nth % 2 == 1 => is_early(&failed),
                Err(failed) => panic!("{nth} was not cancelled: {failed}"),
            }
        }
    }
    Ok(())
}

pub(crate) fn a_future_dropped_before_it_began_has_no_effect<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    let file = open(&link, &path, Mode::Kernel);
    let before = link.arena_free_bytes();
    #[allow(unused_must_use, reason = "that is what is shown")]
    {
        file.write_at(0, buffer(&link, &[7; PAGE]));
    }
    assert_eq!((link.arena_free_bytes(), link.in_flight()), (before, 0));
    assert_eq!(read(&file, 0, PAGE), bytes(PAGE));
    Ok(())
}

/// Until the buffers of dropped requests are back.
fn settles<L: Made>(link: &L, free: usize) {
    for _ in 0..5000 {
        if link.arena_free_bytes() == free && link.in_flight() == 0 {
            return;
        }
        let _ = link.turn(Wait::No);
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!(
        "{} of {free} bytes are free, {} in flight",
        link.arena_free_bytes(),
        link.in_flight()
    );
}

pub(crate) fn a_future_dropped_under_way_gives_its_memory_back<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", 64 * PAGE));
    let free = link.arena_free_bytes();
    for mode in [Mode::Kernel, Mode::Cached, Mode::Direct] {
        if bench.gives(mode).is_err() {
            continue;
        }
        let file = open(&link, &path, mode);
        let dropped = async {
            for page in 0..40 {
                let mut read = file.read_at(page * 4096, buffer(&link, &[0; PAGE]));
                assert!(once(&mut read).await.is_none());
            }
        };
        link.block_on(dropped).unwrap();
        settles(&link, free);
        assert_eq!(read(&file, 4096, PAGE), bytes(64 * PAGE)[PAGE..2 * PAGE]);
    }
    Ok(())
}

pub(crate) fn futures_dropped_in_any_order<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link_of_slots(8), bench.file("one", 64 * PAGE));
    let free = link.arena_free_bytes();
    let file = open(&link, &path, Mode::Kernel);
    let mixed = async {
        let mut kept = Vec::new();
        for round in 0..50_u64 {
            let mut read = file.read_at(round * 4096, buffer(&link, &[0; PAGE]));
            let ended = once(&mut read).await;
            match (ended, round % 3) {
                (Some(ended), _) => assert_eq!(ended.unwrap().bytes, PAGE),
                (None, 0) => kept.push((round, read)),
                (None, _) => drop(read),
            }
        }
        kept.reverse();
        // Together: one that has begun keeps its slot until it is looked at.
        let (pages, reads): (Vec<_>, Vec<_>) = kept.into_iter().unzip();
        for (page, done) in pages.into_iter().zip(join_all(reads).await) {
            assert_eq!(
                done.unwrap().buffer[..],
                bytes(64 * PAGE)[page as usize * PAGE..][..PAGE]
            );
        }
    };
    link.block_on(mixed).unwrap();
    settles(&link, free);
    Ok(())
}

pub(crate) fn a_status_word_moves<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    for mode in [Mode::Kernel, Mode::Cached] {
        let file = open(&link, &path, mode);
        let word = StatusWord::new();
        file.read_at(0, buffer(&link, &[0; PAGE]))
            .status(word.clone())
            .wait()
            .unwrap();
        assert_eq!(word.get(), Status::Done(PAGE as u32), "{mode:?}");
    }
    Ok(())
}

pub(crate) fn a_status_word_tells_of_a_failure<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    let file = File::open(&link, &path).wait().unwrap();
    let (refused, cancelled) = (StatusWord::new(), StatusWord::new());
    let failed = file
        .write_at(0, buffer(&link, &[0; PAGE]))
        .status(refused.clone())
        .wait();
    assert!(failed.is_err());
    assert_eq!(refused.get(), Status::Failed(baio::Errno::EBADF));
    let mut read = file.read_at(0, buffer(&link, &[0; PAGE])).status(cancelled.clone());
    read.cancel();
    assert!(read.wait().is_err());
    assert_eq!(cancelled.get(), Status::Failed(baio::Errno::ECANCELED));
    Ok(())
}

pub(crate) fn an_operation_dropped_halfway_opens_nothing<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    let open_files = || std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let count = || {
        open_files()
            .filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == path))
            .count()
    };
    let halfway = async {
        for _ in 0..20 {
            let mut opening = File::open(&link, &path);
            let _ = once(&mut opening).await;
        }
    };
    link.block_on(halfway).unwrap();
    for _ in 0..5000 {
        if count() == 0 {
            assert_eq!(read(&File::open(&link, &path).wait().unwrap(), 0, PAGE), bytes(PAGE));
            return Ok(());
        }
        let _ = link.backend().wait();
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{} are still open", count());
}

pub(crate) fn an_ended_request_is_not_polled_again<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    let file = open(&link, &path, Mode::Kernel);
    let twice = async {
        let mut read = file.read_at(0, buffer(&link, &[0; PAGE]));
        assert_eq!((&mut read).await.unwrap().bytes, PAGE);
        let again: Result<_> = (&mut read).await.map_err(Error::from);
        again.unwrap_err()
    };
    let error = link.block_on(twice).unwrap();
    assert!(matches!(error.fault, Fault::Stale), "{error}");
    write(&file, 0, &[1; 4]);
    Ok(())
}
