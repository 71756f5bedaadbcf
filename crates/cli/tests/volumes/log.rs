//! Promise: `baio log` shows what a durable log holds, as a file and as a segment, also beside its owner; it names rot with its
//! place, says what is wrong where there is no log to show, and changes no byte whatever the bytes are.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use baio::{Access, Link, LogOptions, Remote};
use serde_json::{Value, json};

use crate::image_text::from_text;
use crate::support::confined::Confined;
use crate::support::server::PATIENCE;
use crate::support::{self, BAIO, Place, Unchanged, has, random_bytes};

/// Both copies of a log's header lie there.
const HEADERS: [usize; 2] = [0, 4096];
/// Behind them lie the batches.
const DATA: usize = 8192;

/// A log that the storage's tests keep (`crates/storage/tests/log/format.rs`): its bytes.
fn image(name: &str) -> Vec<u8> {
    let path = format!(
        "{}/../storage/tests/log_images/version-1-{name}.hex",
        env!("CARGO_MANIFEST_DIR")
    );
    from_text(&std::fs::read_to_string(path).unwrap())
}

/// Where the batches of an image begin, and their LSNs.
fn batches(bytes: &[u8]) -> Vec<(usize, u64)> {
    let blocks = (DATA..bytes.len()).step_by(512);
    let begins = blocks.filter(|at| bytes[*at..].starts_with(b"BLOG"));
    let lsn = |at: usize| u64::from_le_bytes(bytes[at + 24..at + 32].try_into().unwrap());
    begins.map(|at| (at, lsn(at))).collect()
}

fn column<'a>(shown: &'a Value, key: &str) -> Vec<&'a Value> {
    let records = shown["records"].as_array().unwrap();
    records.iter().map(|record| &record[key]).collect()
}

#[test]
fn a_log_is_shown_as_a_file_and_as_a_segment() {
    let place = Place::new();
    place.volume("8M", "40K");
    let group = [900, 900, 900, 900];
    for (name, is_clean, sizes) in [
        ("closed", true, [&[0, 100, 200, 300], &group[..]].concat()),
        ("large-blocks", true, [&[0, 100, 200, 300], &group[..]].concat()),
        ("killed", false, [&[0, 100, 200, 300], &group[..], &[50, 60]].concat()),
        ("wrapped", false, vec![1500; 5]),
    ] {
        place.write(name, &image(name));
        place.baio(&format!("dd if={name} of=vol#a bs=4K")).succeeds();
        let options = "--count 100 --payload hex --json";
        let of_a_file = place.baio(&format!("log {name} {options}")).succeeds().json();
        let of_a_segment = place.baio(&format!("log vol#a {options}")).succeeds().json();
        assert_eq!(of_a_file, of_a_segment, "{name}");
        let shown = of_a_file;
        assert_eq!(column(&shown, "bytes"), sizes, "{name}");
        assert_eq!(shown["clean"], is_clean, "{name}");
        has(&shown, json!({"rot": null, "next_lsn": null}));
        let lsns = column(&shown, "lsn");
        assert!(lsns.iter().all(|lsn| lsn.as_u64() < shown["durable_lsn"].as_u64()));
        let text = place.text(&format!("log {name}"));
        let says = text.contains("what is shown may be gone already");
        assert_eq!(says, !is_clean, "{name}: {text}");
    }
}

#[test]
fn records_are_shown_from_an_lsn_on_and_so_many() {
    let place = Place::new();
    place.write("log", &image("closed"));
    let all = place.json("log log");
    let lsns: Vec<u64> = column(&all, "lsn").iter().map(|lsn| lsn.as_u64().unwrap()).collect();
    assert_eq!(lsns.len(), 8);
    for (from, count) in [(0, 3), (2, 1), (5, 0), (6, 2), (7, 9)] {
        let line = format!("log log --from {} --count {count}", lsns[from]);
        let some = place.json(&line);
        let end = (from + count).min(lsns.len());
        assert_eq!(column(&some, "lsn"), lsns[from..end], "{line}");
        assert_eq!(some["next_lsn"].as_u64(), lsns.get(end).copied(), "{line}");
    }
    let behind = place.json("log log --from 1000000");
    assert_eq!(column(&behind, "lsn"), Vec::<&Value>::new());
    let text = place.baio("log log --from 1000000").succeeds();
    assert!(text.text().ends_with("\nno record from LSN 1000000 on\n"));
    let error = place.error("log log --from 8", 1);
    assert_eq!(error["code"], "ENODATA");
    assert!(error["need"].as_str().unwrap().contains("8192"), "{error}");
    // What a payload holds does not drive the terminal.
    let text = place.baio("log log --payload text").succeeds();
    assert!(text.out().iter().all(|byte| *byte == b'\n' || !byte.is_ascii_control()));
    assert!(text.text().contains("BIPW^elsz"));
}

