//! Promise: a link that may reconnect goes on with the next broker on its socket. Reads go on; of writes under way their caller is told that
//! nobody knows; handles with cached writes that were not synced, and those of segments that are gone, say so. Nobody waits longer
//! than the link's limit.
//!
//! A broker that is stopped by SIGSTOP takes nothing from its rings: what is sent then is under way when it is killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use baio::{
    Access, Buffer, CreateOptions, Durability, Error, Fault, Link, LinkOptions, Local, LogOptions, OperationName,
    Outcome, Reconnect, Remote, Segment, SegmentOp, Ticket, Wait,
};
use baio_words::Lost;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{RecvFlags, SocketAddrUnix};
use rustix::process::Signal;

use crate::support::server::{PATIENCE, Server, listening, packets};
use crate::support::{Place, until};

const MIB: u64 = 1 << 20;
const PAGE: usize = 4096;

/// A volume with these segments, and its broker.
fn volume_with(segments: &[&str]) -> (Place, Server) {
    let place = Place::new();
    let server = Server::on_new_volume(&place, "--cache 1M");
    let volume = Remote::connect(place.path("vol.sock")).unwrap();
    for name in segments {
        volume
            .create_segment(name, &CreateOptions::of_size(MIB))
            .wait()
            .unwrap();
    }
    volume.close().unwrap();
    (place, server)
}

fn connect_within(place: &Place, limit: Duration) -> Remote {
    let options = LinkOptions {
        reconnect: Reconnect::Within(limit),
        ..LinkOptions::default()
    };
    Remote::connect_with(place.path("vol.sock"), "", &options).unwrap()
}

fn connect(place: &Place) -> Remote {
    connect_within(place, PATIENCE)
}

fn next(place: &Place) -> Server {
    Server::on_volume(place, "--cache 1M").ready()
}

fn open(volume: &Remote, name: &str) -> Segment<Remote> {
    volume.open_segment(name, Access::Write).wait().unwrap()
}

fn page_of(segment: &Segment<Remote>, byte: u8) -> Buffer {
    let mut buffer = segment.buffer(PAGE).unwrap();
    buffer.fill(byte);
    buffer
}

fn write(segment: &Segment<Remote>, at: u64, byte: u8) {
    let write = segment.write_at(at * PAGE as u64, page_of(segment, byte));
    write.durable(Durability::Data).wait().unwrap();
}

fn read(segment: &Segment<Remote>, at: u64) -> Result<u8, Error> {
    let done = segment
        .read_exact_at(at * PAGE as u64, segment.buffer(PAGE)?)
        .wait()
        .map_err(|failed| failed.error)?;
    assert!(done.buffer.iter().all(|byte| *byte == done.buffer[0]));
    Ok(done.buffer[0])
}

fn lost(error: &Error) -> Lost {
    match error.fault {
        Fault::Lost(lost) => lost,
        _ => panic!("{error}"),
    }
}

/// Sends it, to whoever takes it.
fn sends(volume: &Remote, segment: &Segment<Remote>, op: SegmentOp, buffer: Option<Buffer>) -> Ticket {
    let request = match buffer {
        Some(buffer) => segment.request(op, buffer),
        None => segment.request(op, baio::Memory::None),
    };
    let ticket = segment.submit(request).expect("a place");
    volume.turn(Wait::No).unwrap();
    ticket
}

/// Looks so often that it sees the end of a broker: a link that has asked no question looks at its socket now and then only.
fn notices(volume: &Remote) {
    for _ in 0..200 {
        volume.turn(Wait::No).unwrap();
    }
}

fn outcome(volume: &Remote, ticket: Ticket) -> Outcome {
    volume.wait(ticket).unwrap().unwrap()
}

