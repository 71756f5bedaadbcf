//! Promise: `baio stress FILE.fio` runs the common subset of fio's job files, with fio's defaults, and refuses the rest by name and line
//! before anything is made.

#[path = "support/confined.rs"]
mod confined;
mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use confined::Confined;
use serde_json::Value;
use support::{Done, Place, skip};

fn names(told: &Value) -> Vec<String> {
    let jobs = told["jobs"].as_array().unwrap().iter();
    jobs.map(|job| {
        format!(
            "{} {} {}",
            job["name"].as_str().unwrap(),
            job["group"],
            job["part"].as_str().unwrap()
        )
    })
    .collect()
}

#[test]
fn jobs_run_in_groups_and_clones_have_files_of_their_own() {
    let place = Place::new();
    let jobs = "; two groups\n[global]\nbs=8k\nsize=256k\nioengine=psync\n\n[fill]\nrw=write\nfilename=data\nend_fsync=1\n\n\
                [mix]\nstonewall\nrw=randrw\nrwmixread=100\nnumjobs=3\ngroup_reporting\n\n[again]\nrw=randread\nfilename=data\n\n\
                [part]\nstonewall\nfilename=data\nsize=64k\n";
    place.write("two.fio", jobs.as_bytes());
    let told = place.baio("stress two.fio --json").succeeds().json();
    assert_eq!(
        names(&told),
        [
            "fill 0 write",
            "mix 1 read",
            "mix 1 write",
            "again 1 randread",
            "part 2 read"
        ]
    );
    let requests: Vec<u64> = told["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["requests"].as_u64().unwrap())
        .collect();
    assert_eq!(requests, [32, 96, 0, 32, 8], "each block once, of each clone");
    for name in ["data", "mix.0.0", "mix.1.0", "mix.2.0"] {
        assert_eq!(place.read(name).len(), 256 << 10, "{name}");
    }
    let fill = &told["jobs"][0];
    assert_eq!(
        (&fill["mode"], &fill["backend"], &fill["depth"]),
        (&"kernel".into(), &"sync".into(), &1.into()),
        "as fio does where nothing is said"
    );
    assert!(fill["sync_seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(told["jobs"][1]["clones"], 3);
    let told = place.baio("stress two.fio --size 64K --directory .").succeeds();
    let text = String::from_utf8_lossy(told.out()).into_owned();
    assert!(text.contains("mix x3 read") && text.contains("8 requests, "), "{text}");
}

#[test]
fn a_time_is_kept_and_an_end_too() {
    let place = Place::new();
    place.write(
        "t.fio",
        b"[a]\nrw=randwrite\nsize=64k\ntime_based\nruntime=900\n[b]\nrw=randread\nsize=64k\nio_size=128k\n",
    );
    let told = place.baio("stress --job t.fio --runtime 1 --json").succeeds().json();
    let jobs = told["jobs"].as_array().unwrap();
    assert!(
        jobs[0]["seconds"].as_f64().unwrap() >= 1.0 && jobs[0]["requests"].as_u64().unwrap() > 16,
        "{told}"
    );
    assert_eq!(jobs[1]["requests"], 32);
}

#[test]
fn what_does_not_run_is_named_with_its_line_and_nothing_is_made() {
    let place = Place::new();
    for (text, said) in [
        (
            "[a]\nrw=write\nsize=1m\n[b]\nsize=1m\nbssplit=4k/100\n",
            "line 6: the option 'bssplit'",
        ),
        ("[a]\nsize=1m\n\nioengine=null\n", "line 4: ioengine=null"),
        ("[a]\nsize=1m\nrw=rw\n", "line 3: rw=rw"),
        ("rw=read\n", "line 1: the option 'rw' stands in no section"),
        (
            "[a]\nfilename=${NOT_SET_ANYWHERE}\n",
            "line 2: ${NOT_SET_ANYWHERE} is not set",
        ),
        ("[a]\nrw=read\n", "the job [a] of line 1 has no size"),
        (
            "[a]\nrw=write\nsize=1m\n[b]\nrw=read\n",
            "the job [b] of line 4 has no size",
        ),
        ("[a]\nrw=write\nsize=1m\n[b]\nbs=4m\nsize=1m\n", "no room for a request"),
        ("; nothing\n", "it has no job"),
        ("\u{1}\u{2}\u{3}\n", "line 1: "),
    ] {
        place.write("x.fio", text.as_bytes());
        let told = place.baio("stress x.fio").fails_with(2);
        assert!(
            told.errors().contains(said) && told.errors().contains("cure: "),
            "{text}: {}",
            told.errors()
        );
        let files = std::fs::read_dir(place.path("")).unwrap().count();
        assert_eq!(files, 1, "{text}: something was made");
    }
    place.write("x.fio", b"[a]\nsize=64k\n");
    for line in [
        "x.fio --rw write",
        "x.fio --depth 4",
        "f --job x.fio",
        "f --directory .",
    ] {
        let told = place.baio(&format!("stress {line}")).fails_with(2);
        assert!(told.errors().contains("job file"), "{line}: {}", told.errors());
    }
    place.baio("stress missing.fio").fails_with(1);
    assert!(!place.path("missing.fio").exists());
}

#[test]
fn a_segment_may_have_the_ending_of_a_job_file() {
    let place = Place::new();
    place.volume("16M", "1M");
    place.baio("rename vol#a a.fio").succeeds();
    let told = place
        .baio("stress vol#a.fio --rw write --once --json")
        .succeeds()
        .json();
    assert_eq!(told["requests"], 256);
}

/// A device or a volume is written over by a job file no sooner than by anything else.
#[test]
fn nothing_precious_is_written_over_unasked() {
    let place = Place::new();
    place.volume("16M", "1M");
    let watched = support::Unchanged::watch(&place.path("vol"));
    place.write("x.fio", b"[a]\nrw=write\nfilename=vol\nsize=64k\n");
    let error = place.baio("stress x.fio --json").fails_with(1).error();
    assert_eq!(error["code"], "EEXIST");
    watched.check("a job file");
}

/// What exists is as long as it is, whoever reads it: only what is missing is laid out.
#[test]
fn what_exists_is_not_made_longer_to_be_read() {
    let place = Place::new();
    place.volume("16M", "1M");
    place.write("data", &support::random_bytes(5000, 1));
    place.write("empty", b"");
    place.write("a.1.0", b"short");
    for (options, shown, said) in [
        ("filename=data\nsize=64k", "data", "a file of at least 65536 bytes"),
        ("filename=empty\nsize=64k", "empty", "a file of at least 65536 bytes"),
        ("filename=vol\nsize=32m", "vol", "a volume of at least 33554432 bytes"),
        ("numjobs=2\nsize=64k", "a.1.0", "a file of at least 65536 bytes"),
    ] {
        for rw in ["read", "randread"] {
            let watched = support::Unchanged::watch(&place.path(shown));
            let jobs = format!("[new]\nrw=write\nsize=64k\n[a]\nrw={rw}\n{options}\n");
            place.write("x.fio", jobs.as_bytes());
            let told = place.baio("stress x.fio").fails_with(2);
            let errors = told.errors();
            assert!(errors.contains(shown) && errors.contains(said), "{errors}");
            assert!(errors.contains("cure: write a smaller size="), "{errors}");
            watched.check(shown);
            assert!(!place.path("new.0.0").exists(), "{shown}: something was made before");
        }
    }
    place.write("x.fio", b"[a]\nrw=read\nfilename=vol\nsize=1m\n");
    let watched = support::Unchanged::watch(&place.path("vol"));
    place.baio("stress x.fio").succeeds();
    watched.check("reading a part of a volume");
}

/// A file that the job file makes itself is as long as the largest job wants, and one that it writes is as long as it is written.
#[test]
fn a_job_may_make_longer_what_another_of_its_file_has_made() {
    let place = Place::new();
    let jobs = b"[a]\nrw=read\nfilename=x\nsize=12k\n[b]\nrw=read\nbs=64k\nfilename=./x\nsize=128k\n";
    place.write("made.fio", jobs);
    place.baio("stress made.fio").succeeds();
    assert_eq!(place.read("x").len(), 128 << 10);
    place.write("short", &support::random_bytes(5000, 1));
    let jobs = b"[a]\nrw=write\nfilename=short\nsize=64k\n[b]\nstonewall\nrw=read\nfilename=short\nsize=64k\n";
    place.write("written.fio", jobs);
    place.baio("stress written.fio").succeeds();
    assert_eq!(place.read("short").len(), 64 << 10);
}

/// A run that writes little keeps what it does not write: a file is filled up behind its last byte.
#[test]
fn filling_up_begins_behind_what_exists() {
    let place = Place::new();
    let before = support::random_bytes(5000, 1);
    for mode in ["direct", "kernel"] {
        place.write("data", &before);
        let line = format!("stress data --rw write --size 1M --io-size 4K --mode {mode} --request-size");
        place.baio(&format!("{line} 4K")).succeeds();
        let after = place.read("data");
        assert_eq!(after.len(), 1 << 20);
        support::assert_same(&before[4096..], &after[4096..5000], "what lay behind the only request");
    }
}

/// A job file comes from anywhere; nothing in it reaches a terminal as a command.
#[test]
fn names_of_a_job_file_cannot_steer_a_terminal() {
    let place = Place::new();
    place.write(
        "x.fio",
        b"[a\x1b[2J]\nrw=write\nsize=64k\n[b]\nfilename=c\x1b]0;x\x07\nrw=read\nsize=64k\n",
    );
    let told = place.baio("stress x.fio").succeeds();
    assert!(told.errors().contains("writing "), "{}", told.errors());
    let all = [told.out(), told.errors().as_bytes()].concat();
    let raw = all.iter().find(|&&byte| byte < b' ' && byte != b'\n');
    assert_eq!(raw, None, "{}", String::from_utf8_lossy(&all).escape_debug());
}

/// Options that hold for all are kept once, however many sections there are.
#[test]
fn a_file_of_too_many_sections_or_options_is_refused_by_name() {
    let place = Place::new();
    let globals = |count: usize| format!("[global]\n{}", "thread\n".repeat(count));
    let sections = |count: usize| (0..count).map(|number| format!("[s{number}]\n")).collect::<String>();
    for (text, said) in [
        (
            globals(10) + &sections(100_000),
            "line 1012: [s1000] is one section too many; needed: at most 1000 sections",
        ),
        (
            globals(80_000) + &sections(9),
            "line 10002: the option 'thread' is one too many; needed: at most 10000 options",
        ),
        // As much as there may be of both goes on to the first thing that is wrong.
        (globals(10_000) + &sections(1000), "[s0] of line 10002 has no size"),
    ] {
        place.write("x.fio", text.as_bytes());
        let told = place.shell(&format!("ulimit -v 1000000; exec {} stress x.fio", support::BAIO));
        let told = told.fails_with(2);
        assert!(told.errors().contains(said), "{}", told.errors());
    }
}

#[test]
fn more_clones_at_once_than_a_machine_bears_are_refused_by_name() {
    let place = Place::new();
    let section = |number: usize| format!("[s{number}]\nsize=4k\nfilename=x\nnumjobs=256\n");
    let text: String = (0..40).map(section).collect();
    place.write("x.fio", text.as_bytes());
    let told = place.baio("stress x.fio").fails_with(2);
    let said = "line 17: with the job [s4] 1280 clones would run at once; needed: at most 1024 of them";
    assert!(told.errors().contains(said), "{}", told.errors());
    assert!(!place.path("x").exists());
}

/// As where the limit of processes is reached.
#[test]
fn where_no_thread_can_be_had_the_run_fails_and_says_so() {
    let place = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let [jobs, data] = ["x.fio", "data"].map(|name| place.path().join(name).to_str().unwrap().to_owned());
    std::fs::write(&data, [7; 65536]).unwrap();
    std::fs::write(&jobs, format!("[a]\nfilename={data}\nnumjobs=4\n")).unwrap();
    for words in [
        &["stress", &jobs][..],
        &["stress", &data, "--threads", "4", "--backend", "sync", "--once"],
    ] {
        let confined = Confined::new().without(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN);
        let told = Done(confined.run(support::BAIO, words)).fails_with(1);
        let said = told.errors();
        assert!(
            said.contains("4 threads that run at once") && said.contains("ulimit -u"),
            "{said}"
        );
    }
}

/// Debian's package fio-examples.
const EXAMPLES: &str = "/usr/share/doc/fio/examples";

#[test]
fn examples_of_fio_run_or_are_refused_by_name() {
    for (name, refused) in [
        ("aio-read", None),
        ("fio-rand-RW", None),
        ("fio-rand-read", None),
        ("fio-rand-write", None),
        ("fio-seq-read", None),
        ("fio-seq-write", None),
        ("ssd-test", None),
        ("fio-seq-RW", Some("rw=rw")),
        ("iometer-file-access-server", Some("'bssplit'")),
        ("basic-verify", Some("'verify'")),
        ("null", Some("ioengine=null")),
        ("jesd219", Some("'bssplit'")),
    ] {
        let path = Path::new(EXAMPLES).join(format!("{name}.fio"));
        let Ok(text) = std::fs::read(&path) else {
            skip(&format!("{} is missing (package fio-examples)", path.display()));
            continue;
        };
        let place = Place::new();
        place.write("job.fio", &text);
        let told = place.baio("stress job.fio --size 1M --runtime 1 --directory . --json");
        match refused {
            Some(option) => {
                let error = told.fails_with(2).error();
                let said = error["message"].as_str().unwrap();
                assert!(said.contains("line ") && said.contains(option), "{name}: {said}");
            }
            None => {
                let told = told.succeeds().json();
                let jobs = told["jobs"].as_array().unwrap();
                let requests: u64 = jobs.iter().map(|job| job["requests"].as_u64().unwrap()).sum();
                assert!(requests > 0, "{name}: {told}");
                assert!(jobs.iter().all(|job| job["errors"] == 0), "{name}: {told}");
            }
        }
    }
}