#[test]
fn rot_is_named_and_what_lies_behind_it_is_shown() {
    let place = Place::new();
    let mut bytes = image("closed");
    let batches = batches(&bytes);
    let ((at, lsn), (_, next)) = (batches[1], batches[2]);
    bytes[at + 70] ^= 1;
    place.write("log", &bytes);
    let unchanged = Unchanged::watch(&place.path("log"));
    let shown = place.baio("log log --json").fails_with(3).json();
    unchanged.check("log");
    assert_eq!(shown["rot"], serde_json::json!({"lsn": lsn, "offset": at}));
    let hole = serde_json::json!([{"from_lsn": lsn, "to_lsn": next, "offset": at}]);
    assert_eq!(shown["holes"], hole);
    assert_eq!(column(&shown, "bytes"), [0, 200, 300, 900, 900, 900, 900]);
    let text = place.baio("log log").fails_with(3);
    let text = text.text();
    assert!(text.contains(&format!("LSN {lsn}, byte {at}")), "{text}");
    assert!(text.contains("LogOptions::salvage"), "{text}");
}

#[test]
fn what_is_no_log_to_show_is_told_with_need_and_cure() {
    let place = Place::new();
    place.volume("8M", "40K");
    let sealed = |change: &dyn Fn(&mut [u8])| {
        let mut bytes = image("closed");
        for at in HEADERS {
            change(&mut bytes[at..at + 508]);
            let checksum = crc32c::crc32c(&bytes[at..at + 508]);
            bytes[at + 508..at + 512].copy_from_slice(&checksum.to_le_bytes());
        }
        bytes
    };
    place.write("empty", b"");
    place.write("zeroes", &[0; 40960]);
    place.write("newer", &sealed(&|header| header[8] = 2));
    place.write("cut", &image("closed")[..20000]);
    let mut lost = image("closed");
    HEADERS.iter().for_each(|at| lost[at + 40] ^= 1);
    place.write("lost", &lost);
    for (target, code, word) in [
        ("empty", "ENOTLOG", "no log"),
        ("zeroes", "ENOTLOG", "no log"),
        ("vol", "ENOTLOG", "no log"),
        ("vol#a", "ENOTLOG", "no log"),
        ("newer", "EVERSION", "version 2"),
        ("cut", "EIO", "40960"),
        ("lost", "ECORRUPT", "header"),
        ("missing", "ENOENT", "No such file"),
        ("missing#a", "ENOENT", "No such file"),
        ("vol#b", "ENOENT", "no such segment"),
        (".", "EISDIR", "directory"),
        ("/dev/null", "EINVAL", "Invalid"),
    ] {
        let error = place.error(&format!("log {target}"), 1);
        assert_eq!(error["code"], code, "{target}: {error}");
        assert!(error["message"].as_str().unwrap().contains(word), "{target}: {error}");
    }
}

#[test]
fn a_log_that_may_not_be_read_is_refused() {
    let place = Place::new();
    place.write("log", &image("closed"));
    let path = place.path("log");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    // Else it is the way that is closed, which looks the same.
    std::fs::set_permissions(place.path("."), std::fs::Permissions::from_mode(0o755)).unwrap();
    let words = ["log", path.to_str().unwrap(), "--json"];
    let done = support::Done(Confined::new().run(BAIO, &words));
    assert_eq!(done.fails_with(1).error()["code"], "EACCES");
}

#[test]
fn nothing_is_changed() {
    let place = Place::new();
    place.volume("8M", "40K");
    for name in ["closed", "killed"] {
        place.write(name, &image(name));
        place.baio(&format!("dd if={name} of=vol#a bs=4K")).succeeds();
        let (file, volume) = (
            Unchanged::watch(&place.path(name)),
            Unchanged::watch(&place.path("vol")),
        );
        let of_a_file = format!("log {name} --payload hex");
        for line in [&of_a_file, "log vol#a", "log vol#a --from 9280 --json"] {
            place.baio(line).succeeds();
            file.check(line);
            volume.check(line);
        }
    }
}