#[test]
fn what_is_under_way_goes_on_or_is_told() {
    let (place, server) = volume_with(&["a"]);
    let volume = connect(&place);
    let a = open(&volume, "a");
    for at in 0..4 {
        write(&a, at, 10 + at as u8);
    }
    let kept = page_of(&a, 99);
    server.signal(Signal::STOP);
    let reads: Vec<_> = (0..4)
        .map(|at| {
            let op = SegmentOp::Read {
                offset: at * PAGE as u64,
            };
            sends(&volume, &a, op, Some(page_of(&a, 0)))
        })
        .collect();
    let op = SegmentOp::Write { offset: 0 };
    let write_under_way = sends(&volume, &a, op, Some(page_of(&a, 50)));
    let sync = sends(&volume, &a, SegmentOp::Sync, None);
    let zero = sends(&volume, &a, SegmentOp::Zero { offset: 0, len: 4096 }, None);
    server.killed();
    notices(&volume);
    // Also what is asked while nobody serves.
    let between = sends(
        &volume,
        &a,
        SegmentOp::Write {
            offset: 9 * PAGE as u64,
        },
        Some(page_of(&a, 59)),
    );
    let server = next(&place);
    for (at, ticket) in reads.into_iter().enumerate() {
        let outcome = outcome(&volume, ticket);
        assert_eq!(outcome.result.unwrap(), PAGE as u32);
        let buffer = outcome.memory.into_buffer().expect("its own");
        assert!(buffer.iter().all(|byte| *byte == 10 + at as u8), "{at}");
    }
    for ticket in [write_under_way, sync, zero] {
        let outcome = outcome(&volume, ticket);
        assert_eq!(outcome.result.unwrap_err().code(), "EINDETERMINATE");
        if ticket == write_under_way {
            let buffer = outcome.memory.into_buffer().expect("nobody is at it any more");
            assert!(buffer.iter().all(|byte| *byte == 50));
        }
    }
    assert_eq!(outcome(&volume, between).result.unwrap(), PAGE as u32);
    assert_eq!(read(&a, 9).unwrap(), 59);
    assert!([10, 50].contains(&read(&a, 0).unwrap()));
    // A buffer of the former session is still one.
    let (bounced, _) = volume.bounced();
    let done = a.write_at(0, kept).durable(Durability::Data).wait().unwrap();
    assert!(done.buffer.iter().all(|byte| *byte == 99));
    assert_eq!((read(&a, 0).unwrap(), volume.bounced().0), (99, bounced + 1));
    assert_eq!(read(&a, 3).unwrap(), 13);

    // And once more, by futures, one of which reads into a buffer of the first session.
    server.signal(Signal::STOP);
    let reads = [done.buffer, page_of(&a, 0)].map(|buffer| {
        let (volume, read) = (volume.clone(), a.read_exact_at(3 * PAGE as u64, buffer));
        std::thread::spawn(move || volume.block_on(read).unwrap().map(|done| done.buffer))
    });
    while volume.in_flight() < 2 {
        std::thread::yield_now();
    }
    server.killed();
    let server = next(&place);
    for read in reads {
        let buffer = read.join().unwrap().unwrap();
        assert!(buffer.iter().all(|byte| *byte == 13));
    }
    volume.close().unwrap();
    server.stops_well();
}

