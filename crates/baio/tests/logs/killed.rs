//! A child appends and is killed at some moment: what it was told to be durable is there, in order and without a gap.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use baio::{Access, Backend, File, Identity, Link, LinkOptions, Log, LogOptions, Lsn, Remote};

use crate::child::{self, TestName};
use crate::rig::{Place, Rig, payloads};

const ROUNDS: u64 = 8;

fn options() -> LogOptions {
    LogOptions {
        batch_bytes_max: 16 << 10,
        ..LogOptions::default()
    }
}

/// Appends numbers, each by one of some threads, and says on stderr which are durable.
fn work(volume: &Path) {
    let as_the_rig = LinkOptions {
        identity: Identity::new(0, 0),
        ..LinkOptions::default()
    };
    let link = Remote::open_with(volume, &as_the_rig).unwrap();
    let segment = link.open_segment("log", Access::Write).wait().unwrap();
    let log = segment.open_log(&options()).wait().unwrap();
    let threads: Vec<_> = (0..4_u8)
        .map(|thread| {
            let log = log.clone();
            std::thread::spawn(move || {
                let mut number = 0_u64;
                loop {
                    let mut record = vec![thread; 9 + (number % 200) as usize];
                    record[1..9].copy_from_slice(&number.to_le_bytes());
                    match log.append_durable(&record).wait() {
                        Ok(lsn) => {
                            let told = format!("{thread} {number} {lsn}\n");
                            std::io::stderr().write_all(told.as_bytes()).unwrap();
                            number += 1;
                        }
                        // Full: the parent looks at all that it holds, so it ends here.
                        Err(_) => std::thread::sleep(Duration::from_secs(60)),
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn what_was_acknowledged_survives_sigkill() {
    if let Some(volume) = child::given() {
        return work(&volume);
    }
    let rig = Rig::new(Place {
        backend: Backend::Auto,
        is_file: false,
        is_far: false,
        block_bytes: 512,
    });
    let mut latest = Lsn(0);
    for round in 0..ROUNDS {
        let link = rig.link::<Remote>();
        drop(rig.opened(&link).create_log(&options()).wait().unwrap());
        link.close().unwrap();
        let told = child::told_until_killed(
            TestName::of(what_was_acknowledged_survives_sigkill),
            &rig.volume,
            Duration::from_millis(3 + round * 17 % 60),
        );
        let link = rig.link::<Remote>();
        let log = rig.opened(&link).open_log(&options()).wait().unwrap();
        assert!(!log.found().was_clean);
        let mut next = [0_u64; 4];
        for payload in payloads(&log) {
            let thread = payload[0] as usize;
            let number = u64::from_le_bytes(payload[1..9].try_into().unwrap());
            assert_eq!(number, next[thread], "in order, without a gap");
            next[thread] += 1;
        }
        for [thread, number, lsn] in told {
            assert!(
                number < next[thread as usize],
                "round {round}: {number} of {thread} was acknowledged"
            );
            latest = latest.max(Lsn(lsn));
        }
        let lsn = log.append_durable(b"after").wait().unwrap();
        assert!(lsn > latest, "no LSN is given twice");
        latest = Lsn(0); // A new log comes next.
        drop(log);
        link.close().unwrap();
    }
}

/// The log of a program that has just been started for the first time, or for another.
fn begin(path: &Path) -> (Remote, Log<Remote>) {
    let link = Remote::new().unwrap();
    let file = File::options().write().create().open(&link, path).wait().unwrap();
    let options = LogOptions {
        file_bytes: 4 << 20,
        ..LogOptions::default()
    };
    let log = file.open_or_create_log(&options).wait().unwrap();
    (link, log)
}

/// Says that it begins, and which records are durable.
fn first_start(path: &Path) {
    let say = |number: u64| std::io::stderr().write_all(format!("{number}\n").as_bytes()).unwrap();
    say(0);
    let (_link, log) = begin(path);
    for number in 1_u64.. {
        log.append_durable(&number.to_le_bytes()).wait().unwrap();
        say(number);
    }
}

#[test]
fn a_program_that_is_killed_at_its_first_start_starts_again() {
    if let Some(path) = child::given() {
        return first_start(&path);
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for round in 0..36 {
        let path = dir.path().join("book");
        // Some are killed twice before they are looked at.
        let mut durable = 0;
        for kill in 0..1 + round % 2 {
            let told = child::told_until_killed(
                TestName::of(a_program_that_is_killed_at_its_first_start_starts_again),
                &path,
                Duration::from_micros(1000 * (round * 7 % 40) + 300 * kill),
            );
            durable += told.into_iter().map(|[number]| number).max().unwrap();
        }
        let (link, log) = begin(&path);
        let found = payloads(&log).len() as u64;
        // One of each run may be there that was on its way.
        assert!(
            (durable..=durable + 2).contains(&found),
            "round {round}: {durable}, {found}"
        );
        drop(log);
        link.close().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_log_that_a_copy_cut_short_is_refused_as_it_is() {
    if child::given().is_some() {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("book");
    let (link, log) = begin(&path);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 4 << 20);
    log.append_durable(b"credit 5").wait().unwrap();
    drop(log);
    link.close().unwrap();
    let whole = std::fs::read(&path).unwrap();
    for left in [3 << 20, 5000, 100] {
        std::fs::write(&path, &whole[..left]).unwrap();
        let link = Remote::new().unwrap();
        let file = File::options().write().open(&link, &path).wait().unwrap();
        let options = LogOptions {
            file_bytes: 4 << 20,
            ..LogOptions::default()
        };
        let refused = file.open_or_create_log(&options).wait().unwrap_err();
        assert!(matches!(refused.code(), "EIO" | "ENOTLOG"), "{refused}");
        drop(file);
        link.close().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), whole[..left]);
    }
}

/// A making that was cut off may have left zeroes of any length.
#[test]
fn zeroes_of_any_length_become_a_log() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for len in [1, 100, 5000, (3 << 20) + 1] {
        let path = dir.path().join(format!("book {len}"));
        std::fs::write(&path, vec![0; len]).unwrap();
        let (link, log) = begin(&path);
        log.append_durable(b"credit 5").wait().unwrap();
        drop(log);
        link.close().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4 << 20);
    }
}
