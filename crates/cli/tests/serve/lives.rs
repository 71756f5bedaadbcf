//! Promise: `baio serve` serves a volume to who connects, ends cleanly when it is told to, heals after it was killed, takes a
//! socket that somebody else has bound, and says what stands in its way.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

use baio_words::session::{Answer, FromBroker, Welcome};
use rustix::net::SocketAddrUnix;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::server::{PATIENCE, Server, listening, packets};
use crate::support::serving::{hear, says_hello};
use crate::support::{BAIO, Place, skip};

/// Connects, and says hello.
fn greet(path: &Path, volume: &str) -> OwnedFd {
    let socket = packets();
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    says_hello(&socket, volume).unwrap();
    socket
}

/// The next message; `None` when the broker has gone.
fn hears(socket: &OwnedFd) -> Option<FromBroker> {
    hear(socket).map(|(said, _)| said)
}

fn is_welcome(socket: &OwnedFd) -> Welcome {
    match hears(socket) {
        Some(FromBroker::Welcome(welcome)) => welcome,
        other => panic!("no welcome: {other:?}"),
    }
}

fn is_clean(place: &Place) -> bool {
    place.json("stat vol.img")["clean"].as_bool().unwrap()
}

/// A place with the volume `vol.img`.
fn place() -> Place {
    let place = Place::new();
    place.baio("format vol.img --size 4M").succeeds();
    place
}

/// Why it did not serve.
fn refused(place: &Place, line: &str) -> (i32, Value) {
    let done = place.in_a_minute(line);
    (done.status(), done.json()["error"].clone())
}

fn text<'a>(error: &'a Value, key: &str) -> &'a str {
    error[key].as_str().unwrap_or_default()
}

#[test]
fn who_connects_is_welcome_until_it_is_told_to_end() {
    let place = place();
    let mut server = Server::start(&place, "serve vol.img --socket vol.sock --places 16 --mode 0606");
    assert_eq!(server.says("serving "), "serving vol.img as vol on vol.sock\n");
    let path = place.path("vol.sock");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o606);
    assert!(!is_clean(&place));
    let client = greet(&path, "");
    let welcome = is_welcome(&client);
    assert_eq!(
        (welcome.volume.as_str(), welcome.cached, welcome.places),
        ("vol", true, 4)
    );
    assert_eq!(welcome.uid, rustix::process::geteuid().as_raw());
    // By its name as well, and by no other.
    is_welcome(&greet(&path, "vol"));
    let other = hears(&greet(&path, "vol.img"));
    assert!(
        matches!(&other, Some(FromBroker::Answer { answer: Answer::Failed(failed), .. }) if failed.code == "ENOENT"),
        "{other:?}"
    );
    server.signal(Signal::HUP);
    is_welcome(&greet(&path, ""));
    // Two at once, as `timeout` sends them, are one wish.
    for signal in [Signal::STOP, Signal::TERM, Signal::INT, Signal::CONT] {
        server.signal(signal);
    }
    assert_eq!(hears(&client), None);
    server.ends_well();
    assert!(is_clean(&place));
    assert!(!path.exists());
}

#[test]
fn an_interrupt_ends_it_too_and_json_is_one_object() {
    let place = place();
    let line = "serve vol.img --socket vol.sock --cache 0 --name scratch --backend threads --json";
    let mut server = Server::start(&place, line);
    let mut out = BufReader::new(server.child.stdout.take().unwrap());
    let mut object = String::new();
    out.read_line(&mut object).unwrap();
    let ready: Value = serde_json::from_str(&object).unwrap();
    assert_eq!(ready["schema_version"], 1);
    assert_eq!(ready["name"], "scratch");
    assert_eq!(ready["socket"], "vol.sock");
    assert_eq!(ready["cache_bytes"], 0);
    assert_eq!(ready["backend"], "threads");
    assert_eq!(ready["pid"], server.child.id());
    let welcome = is_welcome(&greet(&place.path("vol.sock"), "scratch"));
    assert!(!welcome.cached);
    server.signal(Signal::INT);
    server.ends_well();
    let mut more = String::new();
    out.read_to_string(&mut more).unwrap();
    assert_eq!(more, "");
    assert!(is_clean(&place));
}