#[test]
fn cached_writes_that_were_not_synced_are_told_as_lost() {
    let (place, server) = volume_with(&["dirty", "synced", "durable", "direct", "late"]);
    let volume = connect(&place);
    let [dirty, same, synced, durable, direct, late] =
        ["dirty", "dirty", "synced", "durable", "direct", "late"].map(|name| open(&volume, name));
    for segment in [&dirty, &synced, &late] {
        segment.write_at(0, vec![1; 100]).cached().wait().unwrap();
    }
    let write = durable.write_at(0, vec![1; 100]).cached();
    write.durable(Durability::Data).wait().unwrap();
    direct.write_at(0, page_of(&direct, 1)).wait().unwrap();
    for segment in [&synced, &late] {
        segment.sync(Durability::Data).wait().unwrap();
    }
    late.write_at(0, vec![2; 100]).cached().wait().unwrap();
    server.killed();
    let server = next(&place);
    for segment in [&dirty, &same, &late] {
        for _ in 0..2 {
            let error = read(segment, 0).unwrap_err();
            assert_eq!((lost(&error), error.code()), (Lost::CachedWrites, "EPOISONED"));
            let text = error.to_string();
            assert!(
                text.contains("cached writes that were not synced may be lost") && text.contains("open it again"),
                "{text}"
            );
        }
        // It promises nothing for what is gone.
        let error = segment.sync(Durability::Data).wait().unwrap_err().error;
        assert_eq!(lost(&error), Lost::CachedWrites);
        assert_eq!(lost(&segment.size().wait().unwrap_err()), Lost::CachedWrites);
    }
    for segment in [&synced, &durable, &direct] {
        read(segment, 4).unwrap();
        segment.sync(Durability::Data).wait().unwrap();
    }
    assert_eq!(
        synced.read_at(0, vec![0; 100]).cached().wait().unwrap().buffer,
        [1; 100]
    );
    // A fresh one is whole.
    let dirty = open(&volume, "dirty");
    dirty.write_at(0, vec![3; 100]).cached().wait().unwrap();
    dirty.sync(Durability::Data).wait().unwrap();
    server.killed();
    let server = next(&place);
    assert_eq!(dirty.read_at(0, vec![0; 100]).cached().wait().unwrap().buffer, [3; 100]);
    assert_eq!(lost(&read(&same, 0).unwrap_err()), Lost::CachedWrites);
    volume.close().unwrap();
    server.stops_well();
}

#[test]
fn a_handle_stays_with_its_segment_whatever_that_is_called() {
    let (place, server) = volume_with(&["stays", "renamed", "swapped", "deleted", "replaced"]);
    let volume = connect(&place);
    let names = ["stays", "renamed", "swapped", "deleted", "replaced"];
    let [stays, renamed, swapped, deleted, replaced] = names.map(|name| open(&volume, name));
    for (number, segment) in [&stays, &renamed, &swapped, &deleted, &replaced]
        .into_iter()
        .enumerate()
    {
        write(segment, 0, number as u8 + 1);
    }
    server.killed();
    for line in [
        "rename vol.img#renamed other",
        "rename vol.img#swapped swapped-away",
        "create vol.img#swapped --size 1M",
        "delete vol.img#deleted",
        "delete vol.img#replaced",
        "create vol.img#replaced --size 1M",
    ] {
        place.baio(line).succeeds();
    }
    let server = next(&place);
    assert_eq!(read(&stays, 0).unwrap(), 1);
    assert_eq!(read(&renamed, 0).unwrap(), 2);
    assert_eq!(read(&swapped, 0).unwrap(), 3);
    for segment in [&deleted, &replaced] {
        let error = read(segment, 0).unwrap_err();
        assert_eq!((lost(&error), error.code()), (Lost::Segment, "ESTALE"), "{error}");
    }
    // By what they are called now.
    server.killed();
    let server = next(&place);
    assert_eq!((read(&renamed, 0).unwrap(), read(&swapped, 0).unwrap()), (2, 3));
    assert_eq!(read(&open(&volume, "replaced"), 0).unwrap(), 0);
    volume.close().unwrap();
    server.stops_well();
}

/// For how long this thread has had a processor.
fn on_processor() -> Duration {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(schedstat.split(' ').next().unwrap().parse().unwrap())
}

