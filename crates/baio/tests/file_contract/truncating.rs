//! Files that become shorter: as they are opened, and from outside under whoever reads.

use baio::{Mode, OpenOptions};
use futures_util::future::join_all;

use crate::rig::{Bench, Case, Made, PAGE, buffer, bytes, open, read, size, try_read, write};

pub(crate) fn an_open_cuts_it<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.file("one", 5000);
    let file = OpenOptions::new().write().truncate().open(&link, &path).wait().unwrap();
    assert_eq!((size(&file), read(&file, 0, 10)), (0, vec![]));
    write(&file, 0, b"new");
    assert_eq!(std::fs::read(path).unwrap(), b"new");
    Ok(())
}

pub(crate) fn an_open_without_it_keeps_the_bytes<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.file("one", 5000);
    drop(OpenOptions::new().write().create().open(&link, &path).wait().unwrap());
    assert_eq!(std::fs::read(path).unwrap(), bytes(5000));
    Ok(())
}

fn sees_a_cut<L: Made>(bench: &Bench<L>, mode: Mode) -> Case {
    bench.gives(mode)?;
    let link = bench.link();
    let path = bench.file("one", 16 * PAGE);
    let file = open(&link, &path, mode);
    assert_eq!(read(&file, 8 * 4096, PAGE).len(), PAGE);
    cut(&path, 8 * 4096 + 100);
    assert_eq!(read(&file, 8 * 4096, PAGE), bytes(16 * PAGE)[8 * PAGE..8 * PAGE + 100]);
    assert_eq!(read(&file, 12 * 4096, PAGE), []);
    assert_eq!(size(&file), 8 * 4096 + 100);
    let failed = file
        .read_exact_at(8 * 4096, buffer(&link, &[0; PAGE]))
        .wait()
        .unwrap_err();
    assert_eq!((failed.bytes_done, failed.buffer.is_some()), (100, true));
    Ok(())
}

fn cut(path: &std::path::Path, len: u64) {
    let outside = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    outside.set_len(len).unwrap();
}

pub(crate) fn a_reader_sees_a_cut_from_outside<L: Made>(bench: &Bench<L>) -> Case {
    sees_a_cut(bench, Mode::Kernel)
}

pub(crate) fn a_direct_reader_sees_a_cut_from_outside<L: Made>(bench: &Bench<L>) -> Case {
    sees_a_cut(bench, Mode::Direct)
}

/// The cache need not know of it; but nothing hangs, and no byte is made up: what comes is what was there, zeros, or a failure.
pub(crate) fn a_cached_reader_lives_through_a_cut_from_outside<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.file("one", 16 * PAGE);
    let known = bytes(16 * PAGE);
    let file = open(&link, &path, Mode::Cached);
    assert_eq!(read(&file, 0, PAGE), known[..PAGE]);
    cut(&path, 4 * 4096);
    for page in 0..16_usize {
        let at = page * PAGE;
        match try_read(&file, at as u64, PAGE) {
            Ok(read) if read == known[at..at + PAGE] => {}
            Ok(read) => {
                assert!(page >= 4, "page {page} was there");
                assert!(read.iter().all(|&byte| byte == 0), "page {page}");
            }
            Err(error) => assert!(page >= 4, "page {page}: {error}"),
        }
    }
    // The link lives on.
    let other = bench.file("other", PAGE);
    assert_eq!(read(&open(&link, &other, Mode::Cached), 0, PAGE), bytes(PAGE));
    Ok(())
}

pub(crate) fn joined_reads_live_through_cuts<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.file("one", 64 * PAGE);
    let known = bytes(64 * PAGE);
    let file = open(&link, &path, Mode::Kernel);
    for len in [50, 3, 64, 20, 0] {
        let reads = (0..32_u64).map(|page| file.read_at(page * 2 * 4096, buffer(&link, &[0xee; PAGE])));
        let together = async {
            let mut reads: Vec<_> = reads.collect();
            for read in &mut reads {
                if let Some(ended) = crate::rig::once(read).await {
                    panic!("it ended as it began: {ended:?}");
                }
            }
            cut(&path, len * 4096);
            join_all(reads).await
        };
        for (nth, ended) in link.block_on(together).unwrap().into_iter().enumerate() {
            let (done, at) = (ended.unwrap(), nth * 2 * PAGE);
            let read = &done.buffer[..done.bytes];
            // What was there, or, of what a cut has taken and another gave back, zeros.
            let is_there = *read == known[at..at + read.len()];
            assert!(is_there || read.iter().all(|&byte| byte == 0), "page {}", nth * 2);
        }
    }
    Ok(())
}

pub(crate) fn a_write_after_a_cut_grows_it_again<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.file("one", 3 * PAGE);
    let file = open(&link, &path, Mode::Kernel);
    cut(&path, 10);
    write(&file, 4096, &[8; 4]);
    let known = [bytes(10), vec![0; 4086], vec![8; 4]].concat();
    assert_eq!(read(&file, 0, 3 * PAGE), known);
    Ok(())
}