/// Raised also when a look goes wrong, or the test would wait for who appends.
struct RaiseAtEnd<'a>(&'a AtomicBool);

impl Drop for RaiseAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Appends and truncates as fast as it goes, while others look: nothing seems rotten that is not.
#[test]
fn beside_its_owner_a_log_is_shown_as_it_was() {
    let place = Place::new();
    place.volume("64M", "32M");
    let volume = Remote::open(place.path("vol")).unwrap();
    let options = LogOptions {
        window: 16,
        ..LogOptions::default()
    };
    let segment = volume.open_segment("a", Access::Write).wait().unwrap();
    let log = segment.create_log(&options).wait().unwrap();
    let first = log.append(b"the first").unwrap();
    log.durable(first).wait().unwrap();
    let shown = place.json("log vol#a --payload text");
    assert_eq!(shown["in_use"]["pid"], std::process::id());
    assert_eq!(
        (&shown["clean"], &shown["records"][0]["lsn"]),
        (&false.into(), &first.0.into())
    );
    assert_eq!(shown["records"][0]["payload"], "the first");
    let text = place.text("log vol#a");
    assert!(text.contains("what is shown may be gone already"), "{text}");
    let is_over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = RaiseAtEnd(is_over);
        let appending = scope.spawn(|| {
            let (record, mut last) = (vec![0x5a; 100_000], first);
            while !is_over.load(Ordering::Relaxed) {
                let durable = last;
                for _ in 0..40 {
                    last = log.append(&record).unwrap();
                }
                log.durable(durable).wait().unwrap();
                log.truncate(durable).wait().unwrap();
            }
            last
        });
        let mut durable = 0;
        // Some show it changing each time; at last one does not.
        let since = Instant::now();
        let mut looks = 0;
        while looks < 10 || durable <= first.0 && since.elapsed() < PATIENCE {
            looks += 1;
            let done = place.baio("log vol#a --json");
            // One that changes each time is told as that.
            if done.status() == 1 {
                assert_eq!(done.error()["code"], "EAGAIN");
                println!("it changed each time");
                continue;
            }
            let shown = done.succeeds().json();
            let now = shown["durable_lsn"].as_u64().unwrap();
            assert!(now >= durable, "{shown}");
            durable = now;
        }
        drop(over);
        assert!(durable > first.0, "none was shown");
        assert!(appending.join().unwrap().0 > first.0);
    });
    log.close().wait().unwrap();
    drop((log, segment));
    volume.close().unwrap();
    let shown = place.json("log vol#a");
    assert_eq!((&shown["clean"], shown.get("in_use")), (&true.into(), None));
}

#[test]
fn whatever_the_bytes_are_it_ends_well_and_changes_none() {
    let place = Place::new();
    let noise = random_bytes(64 << 10, 14);
    let mut noise = noise
        .chunks(8)
        .map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap()) as usize);
    let mut noise = || noise.next().unwrap();
    let mut statuses = [0; 4];
    for round in 0..300 {
        let mut bytes = image(["closed", "killed", "wrapped", "large-blocks"][round % 4]);
        for _ in 0..=noise() % 4 {
            // Mostly the batches: with both headers gone there is nothing to look at.
            let at = match noise() % 4 {
                0 => HEADERS[round / 4 % 2] + 8 + noise() % 124,
                _ => DATA + noise() % (bytes.len() - DATA),
            };
            let len = (noise() % 9).min(bytes.len() - at);
            bytes[at..at + len].iter_mut().for_each(|byte| *byte = noise() as u8);
        }
        if round % 2 == 0 {
            for at in HEADERS {
                let checksum = crc32c::crc32c(&bytes[at..at + 508]);
                bytes[at + 508..at + 512].copy_from_slice(&checksum.to_le_bytes());
            }
        }
        place.write("log", &bytes);
        let unchanged = Unchanged::watch(&place.path("log"));
        let done = place.baio("log log --count 1000 --payload text --json");
        let errors = done.errors();
        assert!(
            errors.is_empty() && [0, 1, 3].contains(&done.status()),
            "round {round}: {errors}"
        );
        done.json();
        unchanged.check("log");
        statuses[done.status() as usize] += 1;
    }
    assert!(statuses[0] > 0 && statuses[1] > 0 && statuses[3] > 0, "{statuses:?}");
}