/// Takes the place of a broker, and sends everybody away at once. Counts them, until it is told to end.
fn sends_everybody_away(place: &Place, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<u32> {
    let (path, stop) = (place.path("vol.sock"), Arc::clone(stop));
    let _ = std::fs::remove_file(&path);
    let socket = listening(&path);
    std::thread::spawn(move || {
        let mut count = 0;
        loop {
            let one = rustix::net::accept(&socket).unwrap();
            if stop.load(Ordering::SeqCst) {
                return count;
            }
            drop(one);
            count += 1;
        }
    })
}

#[test]
fn nobody_waits_for_ever_for_a_broker_that_does_not_come() {
    let (place, server) = volume_with(&["a"]);
    let volume = connect_within(&place, Duration::from_millis(1500));
    let a = open(&volume, "a");
    write(&a, 0, 7);
    server.signal(Signal::STOP);
    let sent = sends(&volume, &a, SegmentOp::Read { offset: 0 }, Some(page_of(&a, 0)));
    server.killed();
    notices(&volume);
    let stop = Arc::new(AtomicBool::new(false));
    let away = sends_everybody_away(&place, &stop);
    let before = (on_processor(), Instant::now());
    let overdue = a
        .write_at(0, page_of(&a, 8))
        .within(Duration::from_millis(50))
        .wait()
        .unwrap_err();
    assert_eq!(overdue.error.code(), "ECANCELED", "{}", overdue.error);
    assert!(overdue.buffer.is_some());
    assert!(matches!(read(&a, 0).unwrap_err().fault, Fault::ServiceEnded));
    // It has slept, and looked for a broker with pauses that grow: some ten times, not thousands.
    let (busy, waited) = (on_processor() - before.0, before.1.elapsed());
    assert!(busy < waited / 4, "{busy:?} of {waited:?}");
    stop.store(true, Ordering::SeqCst);
    rustix::net::connect(packets(), &SocketAddrUnix::new(place.path("vol.sock")).unwrap()).unwrap();
    let attempts = away.join().unwrap();
    assert!((2..50).contains(&attempts), "{attempts}");
    let outcome = outcome(&volume, sent);
    assert_eq!(outcome.result.unwrap_err().code(), "EPIPE");
    assert!(outcome.memory.into_buffer().is_none(), "a kernel may be at it");
    assert!(matches!(volume.list().wait().unwrap_err().fault, Fault::ServiceEnded));
    // One that comes too late is not for this link.
    let server = next(&place);
    assert!(matches!(read(&a, 0).unwrap_err().fault, Fault::ServiceEnded));
    assert!(volume.close().is_err());
    server.stops_well();
}

/// Who asks for any news of a link that has ended is told so, and does not sleep for what cannot come.
#[test]
fn nobody_sleeps_for_news_when_the_limit_is_over() {
    let (place, server) = volume_with(&[]);
    let volume = connect_within(&place, Duration::ZERO);
    server.killed();
    while volume.list().wait().is_ok() {}
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let any = Wait::Until {
            count: 0,
            min_wait: Duration::ZERO,
            deadline: None,
        };
        // The first ones may hear what was rung before.
        (0..4).try_for_each(|_| tell.send(volume.turn(any).map_err(|error| error.code())))
    });
    for _ in 0..4 {
        assert_eq!(told.recv_timeout(PATIENCE).expect("it ends"), Err("EPIPE"));
    }
}

/// What was not sent ends at once; what a broker had is not asked of the next one.
#[test]
fn what_is_called_off_while_nobody_serves_is_not_done() {
    let (place, server) = volume_with(&["a"]);
    let volume = connect(&place);
    let a = open(&volume, "a");
    write(&a, 0, 7);
    server.signal(Signal::STOP);
    let read_under_way = sends(&volume, &a, SegmentOp::Read { offset: 0 }, Some(page_of(&a, 1)));
    server.killed();
    notices(&volume);
    let op = SegmentOp::Write { offset: 0 };
    let between = sends(&volume, &a, op, Some(page_of(&a, 8)));
    for ticket in [between, read_under_way] {
        volume.cancel(ticket);
    }
    let ended = |ticket| {
        let outcome = outcome(&volume, ticket);
        assert_eq!(outcome.result.unwrap_err().code(), "ECANCELED");
        outcome.memory.into_buffer().expect("its own")
    };
    assert_eq!(ended(between)[0], 8);
    let server = next(&place);
    assert_eq!(ended(read_under_way)[0], 1);
    assert_eq!(read(&a, 0).unwrap(), 7);
    volume.close().unwrap();
    server.stops_well();
}