#[test]
fn nobody_takes_the_socket_or_the_volume_of_another() {
    let place = place();
    place.baio("format other.img --size 4M").succeeds();
    let server = Server::start(&place, "serve vol.img --socket vol.sock").ready();
    let (status, error) = refused(&place, "serve other.img --socket vol.sock --json");
    assert_eq!((status, text(&error, "code")), (1, "EADDRINUSE"), "{error}");
    assert!(
        text(&error, "cure").contains("end the broker that serves there"),
        "{error}"
    );
    let (status, error) = refused(&place, "serve vol.img --socket other.sock --json");
    assert_eq!((status, text(&error, "code")), (1, "EBUSY"), "{error}");
    let pid = server.child.id().to_string();
    assert!(text(&error, "message").contains(&pid), "{error}");
    assert!(!place.path("other.sock").exists());
    // It serves as before.
    is_welcome(&greet(&place.path("vol.sock"), ""));
    server.signal(Signal::TERM);
    server.ends_well();
}

#[test]
fn what_cannot_be_served_is_refused_and_stays_as_it_was() {
    let place = place();
    place.write("file", b"a file");
    let before = place.read("vol.img");
    let (status, error) = refused(&place, "serve vol.img --socket file --json");
    assert_eq!((status, text(&error, "code")), (1, "EEXIST"), "{error}");
    assert!(text(&error, "cure").contains("choose another --socket"), "{error}");
    assert_eq!(place.read("file"), b"a file");
    assert!(
        place.read("vol.img") == before,
        "a socket that cannot be changes no volume"
    );

    let (status, error) = refused(&place, "serve file --socket s --json");
    assert_eq!((status, text(&error, "code")), (1, "ENOTVOLUME"), "{error}");
    let (status, error) = refused(&place, "serve missing --socket s --json");
    assert_eq!((status, text(&error, "code")), (1, "ENOENT"), "{error}");
    assert!(!place.path("s").exists());

    let (status, error) = refused(&place, "serve vol.img other.img --socket s --json");
    assert_eq!((status, text(&error, "code")), (2, "EUSAGE"), "{error}");
    assert_eq!(text(&error, "object"), "other.img");
    assert!(text(&error, "cure").contains("one more `baio serve`"), "{error}");
    for (line, word) in [
        ("serve vol.img --json", "--socket"),
        ("serve vol.img --socket s --name a/b --json", "without `/`"),
        ("serve vol.img --socket s --cache 4K --json", "64K to 1T"),
        ("serve vol.img --socket s --clients 4096 --json", "4095"),
        ("serve vol.img --socket s --mode 0999 --json", "octal"),
        ("serve vol.img --socket s --backend best --json", "backend"),
    ] {
        let (status, error) = refused(&place, line);
        assert_eq!((status, text(&error, "code")), (2, "EUSAGE"), "{line}: {error}");
        assert!(error.to_string().contains(word), "{line}: {error}");
    }
    assert!(place.read("vol.img") == before);
}

#[test]
fn who_connects_during_a_restart_waits_in_the_socket_that_was_handed_over() {
    let place = place();
    let path = place.path("vol.sock");
    let listening = listening(&path);
    let manager = UnixDatagram::bind(place.path("notify")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let name = place.path("notify");
    let variables = [("NOTIFY_SOCKET", name.to_str().unwrap())];
    let told = || {
        let mut bytes = [0; 64];
        let len = manager.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    };

    let first = Server::handed(&place, &listening, "", &variables).ready();
    assert_eq!(told(), "READY=1");
    let before = greet(&path, "");
    is_welcome(&before);
    first.signal(Signal::TERM);
    assert_eq!(told(), "STOPPING=1");
    first.ends_well();
    assert_eq!(hears(&before), None);
    assert!(is_clean(&place));
    // Nobody serves, and nobody is refused.
    let between = greet(&path, "vol");
    let second = Server::handed(&place, &listening, "", &variables).ready();
    is_welcome(&between);
    second.signal(Signal::TERM);
    second.ends_well();
    // It is not the broker's.
    assert!(path.exists());
}

#[test]
fn a_socket_that_was_handed_over_is_the_only_one_and_of_the_right_kind() {
    let place = place();
    let path = place.path("vol.sock");
    let listening = listening(&path);
    for (words, word) in [("--socket other.sock", "--socket"), ("--mode 0600", "SocketMode=")] {
        let (status, said) = Server::handed(&place, &listening, words, &[]).ends();
        assert_eq!(status.code(), Some(2), "{said}");
        assert!(said.contains("handed over") && said.contains(word), "{said}");
    }
    // The same one, said twice, is one.
    let words = format!("--socket {}", path.display());
    let server = Server::handed(&place, &listening, &words, &[]).ready();
    is_welcome(&greet(&path, ""));
    server.signal(Signal::TERM);
    server.ends_well();

    let stream = std::os::unix::net::UnixListener::bind(place.path("stream.sock")).unwrap();
    let (status, said) = Server::handed(&place, &stream.into(), "", &[]).ends();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("ListenSequentialPacket"), "{said}");
    // Meant for somebody else: not touched.
    let script = format!("LISTEN_PID=1 LISTEN_FDS=1 exec {BAIO} serve vol.img");
    let done = Command::new("sh")
        .args(["-c", &script])
        .current_dir(place.path(""))
        .output();
    let said = String::from_utf8(done.unwrap().stderr).unwrap();
    assert!(said.contains("no socket"), "{said}");
}

