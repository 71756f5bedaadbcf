//! Promise: `doctor --json` is one object whose keys and types stay: those that always were, and those that explain them.
//! A key that does not apply is there and null.

use serde_json::Value;

use crate::support::Place;

/// A key and what it may hold: `s`tring, `n`umber, `b`oolean, `a`rray, `o`bject; with `?` also null.
type Shape = [(&'static str, &'static str)];

#[track_caller]
fn fits(value: &Value, shape: &Shape) {
    let object = value.as_object().unwrap_or_else(|| panic!("no object: {value}"));
    let mut expected: Vec<&str> = shape.iter().map(|(key, _)| *key).collect();
    expected.sort_unstable();
    let keys: Vec<&str> = object.keys().map(String::as_str).collect();
    assert_eq!(keys, expected);
    for (key, kinds) in shape {
        let kind = match &object[*key] {
            Value::Null => '?',
            Value::String(_) => 's',
            Value::Number(_) => 'n',
            Value::Bool(_) => 'b',
            Value::Array(_) => 'a',
            Value::Object(_) => 'o',
        };
        assert!(kinds.contains(kind), "{key} is {}, not {kinds}", object[*key]);
    }
}

const DIAGNOSIS: &Shape = &[
    ("schema_version", "n"),
    ("verdict", "s"),
    ("to_do", "a"),
    ("backend", "s"),
    ("asynchronous", "b"),
    ("rejected", "a"),
    ("features", "a"),
    ("backends", "a"),
    ("kernel", "s"),
    ("kernel_lacks", "a"),
    ("uid", "n"),
    ("system", "o"),
    ("path", "?o"),
];

const REJECTED: &Shape = &[("backend", "s"), ("reason", "s"), ("cause", "?s"), ("cure", "?s")];

const BACKEND: &Shape = &[
    ("backend", "s"),
    ("starts", "b"),
    ("chosen", "b"),
    ("asynchronous", "b"),
    ("reason", "?s"),
    ("cause", "?s"),
    ("cure", "?s"),
    ("features", "a"),
];

const FEATURE: &Shape = &[
    ("name", "s"),
    ("available", "b"),
    ("reason", "?s"),
    ("cause", "?s"),
    ("cure", "?s"),
];

const SYSTEM: &Shape = &[
    ("release", "s"),
    ("io_uring_disabled", "?n"),
    ("io_uring_group", "?n"),
    ("seccomp", "?s"),
    ("seccomp_filters", "?n"),
    ("locked_memory_bytes_max", "?n"),
    ("locked_memory_unlimited", "b"),
    ("open_files_max", "?n"),
    ("processes_max", "?n"),
    ("aio_operations", "?n"),
    ("aio_operations_max", "?n"),
    ("overcommit_memory", "?n"),
    ("container", "a"),
];

const PATH: &Shape = &[
    ("path", "s"),
    ("kind", "s"),
    ("stream", "?s"),
    ("size_bytes", "n"),
    ("volume", "b"),
    ("volume_problem", "?s"),
    ("file_system", "?s"),
    ("mount_point", "?s"),
    ("mount_source", "?s"),
    ("mount_options", "a"),
    ("modes", "a"),
    ("untried", "?s"),
    ("direct_writes", "o"),
    ("durable_writes", "o"),
    ("direct_memory_alignment", "?n"),
    ("direct_offset_alignment", "?n"),
    ("alignment_source", "?s"),
    ("atomic_write", "?o"),
    ("unwritten_bytes", "?n"),
    ("device", "?o"),
    ("advice", "a"),
];

const MODE: &Shape = &[("mode", "s"), ("works", "b"), ("is", "?s"), ("reason", "?s")];

const DEVICE: &Shape = &[
    ("name", "s"),
    ("partition_of", "?s"),
    ("scheduler", "?s"),
    ("scheduler_cost", "?s"),
    ("schedulers", "a"),
    ("write_cache", "?s"),
    ("fua", "?b"),
    ("requests_max", "?n"),
    ("hardware_queues", "?n"),
    ("queue_depth", "?n"),
    ("rotational", "?b"),
    ("discard_bytes_max", "?n"),
    ("write_zeroes_bytes_max", "?n"),
    ("logical_block_bytes", "?n"),
    ("physical_block_bytes", "?n"),
    ("atomic_write_bytes_max", "?n"),
    ("backing", "?o"),
    ("below", "a"),
];

fn each<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap()
}

#[test]
fn of_the_system() {
    let told = Place::new().baio("doctor --json").json();
    fits(&told, DIAGNOSIS);
    assert_eq!(told["path"], Value::Null);
    fits(&told["system"], SYSTEM);
    assert_eq!(told["system"]["release"], told["kernel"]);
    each(&told, "rejected")
        .iter()
        .for_each(|rejected| fits(rejected, REJECTED));
    each(&told, "features")
        .iter()
        .for_each(|feature| fits(feature, FEATURE));
    let backends = each(&told, "backends");
    for backend in backends {
        fits(backend, BACKEND);
        assert_ne!(backend["starts"] == true, backend["reason"].is_string(), "{backend}");
        each(backend, "features")
            .iter()
            .for_each(|feature| fits(feature, FEATURE));
    }
}

/// Each one once, the chosen one is one of them, and what is rejected did not start.
#[test]
fn of_every_backend() {
    let told = Place::new().baio("doctor --json").json();
    let mut names: Vec<&str> = Vec::new();
    for backend in each(&told, "backends") {
        let name = backend["backend"].as_str().unwrap();
        names.push(name);
        assert_eq!(backend["chosen"] == true, told["backend"] == name);
        assert!(backend["chosen"] == false || backend["starts"] == true);
        let rejected = each(&told, "rejected").iter().any(|why| why["backend"] == name);
        assert!(!rejected || backend["starts"] == false);
    }
    names.sort_unstable();
    assert_eq!(names, ["aio", "sync", "threads", "uring"]);
}

#[test]
fn of_a_path() {
    let place = Place::new();
    place.write("data", &[7; 65536]);
    place.volume("8M", "1M");
    for path in ["data", "vol", ".", "/dev/null"] {
        let told = place.json(&format!("doctor {path}"));
        fits(&told, DIAGNOSIS);
        let told = &told["path"];
        fits(told, PATH);
        assert_eq!(told["path"], path);
        let modes: Vec<&str> = each(told, "modes")
            .iter()
            .map(|mode| mode["mode"].as_str().unwrap())
            .collect();
        let expected: &[&str] = if told["untried"].is_string() {
            &[]
        } else {
            &["kernel", "uncached", "direct"]
        };
        assert_eq!(modes, expected);
        for mode in each(told, "modes") {
            fits(mode, MODE);
            assert_eq!(mode["works"] == true, mode["is"].is_string());
            assert_ne!(mode["works"] == true, mode["reason"].is_string());
        }
        fits(&told["direct_writes"], &[("are", "?s"), ("reason", "?s")]);
        fits(&told["durable_writes"], &[("by", "?s"), ("reason", "?s")]);
        for note in each(told, "advice") {
            fits(note, &[("found", "s"), ("cure", "?s")]);
        }
        let mut devices: Vec<&Value> = Some(&told["device"])
            .into_iter()
            .filter(|device| !device.is_null())
            .collect();
        while let Some(device) = devices.pop() {
            fits(device, DEVICE);
            devices.extend(each(device, "below"));
        }
    }
}