/// A socket may be there before its broker is: systemd's, or one of a broker that opens its volume.
#[test]
fn deadlines_hold_while_somebody_accepts_and_says_nothing() {
    let (place, server) = volume_with(&["a"]);
    let volume = connect(&place);
    let a = open(&volume, "a");
    server.killed();
    notices(&volume);
    let path = place.path("vol.sock");
    let _ = std::fs::remove_file(&path);
    let socket = listening(&path);
    let attempt = rustix::net::accept(&socket).unwrap();
    let write = a.write_at(0, page_of(&a, 8)).within(Duration::from_millis(50));
    assert_eq!(write.wait().unwrap_err().error.code(), "ECANCELED");
    // That was not for the end of the attempt.
    let hear = || rustix::net::recv(&attempt, &mut [0; 4096][..], RecvFlags::DONTWAIT).map(|(len, _)| len);
    assert!(hear().unwrap() > 0, "a greeting");
    assert_eq!(hear(), Err(rustix::io::Errno::AGAIN));
    // Who closes is not waited for either: the attempt ends.
    volume.close().unwrap_err();
    let mut heard = [PollFd::new(&attempt, PollFlags::IN)];
    rustix::event::poll(&mut heard, None).unwrap();
    assert_eq!(hear(), Ok(0));
}

#[test]
fn who_closes_does_not_wait_for_a_broker() {
    let (place, server) = volume_with(&["a"]);
    let volume = connect(&place);
    let a = open(&volume, "a");
    server.signal(Signal::STOP);
    let sent = sends(&volume, &a, SegmentOp::Read { offset: 0 }, Some(page_of(&a, 0)));
    server.killed();
    let waiting = std::thread::spawn(move || read(&a, 0).map(drop).unwrap_err().to_string());
    while volume.in_flight() < 2 {
        std::thread::yield_now();
    }
    let closed = volume.clone().close().unwrap_err();
    assert!(matches!(closed.fault, Fault::ServiceEnded), "{closed}");
    waiting.join().unwrap();
    assert!(outcome(&volume, sent).result.is_err());
}

/// The same broker may be at the requests of a session that it has ended: nothing of them comes back, and nothing goes on.
#[test]
fn a_broker_that_has_sent_its_client_away_is_no_other_one() {
    let place = Place::new();
    place.write("rules", b"everybody may read write manage\n");
    let mut server = Server::on_new_volume(&place, "--grants rules");
    let volume = connect_within(&place, Duration::from_millis(500));
    volume.create_segment("a", &CreateOptions::of_size(MIB)).wait().unwrap();
    let a = open(&volume, "a");
    place.write("rules", b"everybody may nothing\n");
    server.signal(Signal::HUP);
    server.says("rules");
    place.write("rules", b"everybody may read write manage\n");
    server.signal(Signal::HUP);
    server.says("rules");
    assert!(matches!(read(&a, 0).unwrap_err().fault, Fault::ServiceEnded));
    server.stops_well();
}

/// A log's appends are not repeated, so it ends with its broker: a link that goes on would have one that does not.
#[test]
fn a_log_is_for_a_link_of_its_own() {
    let (place, server) = volume_with(&["log"]);
    let volume = connect(&place);
    let refused = open(&volume, "log")
        .create_log(&LogOptions::default())
        .wait()
        .unwrap_err();
    assert_eq!(refused.code(), "EOPNOTSUPP");
    volume.close().unwrap();
    let volume = Remote::connect(place.path("vol.sock")).unwrap();
    let log = open(&volume, "log").create_log(&LogOptions::default()).wait().unwrap();
    log.close().wait().unwrap();
    server.stops_well();
}