#[test]
fn systemd_hands_a_socket_over() {
    const ACTIVATE: &str = "systemd-socket-activate";
    if Command::new(ACTIVATE).arg("--version").output().is_err() {
        return skip("needs systemd-socket-activate");
    }
    let place = place();
    let path = place.path("vol.sock");
    let words = ["--seqpacket", "-l", path.to_str().unwrap(), BAIO, "serve", "vol.img"];
    let mut server = Server::of(place.spawn(ACTIVATE, words));
    server.says("Listening on ");
    // The first who connects starts it.
    let client = greet(&path, "");
    let said = server.says("serving ");
    assert!(said.contains(path.to_str().unwrap()), "{said}");
    is_welcome(&client);
    server.signal(Signal::TERM);
    server.ends_well();
    assert!(is_clean(&place));
}

/// `packaging/`: nothing in it that systemd does not know, and little that the broker may do.
#[test]
fn the_units_are_sound_and_let_little_through() {
    const ANALYZE: &str = "systemd-analyze";
    if Command::new(ANALYZE).arg("--version").output().is_err() {
        return skip("needs systemd-analyze");
    }
    let place = Place::new();
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    for name in ["baio.socket", "baio.service"] {
        let unit = fs::read_to_string(units.join(name)).unwrap();
        // Where the program would be once it is installed.
        place.write(name, unit.replace("/usr/bin/baio", BAIO).as_bytes());
    }
    let analyze = |words: &[&str]| {
        let done = Command::new(ANALYZE)
            .args(words)
            .current_dir(place.path(""))
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        (done.status.success(), told)
    };
    let (_, told) = analyze(&["verify", "./baio.socket", "./baio.service"]);
    // Of other units of this machine it may have something to say too.
    assert!(!told.contains("baio."), "{told}");
    // Tenths of points of ten.
    let (is_below, told) = analyze(&["security", "--offline=true", "--threshold=10", "./baio.service"]);
    if told.contains("unrecognized option") {
        return skip("needs systemd 250");
    }
    assert!(is_below, "{told}");
}

/// The memory of a session is a file too.
#[test]
fn a_limit_of_file_sizes_is_told_to_the_client_and_ends_no_broker() {
    let place = place();
    let line = format!("ulimit -f 8192; exec {BAIO} serve vol.img --socket vol.sock --arena 64M");
    let mut server = Server::of(place.spawn("bash", ["-c", &line])).ready();
    let path = place.path("vol.sock");
    for _ in 0..2 {
        let told = hears(&greet(&path, ""));
        let failed = match &told {
            Some(FromBroker::Answer {
                answer: Answer::Failed(failed),
                ..
            }) => failed,
            other => panic!("no refusal: {other:?}"),
        };
        assert_eq!(failed.code, "EFBIG", "{failed:?}");
        assert!(format!("{failed:?}").contains("ulimit -f"), "{failed:?}");
    }
    server.signal(Signal::TERM);
    let (status, said) = server.ends();
    assert_eq!(status.code(), Some(0), "{said}");
}
