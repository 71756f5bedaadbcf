//! Promise: a broker needs no privilege, and its clients need no I/O of their own: neither rings, nor native AIO, nor anything opened to
//! write. Who has nothing to do uses no processor. Who a client is says the kernel, as the broker's user namespace numbers it.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use baio::{Access, CreateOptions, Durability, Link, Remote};

use crate::support::confined::{Confined, as_user, asks_for_a_ring, give, reachable};
use crate::support::server::Server;
use crate::support::serving::{Talk, as_child, role};
use crate::support::{BAIO, Place, TestName, is_root, skip, until};

/// Whom the broker runs as, and who else there is.
const BROKER: u32 = 4240;
const OTHER: u32 = 4242;
const FAR_AWAY: u32 = 4243;
const MIB: u64 = 1 << 20;
/// What a client needs none of.
const NOT_NEEDED: &[libc::c_long] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    libc::SYS_openat2,
    libc::SYS_open_by_handle_at,
];

fn became_another() -> bool {
    rustix::process::geteuid().is_root()
}

/// A place with the volume `vol.img`, all of it the broker's user's where that is another one.
fn place() -> Place {
    let place = Place::new();
    place.baio("format vol.img --size 64M").succeeds();
    let everybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.path(""), everybody).unwrap();
    std::fs::set_permissions(place.path("vol.img"), std::fs::Permissions::from_mode(0o600)).unwrap();
    if became_another() {
        give(&place.path(""), BROKER);
        give(&place.path("vol.img"), BROKER);
    }
    place
}

fn serves(mut command: Command, place: &Place, more: &str) -> Server {
    let line = format!("serve vol.img --socket vol.sock --mode 0666 --cache 1M {more}");
    command.args(line.split_whitespace()).current_dir(place.path(""));
    Server::begin(&mut command).ready()
}

/// What every client does.
fn does_a_bit_of_all(volume: &Remote, name: &str) {
    volume
        .create_segment(name, &CreateOptions::of_size(MIB))
        .wait()
        .unwrap();
    let segment = volume.open_segment(name, Access::Write).wait().unwrap();
    let mut page = segment.buffer(4096).unwrap();
    page.fill(7);
    segment.write_at(4096, page).durable(Durability::Full).wait().unwrap();
    segment.write_at(10_000, vec![8; 100]).cached().wait().unwrap();
    segment.sync(Durability::Data).wait().unwrap();
    let read = segment.read_at(4096, segment.buffer(8192).unwrap()).wait().unwrap();
    assert!(read.buffer[..4096].iter().all(|byte| *byte == 7));
    assert_eq!(read.buffer[10_000 - 4096..][..100], [8; 100]);
    let names = volume.list().wait().unwrap();
    assert!(names.iter().any(|info| info.name == name));
}

#[test]
fn a_broker_without_privileges_serves_a_hundred_clients() {
    let place = place();
    let confined = Confined::as_user(BROKER).with_locked_memory(8 << 20);
    let broker = serves(confined.command(&reachable(BAIO, &place.path(""))), &place, "");
    let status = broker.about("status");
    for set in ["CapPrm", "CapEff", "CapInh", "CapAmb"] {
        let line = status.lines().find(|line| line.starts_with(set)).unwrap();
        assert!(line.ends_with("\t0000000000000000"), "{line}");
    }
    let limits = broker.about("limits");
    let locked = limits
        .lines()
        .find(|line| line.starts_with("Max locked memory"))
        .unwrap();
    assert!(locked.split_whitespace().nth(3) == Some("8388608"), "{locked}");
    let socket = place.path("vol.sock");
    let clients: Vec<Remote> = (0..100).map(|_| Remote::connect(&socket).unwrap()).collect();
    for (at, client) in clients.iter().enumerate() {
        // A quarter of a volume is what a user has who is not root.
        does_a_bit_of_all(client, "shared");
        client
            .delete_segment("shared")
            .wait()
            .unwrap_or_else(|error| panic!("{at}: {error}"));
    }
    for client in clients {
        client.close().unwrap();
    }
    broker.stops_well();
}

/// This test again, as a client in a world of its own.
fn client(confined: Confined, place: &Place, test: TestName, what: &str) -> Output {
    let program = std::env::current_exe().unwrap();
    let mut command = confined.command(&reachable(program.to_str().unwrap(), &place.path("")));
    as_child(&mut command, test, &format!("{what} {}", place.path("").display()));
    command.current_dir("/").stdout(Stdio::piped()).output().unwrap()
}

/// What the client is told to do, and where.
fn told() -> Option<(String, PathBuf)> {
    let role = role()?;
    let (what, place) = role.split_once(' ').unwrap();
    Some((what.to_owned(), place.into()))
}

fn acts(what: &str, place: &Path) {
    match what {
        "work" => {
            does_a_bit_of_all(&Remote::connect(place.join("vol.sock")).unwrap(), "its own");
            // To read it is forbidden by its permissions; so it says.
            eprintln!(
                "the volume: {:?}",
                std::fs::File::open(place.join("vol.img")).map_err(|error| error.kind())
            );
        }
        "ring" => asks_for_a_ring(),
        "write" => drop(std::fs::OpenOptions::new().append(true).open("/dev/null")),
        "read" => drop(std::fs::File::open("/dev/null").unwrap()),
        _ => panic!("{what}"),
    }
}

