//! Promise: the rules of `--grants` narrow what clients may do, are read again on SIGHUP, and end sessions that may do less; a
//! file that cannot be used changes nothing and is told; its quota is noted in the volume.

use std::time::Instant;

use baio::{Access, CreateOptions, Fault, Link, Remote};
use rustix::process::Signal;

use crate::support::Place;
use crate::support::server::{PATIENCE, Server};

const HOLDS: &str = "hold from now on";
const ALL: &[u8] = b"everybody may read write manage\n";

/// The broker takes rules when its next round begins: what was asked just before it is still refused.
fn holds(what: impl Fn() -> Result<(), String>) {
    let ended = Instant::now() + PATIENCE;
    while let Err(code) = what() {
        assert_eq!(code, "EACCES");
        assert!(Instant::now() < ended, "the new rules never hold");
    }
}

#[test]
fn rules_narrow_and_are_read_again() {
    let place = Place::new();
    place.write("grants", b"# nobody changes anything\neverybody may read\n");
    let mut serving = Server::on_new_volume(&place, "--grants grants");
    let create = || place.baio("create unix:vol.sock#a --size 1M --json");
    let error = create().fails_with(1).error();
    assert_eq!(error["code"], "EACCES", "{error}");
    assert!(
        error["need"].as_str().unwrap().contains("a rule of the broker's"),
        "{error}"
    );
    place.baio("list unix:vol.sock").succeeds();

    place.write("grants", ALL);
    serving.signal(Signal::HUP);
    serving.says(HOLDS);
    holds(|| match create().status() {
        0 => Ok(()),
        _ => Err("EACCES".to_owned()),
    });

    // Who is connected has gone when it may do less.
    let link = Remote::connect(place.path("vol.sock")).unwrap();
    let segment = link.open_segment("a", Access::Write).wait().unwrap();
    segment.write_at(0, link.buffer(4096).unwrap()).wait().unwrap();
    place.write("grants", b"everybody may read write\n");
    serving.signal(Signal::HUP);
    serving.says(HOLDS);
    let ended = Instant::now() + PATIENCE;
    let error = loop {
        match link.info().wait() {
            Ok(_) => assert!(Instant::now() < ended, "the session goes on"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error.fault, Fault::ServiceEnded), "{error}");
    assert!(segment.write_at(0, vec![0; 4096]).wait().is_err());
    // And comes back to what it may still do.
    let link = Remote::connect(place.path("vol.sock")).unwrap();
    link.open_segment("a", Access::Write).wait().unwrap();
    let refused = link.create_segment("b", &CreateOptions::of_size(1 << 20)).wait();
    assert_eq!(refused.unwrap_err().code(), "EACCES");
    serving.stops_well();
}

#[test]
fn who_may_as_much_as_before_stays_connected() {
    let place = Place::new();
    place.write("grants", b"everybody may read write\n");
    let mut serving = Server::on_new_volume(&place, "--grants grants");
    let link = Remote::connect(place.path("vol.sock")).unwrap();
    place.write("grants", ALL);
    serving.signal(Signal::HUP);
    serving.says(HOLDS);
    holds(|| {
        let created = link.create_segment("a", &CreateOptions::of_size(1 << 20)).wait();
        created.map(drop).map_err(|error| error.code().to_owned())
    });
    serving.stops_well();
}

#[test]
fn a_file_that_cannot_be_used_leaves_the_rules_as_they_were() {
    let place = Place::new();
    place.write("grants", ALL);
    let mut serving = Server::on_new_volume(&place, "--grants grants");
    place.write("grants", b"everybody may nothing\neverybody may raed\n");
    serving.signal(Signal::HUP);
    let said = serving.says("the rules stay as they were");
    for word in ["baio: serve: ", "grants: line 2: ", "`raed`", "needed: ", "cure: "] {
        assert!(said.contains(word), "{word} is not in {said}");
    }
    place.baio("create unix:vol.sock#a --size 1M").succeeds();
    std::fs::remove_file(place.path("grants")).unwrap();
    serving.signal(Signal::HUP);
    let said = serving.says("the rules stay as they were");
    assert!(said.contains("needed: a file of rules"), "{said}");
    place.baio("create unix:vol.sock#b --size 1M").succeeds();
    serving.stops_well();
}

#[test]
fn with_a_file_that_cannot_be_used_it_does_not_begin() {
    let place = Place::new();
    place.baio("format vol.img --size 4M").succeeds();
    let before = place.read("vol.img");
    place.write("grants", b"\nuid 7 can read\n");
    let error = place.baio("serve vol.img --socket vol.sock --grants grants --json");
    let error = error.fails_with(1).error();
    assert!(error["message"].as_str().unwrap().contains("line 2"), "{error}");
    assert_eq!(error["object"], "grants");
    let error = place.baio("serve vol.img --socket vol.sock --grants missing --json");
    assert_eq!(error.fails_with(1).error()["code"], "ENOENT");
    assert!(!place.path("vol.sock").exists() && place.read("vol.img") == before);
}

#[test]
fn without_a_rule_nobody_comes_in_and_that_is_said() {
    let place = Place::new();
    place.baio("format vol.img --size 4M").succeeds();
    place.write("grants", b"");
    let mut serving = Server::on_volume(&place, "--grants grants");
    serving.says("grants has no rule: no client may do anything");
    serving.says("serving ");
    let error = Remote::connect(place.path("vol.sock")).unwrap_err();
    assert_eq!(error.code(), "EACCES");
    serving.stops_well();
}

#[test]
fn its_quota_is_noted_in_the_volume_once() {
    let place = Place::new();
    place.write("grants", b"everybody may read write manage\nquota 2M 3\n");
    Server::on_new_volume(&place, "--grants grants").stops_well();
    let quota = || place.json("quota vol.img default");
    let noted = quota();
    assert_eq!(
        (noted["limit_bytes"].as_u64(), noted["limit_segments"].as_u64()),
        (Some(2 << 20), Some(3))
    );
    // What the volume says already stays.
    place.write("grants", b"everybody may read write manage\nquota 1M 1\n");
    Server::on_volume(&place, "--grants grants").ready().stops_well();
    assert_eq!(quota(), noted);
}
