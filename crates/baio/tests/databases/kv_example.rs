//! The example of a key-value store does what it says: what it acknowledged is there after SIGKILL at any moment, also in the middle of
//! beginning its log anew.

#[path = "../../examples/kv.rs"]
#[allow(dead_code, reason = "its command line is run as a program")]
mod kv;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use baio::{Access, CreateOptions, FormatOptions, Link, Remote};
use kv::Store;

use crate::child::{self, TestName};

const THREADS: u64 = 4;
const KEYS: u64 = 16;

fn volume(dir: &Path) -> std::path::PathBuf {
    let path = dir.join("volume.img");
    let format = FormatOptions {
        size_bytes: Some(16 << 20),
        ..FormatOptions::default()
    };
    baio::format(&path, &format).unwrap();
    let link = Remote::open(&path).unwrap();
    link.create_segment("kv", &CreateOptions::of_size(4 << 20))
        .wait()
        .unwrap();
    link.close().unwrap();
    path
}

/// Each thread puts its own keys in turn, with longer values than the log has space for, and tells what is safe.
fn work(path: &Path) {
    let link = Remote::open(path).unwrap();
    let segment = link.open_segment("kv", Access::Write).wait().unwrap();
    let store = Arc::new(Store::open(&segment).unwrap());
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let store = Arc::clone(&store);
            std::thread::spawn(move || {
                let key = |number: u64| format!("{thread} {}", number % KEYS);
                let first = (0..KEYS).filter_map(|key_of| store.get(key(key_of).as_bytes()));
                let number_of = |value: Vec<u8>| u64::from_le_bytes(value[..8].try_into().unwrap());
                let first = first.map(number_of).max().map_or(0, |number| number + 1);
                for number in first.. {
                    let value = number.to_le_bytes().repeat(500);
                    store.put(key(number).as_bytes(), &value).unwrap();
                    std::io::stderr()
                        .write_all(format!("{thread} {number}\n").as_bytes())
                        .unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn what_was_put_survives_sigkill() {
    if let Some(path) = child::given() {
        return work(&path);
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = volume(dir.path());
    let link = Remote::open(&path).unwrap();
    drop(Store::open(&link.open_segment("kv", Access::Write).wait().unwrap()).unwrap());
    link.close().unwrap();
    let mut safe: BTreeMap<u64, u64> = BTreeMap::new();
    for round in 0..6 {
        let after = Duration::from_millis(100 + round * 70);
        let told = child::told_until_killed(TestName::of(what_was_put_survives_sigkill), &path, after);
        safe.extend(told.into_iter().map(<(u64, u64)>::from));
        let link = Remote::open(&path).unwrap();
        let store = Store::open(&link.open_segment("kv", Access::Write).wait().unwrap()).unwrap();
        for (&thread, &last) in &safe {
            for number in (last + 1).saturating_sub(KEYS)..=last {
                let key = format!("{thread} {}", number % KEYS);
                let value = store.get(key.as_bytes()).unwrap();
                let found = u64::from_le_bytes(value[..8].try_into().unwrap());
                // The one after the last may be there: it was on its way.
                assert!(
                    found == number || found == number + KEYS && found == last + 1,
                    "{key}: {found}"
                );
                assert_eq!(value, found.to_le_bytes().repeat(500));
            }
        }
        drop(store);
        link.close().unwrap();
    }
}

#[test]
fn the_program_puts_gets_and_deletes() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = volume(dir.path());
    let run = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        kv::run(path.to_str().unwrap(), &words)
    };
    assert!(run(&["get", "name"]).is_err());
    assert_eq!(run(&["put", "name", "Ada"]).unwrap(), "safe");
    assert_eq!(run(&["get", "name"]).unwrap(), "Ada");
    run(&["delete", "name"]).unwrap();
    assert!(run(&["get", "name"]).is_err());
}
