//! What is left when a link is closed or gone.

use baio::{CacheError, Durability, Fault, File, Mode};
use futures_util::future::join_all;

use crate::rig::{Bench, Case, Made, PAGE, buffer, bytes, once, open, read, write};

pub(crate) fn a_file_of_a_closed_link_is_stale<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    let file = open(&link, &path, Mode::Kernel);
    let memory = buffer(&link, &[1; PAGE]);
    link.clone().close().unwrap();
    assert!(link.buffer(10).is_err());
    assert!(file.size().wait().is_err());
    assert!(File::open(&link, &path).wait().is_err());
    assert!(file.sync(Durability::Data).wait().is_err());
    let mut polled = file.write_at(0, memory);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let ended = std::future::Future::poll(std::pin::Pin::new(&mut polled), &mut context);
    let std::task::Poll::Ready(Err(failed)) = ended else {
        panic!("it is closed: {ended:?}")
    };
    assert_eq!(
        failed.buffer.map(|back| back.len()),
        Some(PAGE),
        "the memory comes back: {}",
        failed.error
    );
    assert!(link.close().is_ok(), "closing twice closes once");
    assert_eq!(std::fs::read(path).unwrap(), bytes(PAGE));
    Ok(())
}

pub(crate) fn futures_end_when_the_link_is_closed<L: Made>(bench: &Bench<L>) -> Case {
    for mode in [Mode::Kernel, Mode::Cached, Mode::Direct] {
        if bench.gives(mode).is_err() {
            continue;
        }
        let (link, path) = (bench.link(), bench.file("one", 64 * PAGE));
        let file = open(&link, &path, mode);
        let mut reads: Vec<_> = (0..30)
            .map(|page| file.read_at(page * 4096, buffer(&link, &[0; PAGE])))
            .collect();
        let begun = async {
            for read in &mut reads[..20] {
                assert!(once(read).await.is_none());
            }
        };
        link.block_on(begun).unwrap();
        link.clone().close().unwrap();
        // Nobody can drive it any more, and nobody need: each has its end.
        let ends = futures_util::FutureExt::now_or_never(join_all(reads)).expect("they end");
        for (nth, ended) in ends.into_iter().enumerate() {
            match ended {
                Ok(done) => assert_eq!(done.buffer[..], bytes(64 * PAGE)[nth * PAGE..][..PAGE], "{mode:?}"),
                Err(failed) => {
                    let code = failed.error.code();
                    assert!(
                        matches!(code, "ESTALE" | "EPIPE" | "EDEADLK" | "ECANCELED"),
                        "{mode:?}: {failed}"
                    );
                }
            }
        }
    }
    Ok(())
}

pub(crate) fn an_operation_ends_when_the_link_is_closed<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    let file = open(&link, &path, Mode::Kernel);
    let mut opening = File::open(&link, &path);
    let (measure, unasked) = (file.size(), File::open(&link, &path));
    link.block_on(async { once(&mut opening).await.map(drop) }).unwrap();
    link.clone().close().unwrap();
    drop(futures_util::FutureExt::now_or_never(opening).expect("an end"));
    assert!(futures_util::FutureExt::now_or_never(measure).expect("an end").is_err());
    assert!(unasked.wait().is_err());
    Ok(())
}

pub(crate) fn cached_writes_are_kept_by_a_close<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", 64 * PAGE));
    let file = open(&link, &path, Mode::Cached);
    for page in 0..64_u64 {
        write(&file, page * 4096, &[page as u8 + 1; PAGE]);
    }
    link.close().unwrap();
    let there = std::fs::read(path).unwrap();
    for page in 0..64_usize {
        assert_eq!(there[page * PAGE..][..PAGE], [page as u8 + 1; PAGE], "page {page}");
    }
    drop(file);
    Ok(())
}

/// It keeps the link, whoever else has let it go.
pub(crate) fn a_file_outlives_its_link<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    let file = open(&link, &path, Mode::Kernel);
    drop(link);
    assert_eq!(read(&file, 0, PAGE), bytes(PAGE));
    let pin = open(file.link(), &path, Mode::Cached).pin(0).wait();
    assert!(
        pin.as_ref().is_ok_and(|pin| pin.page() == 0),
        "{:?}",
        pin.map_err(|error| matches!(error.fault, Fault::Cache(CacheError::NoObject)))
    );
    Ok(())
}

/// What opens a file may wait for ever: nobody who closes waits with it.
pub(crate) fn a_close_waits_for_no_opening<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.path("pipe"));
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let mut opening = File::open(&link, &path);
    let begun = link.block_on(async { once(&mut opening).await.is_none() }).unwrap();
    assert!(begun);
    let (told, closed) = std::sync::mpsc::channel();
    let writer = path.clone();
    let watch = std::thread::spawn(move || {
        let is_late = closed.recv_timeout(std::time::Duration::from_secs(10)).is_err();
        // Lets go of whoever waits for a writer.
        drop(std::fs::OpenOptions::new().write(true).read(true).open(writer));
        is_late
    });
    link.close().unwrap();
    let _ = told.send(());
    assert!(!watch.join().unwrap(), "the close has waited for a file to be opened");
    assert!(futures_util::FutureExt::now_or_never(opening).expect("an end").is_err());
    Ok(())
}