/// A broker takes 32 questions of a session at a time. The others wait in the link, and no broker has heard of them.
#[test]
fn what_was_not_sent_is_sent_to_the_next_one() {
    const ASKED: usize = 60;
    const TAKEN: usize = 32;
    let place = Place::new();
    // One user may hold a quarter of them, and the next broker makes what the first one may not have done.
    place.baio("format vol.img --size 64M --segments 512").succeeds();
    let server = next(&place);
    let volume = connect(&place);
    let options = CreateOptions::of_size(64 << 10);
    server.signal(Signal::STOP);
    let asked: Vec<_> = (0..ASKED)
        .map(|number| {
            let create = volume.create_segment(&format!("s{number}"), &options);
            let create = match number % 2 {
                0 => create.named(OperationName::first([number as u8 + 1; 16])),
                _ => create,
            };
            std::thread::spawn(move || create.wait().map(|info| info.name))
        })
        .collect();
    while volume.in_flight() < ASKED {
        std::thread::yield_now();
    }
    // All of them are with the wire now.
    volume.turn(Wait::No).unwrap();
    server.killed();
    let server = next(&place);
    let (done, failed): (Vec<_>, Vec<_>) = asked
        .into_iter()
        .map(|asked| asked.join().unwrap())
        .partition(Result::is_ok);
    let codes: Vec<_> = failed.into_iter().map(|failed| failed.unwrap_err().code()).collect();
    assert!(
        codes.len() <= TAKEN && codes.iter().all(|code| ["EINDETERMINATE", "EPIPE"].contains(code)),
        "{codes:?}"
    );
    let mut done: Vec<String> = done.into_iter().map(Result::unwrap).collect();
    let listed = volume.list().wait().unwrap();
    let mut listed: Vec<String> = listed.into_iter().map(|info| info.name).collect();
    done.sort();
    listed.sort();
    assert_eq!(done, listed);
    volume.close().unwrap();
    server.stops_well();
}

#[test]
fn operations_with_a_name_are_asked_again_and_never_done_twice() {
    let (place, server) = volume_with(&[]);
    let volume = connect(&place);
    let options = CreateOptions::of_size(MIB);
    let names = ["done", "not-done", "nameless"];
    server.signal(Signal::STOP);
    let asked = names.map(|name| {
        let volume = volume.clone();
        let create = volume.create_segment(name, &options);
        let create = match name {
            "done" => create.named(OperationName::first([1; 16])),
            "not-done" => create.named(OperationName::first([2; 16])),
            _ => create,
        };
        std::thread::spawn(move || create.wait())
    });
    let listed = {
        let volume = volume.clone();
        std::thread::spawn(move || volume.list().wait())
    };
    while volume.in_flight() < 4 {
        std::thread::yield_now();
    }
    server.killed();
    // It came about before the broker died, as far as the next one can see.
    let mut local = None;
    // On a busy machine the kernel takes longer to end a killed process's ring than an opening waits for a holder without a name.
    until("the dead broker's lock is gone", || {
        local = Local::open(place.path("vol.img")).ok();
        local.is_some()
    });
    let local = local.unwrap();
    let create = local.create_segment("done", &options);
    create.named(OperationName::first([1; 16])).wait().unwrap();
    local.close().unwrap();
    let server = next(&place);
    let [done, not_done, nameless] = asked.map(|asked| asked.join().unwrap());
    assert_eq!(done.unwrap().name, "done");
    assert_eq!(not_done.unwrap_err().code(), "EINDETERMINATE");
    assert!(matches!(nameless.unwrap_err().fault, Fault::ServiceEnded));
    let listed = listed.join().unwrap().unwrap();
    assert_eq!(listed.iter().map(|info| &*info.name).collect::<Vec<_>>(), ["done"]);
    volume.close().unwrap();
    server.stops_well();
}
