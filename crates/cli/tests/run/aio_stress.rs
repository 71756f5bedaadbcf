//! Promise: `baio aio-stress` takes the letters of aio-stress 0.21 and prints its lines, word for word, so that scripts that
//! read them go on working.

use crate::support::{Done, Place};

/// The figures of a line replaced by `#`, so that its words can be compared.
fn words(line: &str) -> String {
    let mut words = String::new();
    for character in line.chars() {
        if !character.is_ascii_digit() && character != '.' {
            words.push(character);
        } else if !words.ends_with('#') {
            words.push('#');
        }
    }
    words
}

fn lines(done: &Done) -> Vec<String> {
    done.errors().lines().map(str::to_owned).collect()
}

#[test]
fn the_lines_of_a_run_with_everything_on() {
    let place = Place::new();
    let done = place.baio("aio-stress -s 2 -r 64 -d 16 -O -l -L a").succeeds();
    let said = lines(&done);
    assert_eq!(
        said[..3],
        [
            "file size 2MB, record size 64KB, depth 16, I/O per iteration 8",
            "max io_submit 8, buffer alignment set to 4KB",
            "threads 1 files 1 contexts 1 context offset 2MB verification off",
        ]
    );
    let mut expected = Vec::new();
    for stage in ["write", "read", "random write", "random read"] {
        let spread = "\t # < # # < # # < # # < # # < # # < #";
        expected.extend([
            "latency min # avg # max #".to_owned(),
            spread.to_owned(),
            "completion latency min # avg # max #".to_owned(),
            spread.to_owned(),
            format!("{stage} on a (# MB/s) # MB in #s"),
            format!("thread # {stage} totals (# MB/s) # MB in #s"),
        ]);
    }
    let found: Vec<String> = said[3..].iter().map(|line| words(line)).collect();
    assert_eq!(found, expected);
    assert!(
        said.iter()
            .filter(|line| line.contains(" on a "))
            .all(|line| line.contains(") 2.00 MB in "))
    );
    assert_eq!(done.out(), b"Running single thread version \n");
    assert_eq!(place.read("a").len(), 2 << 20);
}

#[test]
fn threads_are_told_together_and_files_are_cleaned_up() {
    let place = Place::new();
    let done = place
        .baio("aio-stress -s 1 -r 16 -t 2 -x -u -v -m shm -o 3 -o 0 a b")
        .succeeds();
    let found: Vec<String> = lines(&done).iter().map(|line| words(line)).collect();
    let stages = |stage: &str| {
        vec![
            format!("{stage} on a (# MB/s) # MB in #s"),
            format!("thread # {stage} totals (# MB/s) # MB in #s"),
            format!("{stage} on b (# MB/s) # MB in #s"),
            format!("thread # {stage} totals (# MB/s) # MB in #s"),
            format!("{stage} throughput (# MB/s) # MB in #s"),
        ]
    };
    let opening = [
        "using ipc shm",
        "adding stage random read",
        "adding stage write",
        "starting with write",
        "file size #MB, record size #KB, depth #, I/O per iteration #",
        "max io_submit #, buffer alignment set to #KB",
        "threads # files # contexts # context offset #MB verification on",
        "baio: aio-stress: writing # MiB of a",
        "baio: aio-stress: writing # MiB of b",
    ];
    let expected: Vec<String> = opening
        .map(str::to_owned)
        .into_iter()
        .chain(stages("write"))
        .chain(stages("random read"))
        .collect();
    assert_eq!(found, expected);
    let out = String::from_utf8_lossy(done.out()).into_owned();
    assert_eq!(
        out,
        "Running multi thread version num_threads:2\nCleaning up file a \nCleaning up file b \n"
    );
    assert!(!place.path("a").exists() && !place.path("b").exists());
}

#[test]
fn with_stonewalling_the_least_transfer_is_told() {
    let place = Place::new();
    let done = place.baio("aio-stress -s 1 -r 4 -t 2 -o 3 a b").succeeds();
    let last = lines(&done).pop().unwrap();
    assert_eq!(
        words(&last),
        "random read throughput (# MB/s) # MB in #s min transfer #MB"
    );
}

#[test]
fn the_programs_own_corrections() {
    let place = Place::new();
    let done = place.baio("aio-stress -s 1 -d 4 -t 9 -o 1 a").succeeds();
    let said = lines(&done);
    assert!(said.contains(&"dropping io_iter to 4".to_owned()), "{said:?}");
    assert!(
        said.contains(&"dropping thread count to the number of contexts 1".to_owned()),
        "{said:?}"
    );
    let done = place.baio("aio-stress -s 1 -b 3 -o 1 a").succeeds();
    assert!(lines(&done).contains(&"max io_submit 3, buffer alignment set to 4KB".to_owned()));
    assert!(lines(&done).contains(&"dropping io_iter to 3".to_owned()));
}

#[test]
fn contexts_are_streams_inside_one_another() {
    let place = Place::new();
    let done = place.baio("aio-stress -s 4 -r 64 -c 2 -C 1 -o 3 -O a").succeeds();
    let on_a: Vec<String> = lines(&done)
        .into_iter()
        .filter(|line| line.contains(" on a "))
        .collect();
    assert_eq!(on_a.len(), 2);
    assert!(
        on_a[0].contains(") 4.00 MB in ") && on_a[1].contains(") 2.00 MB in "),
        "{on_a:?}"
    );
}

#[test]
fn durable_writes_and_no_sync() {
    let place = Place::new();
    let synced = |line: &str| {
        let told = place.baio(line).succeeds().json();
        told["parts"][0]["sync_seconds"].as_f64().unwrap() > 0.0
    };
    assert!(synced("aio-stress -s 1 -S -o 2 a --json"));
    assert!(!synced("aio-stress -s 1 -n -o 2 a --json"));
}

#[test]
fn what_was_written_is_verified() {
    let place = Place::new();
    let told = place.baio("aio-stress -s 1 -r 64 -v a --json").succeeds().json();
    assert_eq!(told["verified"], 32, "sixteen records in order and sixteen at random");
    assert_eq!(told["unverified"], 0);
    let mut bytes = place.read("a");
    bytes[70_000] ^= 1;
    place.write("a", &bytes);
    let error = place
        .baio("aio-stress -s 1 -r 64 -v -o 1 a --json")
        .fails_with(3)
        .error();
    assert_eq!(error["offset"], 70_000);
}