#[test]
fn a_client_needs_no_io_of_its_own() {
    if let Some((what, place)) = told() {
        return acts(&what, &place);
    }
    let test = TestName::of(a_client_needs_no_io_of_its_own);
    let place = place();
    let broker = serves(
        Confined::as_user(BROKER).command(&reachable(BAIO, &place.path(""))),
        &place,
        "",
    );
    let confined = || Confined::as_user(OTHER).dies_of(NOT_NEEDED);
    let done = client(confined(), &place, test, "work");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {said}", done.status);
    if became_another() {
        assert!(said.contains("the volume: Err(PermissionDenied)"), "{said}");
    }
    // The filter bites.
    for what in ["ring", "write"] {
        let done = client(confined(), &place, test, what);
        assert_eq!(done.status.signal(), Some(libc::SIGSYS), "{what}: {}", done.status);
        assert!(
            client(Confined::as_user(OTHER), &place, test, what).status.success(),
            "{what}"
        );
    }
    assert!(client(confined(), &place, test, "read").status.success());
    broker.stops_well();
}

#[test]
fn a_broker_with_nothing_to_do_does_nothing() {
    let place = place();
    let broker = serves(Command::new(BAIO), &place, "");
    let socket = place.path("vol.sock");
    let clients: Vec<Remote> = (0..10).map(|_| Remote::connect(&socket).unwrap()).collect();
    for client in &clients {
        does_a_bit_of_all(client, "shared");
        client.delete_segment("shared").wait().unwrap();
    }
    // What is left to be done in its own time is done: the cache writes back.
    let mut before = broker.switches();
    until("it comes to rest", || {
        std::thread::sleep(Duration::from_millis(500));
        std::mem::replace(&mut before, broker.switches()) == broker.switches()
    });
    let before = broker.switches();
    std::thread::sleep(Duration::from_secs(3));
    let switches = broker.switches() - before;
    // Once something of the system's own may come by; a clock that ticks would be seen.
    assert!(switches <= 1, "it ran {switches} times, with nothing to do");
    clients[0].list().wait().unwrap();
    assert!(broker.switches() > before + switches, "what is counted is seen");
    drop(clients);
    broker.stops_well();
}

/// In a user namespace of its own, in which it is root; `None`, and says so, where there can be none.
fn in_a_namespace(user: u32) -> Option<Command> {
    let unshare = |mut command: Command| {
        command.args(["--user", "--map-root-user", "--"]);
        command
    };
    let new = || unshare(Confined::as_user(user).command(Path::new("unshare")));
    let tried = new().arg("true").output();
    if tried.is_ok_and(|tried| tried.status.success()) {
        return Some(new());
    }
    skip("no user namespace can be had here (it takes unshare)");
    None
}

/// Says who the broker says that it is.
fn says_who(socket: &Path) {
    let link = Talk::connect(socket);
    let inside = rustix::process::geteuid().as_raw();
    eprintln!("{inside} inside, {:?} to the broker", link.map(|link| link.welcome.uid));
}

fn who(mut command: Command, place: &Place, test: TestName) -> String {
    as_child(&mut command, test, &format!("who {}", place.path("").display()));
    let done = command.current_dir("/").output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}");
    said
}

#[test]
fn a_client_in_a_container_is_who_it_is_outside() {
    if let Some((_, place)) = told() {
        return says_who(&place.join("vol.sock"));
    }
    let Some(mut command) = in_a_namespace(OTHER) else {
        return;
    };
    let place = place();
    let broker = serves(
        Confined::as_user(BROKER).command(&reachable(BAIO, &place.path(""))),
        &place,
        "",
    );
    let program = std::env::current_exe().unwrap();
    command.arg(reachable(program.to_str().unwrap(), &place.path("")));
    let said = who(
        command,
        &place,
        TestName::of(a_client_in_a_container_is_who_it_is_outside),
    );
    let outside = if became_another() {
        OTHER
    } else {
        rustix::process::geteuid().as_raw()
    };
    assert!(
        said.contains(&format!("0 inside, Some({outside}) to the broker")),
        "{said}"
    );
    broker.stops_well();
}

#[test]
fn a_client_that_the_brokers_namespace_does_not_know_is_refused() {
    if !is_root() {
        return;
    }
    let Some(mut command) = in_a_namespace(BROKER) else {
        return;
    };
    let place = place();
    command.arg(reachable(BAIO, &place.path("")));
    let broker = serves(command, &place, "");
    let socket = place.path("vol.sock");
    // Root is who started it, and nobody else is known there; not even the root outside.
    let uid = |user| as_user(user, || Talk::connect(&socket).map(|link| link.welcome.uid));
    assert_eq!(uid(BROKER), Some(0));
    assert_eq!(uid(FAR_AWAY), None);
    assert_eq!(uid(OTHER), None);
    assert!(Talk::connect(&socket).is_none());
    assert_eq!(uid(BROKER), Some(0), "it serves as before");
    broker.stops_well();
}
