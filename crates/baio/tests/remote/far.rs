//! The promise: a link to a broker is a link like any other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use baio::{
    Access, CreateOptions, Durability, Fault, Link, Memory, Mode, Remote, ResizeOptions, SegmentOp, StatusWord,
    Vectored, Wait,
};

use crate::common::broker::Served;
use crate::common::{self, begun, segment};

pub(crate) const MIB: u64 = 1 << 20;

#[test]
fn a_days_work() {
    let mut served = Served::new(|_| {});
    let volume = served.connect();
    assert_eq!(volume.name(), "served");
    assert_eq!(volume.identity().uid, rustix::process::geteuid().as_raw());
    let made = volume.create_segment("a", &CreateOptions::of_size(MIB)).wait().unwrap();
    assert_eq!((made.size_bytes, made.state), (MIB, "live"));
    let a = volume.open_segment("a", Access::Write).wait().unwrap();
    assert_eq!(a.name(), format!("served#{}/a", volume.identity().uid));

    let mut page = a.buffer(8192).unwrap();
    page.fill(7);
    let done = a.write_at(4096, page).durable(Durability::Data).wait().unwrap();
    assert_eq!(done.bytes, 8192);
    assert!(done.buffer.iter().all(|byte| *byte == 7));
    a.write_at(12288, vec![9; 100]).cached().wait().unwrap();
    let read = a.read_at(12200, vec![1; 200]).cached().wait().unwrap();
    assert_eq!(read.buffer[..88], [7; 88]);
    assert_eq!(read.buffer[88..188], [9; 100]);
    assert_eq!(read.buffer[188..], [0; 12]);
    a.sync(Durability::Full).wait().unwrap();
    a.fence(Durability::Data).wait().unwrap();
    let mut empty = a.buffer(4096).unwrap();
    empty.fill(1);
    let read = a.read_exact_at(8192, empty).wait().unwrap();
    assert!(read.buffer.iter().all(|byte| *byte == 7));
    a.discard(4096, 4096).wait().unwrap();
    let read = a.read_at(4096, a.buffer(4096).unwrap()).wait().unwrap();
    assert!(read.buffer.iter().all(|byte| *byte == 0));

    volume
        .resize_segment("a", &ResizeOptions::to_size(2 * MIB))
        .wait()
        .unwrap();
    assert_eq!(a.size().wait().unwrap(), 2 * MIB);
    volume.rename_segment("a", "b").wait().unwrap();
    let names = |volume: &Remote| {
        volume
            .list()
            .wait()
            .unwrap()
            .into_iter()
            .map(|info| info.name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&volume), ["b"]);
    assert!(a.prefetch(&[0..4, 8..9]).wait().unwrap() > 0);
    a.drop_cached(0..4).wait().unwrap();
    a.keep_cached(0..2).wait().unwrap();
    a.keep_cached_no_more(0..2).wait().unwrap();
    a.read_pattern(baio::Pattern::Random).wait().unwrap();
    let view = volume.info().wait().unwrap();
    assert!(view.size_bytes > 32 * MIB && view.own.used.segments == 1 && view.whole.is_some());
    let own = volume.quota(volume.identity().uid).wait().unwrap();
    assert_eq!(own.used, view.own.used);
    let found = volume.check().wait().unwrap();
    assert_eq!(
        (found.problems.len(), found.segments, found.owners),
        (0, 1, 1),
        "{found:?}"
    );
    let packed = volume.defrag().wait().unwrap();
    assert_eq!(
        (packed.unmoved.len(), packed.free_bytes),
        (0, packed.largest_free_bytes),
        "{packed:?}"
    );
    drop(a);
    volume.delete_segment("b").wait().unwrap();
    assert_eq!(names(&volume), [""; 0]);
    volume.close().unwrap();
    served.end();
}

#[test]
fn a_list_of_many_messages_is_one() {
    let served = Served::new(|options| options.questions_max = 3);
    let volume = served.connect();
    let name = |number: u32| format!("{number:0>255}");
    // More at a time than the broker takes questions.
    volume
        .block_on(async {
            let made = (0..300).map(|number| volume.create_segment(&name(number), &CreateOptions::of_size(4096)));
            for made in futures_util::future::join_all(made).await {
                made.unwrap();
            }
        })
        .unwrap();
    let mut names: Vec<_> = volume
        .list()
        .wait()
        .unwrap()
        .into_iter()
        .map(|info| info.name)
        .collect();
    names.sort();
    assert_eq!(names, (0..300).map(name).collect::<Vec<_>>());
    // Several lists at a time.
    let lists = volume
        .block_on(futures_util::future::join_all((0..8).map(|_| volume.list())))
        .unwrap();
    assert!(lists.into_iter().all(|list| list.unwrap().len() == 300));
}

#[test]
fn what_fails_there_is_told_here() {
    let served = Served::new(|_| {});
    let volume = served.connect();
    let a = segment(&volume, "a", MIB);
    let error = volume.open_segment("nothing", Access::Read).wait().unwrap_err();
    assert!(matches!(error.fault, Fault::NotFound), "{error:?}");
    assert!(
        error.to_string().starts_with("open served#") && error.code() == "ENOENT",
        "{error}"
    );
    let error = volume
        .create_segment("a", &CreateOptions::of_size(MIB))
        .wait()
        .unwrap_err();
    assert!(matches!(error.fault, Fault::Exists), "{error:?}");
    let error = volume
        .create_segment("b", &CreateOptions::of_size(1 << 40))
        .wait()
        .unwrap_err();
    assert!(
        matches!(error.fault, Fault::Told(_)) && error.code() == "ENOSPC",
        "{error:?}"
    );
    assert!(
        error.cure().is_some() && !error.to_string().contains("volume.img"),
        "{error}"
    );

    let failed = a.write_at(MIB, a.buffer(4096).unwrap()).wait().unwrap_err();
    assert!(
        matches!(failed.error.fault, Fault::Beyond { size: MIB, .. }),
        "{failed:?}"
    );
    assert!(failed.buffer.is_some());
    let failed = a.write_at(100, vec![0; 4096]).wait().unwrap_err();
    assert_eq!(failed.error.code(), "EINVAL", "{failed:?}");
    assert!(failed.buffer.is_some());
    let failed = a
        .run(a.request(SegmentOp::Read { offset: 0 }, a.buffer(4096).unwrap().freeze()))
        .wait();
    let failed = failed.unwrap_err();
    assert!(
        matches!(failed.error.fault, Fault::Io(baio::IoError::ReadOnlyMemory)),
        "{failed:?}"
    );

    // What a broker does not do yet.
    let watched = volume.list().watched().0;
    let log = segment(&volume, "log", MIB)
        .create_log(&baio::LogOptions::default())
        .wait()
        .unwrap();
    for error in [
        a.set_log(&log).wait().unwrap_err(),
        volume.metrics().wait().unwrap_err(),
        volume.set_durable_lsn(1).wait().unwrap_err(),
        volume.with_pool(|_| ()).wait().unwrap_err(),
        a.pin(0).wait().unwrap_err(),
        watched.wait().unwrap_err(),
    ] {
        assert!(
            matches!(error.fault, Fault::NotFar(_)) && error.cure().is_some(),
            "{error:?}"
        );
    }
    assert!(volume.list().wait().is_ok());
}

#[test]
fn who_finds_no_broker_is_told_why() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let why = |path: &std::path::Path, code: &str| {
        let error = Remote::connect(path).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.need().is_some() && error.cure().is_some(), "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        error
    };
    why(&path, "ENOENT");
    std::fs::write(&path, "").unwrap();
    why(&path, "ECONNREFUSED");
    let served = Served::new(|options| options.clients_of_one_max = 1);
    let error = Remote::connect_with(&served.socket, "other", &baio::LinkOptions::default()).unwrap_err();
    assert!(
        matches!(error.fault, Fault::Told(_)) && error.code() == "ENOENT",
        "{error:?}"
    );
    let options = common::options(baio::Backend::Auto, 8);
    let one = Remote::connect_with(&served.socket, "served", &options).unwrap();
    why(&served.socket, "EAGAIN");
    drop(one);
}

#[test]
fn tickets_carry_any_memory_too() {
    let served = Served::new(|_| {});
    let volume = served.connect();
    let a = segment(&volume, "a", MIB);
    let request = |op, memory: Memory, tag| {
        let mut request = a.request(op, memory);
        request.tag = tag;
        request
    };
    let vec = |bytes: Vec<u8>| Memory::from(baio::Foreign::of_vec(bytes));
    let word = StatusWord::new();
    let mut write = request(SegmentOp::Write { offset: 0 }, vec(vec![5; 4096]), 17);
    write.status = Some(word.clone());
    volume.start(write).unwrap();
    while volume.in_flight() > 0 {
        volume.turn(Wait::one()).unwrap();
    }
    let outcome = volume.next_outcome().unwrap();
    assert_eq!((outcome.tag, outcome.result.unwrap()), (17, 4096));
    assert!(matches!(outcome.memory, Memory::Foreign(_)));
    // A list, and a tag like those of the link itself.
    let mut list = Vectored::with_capacity(2);
    list.push(vec(vec![0; 1024])).unwrap();
    list.push(vec(vec![0; 3072])).unwrap();
    for tag in [0xba10_c0b1 << 32 | 1, 3] {
        let ticket = volume
            .start(request(SegmentOp::Read { offset: 0 }, Memory::None, tag))
            .unwrap();
        assert_eq!(volume.wait(ticket).unwrap().unwrap().tag, tag);
    }
    let ticket = volume
        .start(request(SegmentOp::Read { offset: 0 }, Memory::Many(list), 4))
        .unwrap();
    let outcome = volume.wait(ticket).unwrap().unwrap();
    let mut read = [0; 4096];
    outcome.memory.copy_out_at(0, &mut read);
    assert_eq!((outcome.tag, read), (4, [5; 4096]));
    // What can never go ends, with its memory.
    let ticket = volume
        .start(request(SegmentOp::Read { offset: 0 }, vec(vec![0; 8 << 20]), 5))
        .unwrap();
    let outcome = volume.wait(ticket).unwrap().unwrap();
    assert_eq!(outcome.result.unwrap_err().code(), "ENOBUFS");
    assert_eq!((outcome.tag, outcome.memory.len()), (5, 8 << 20));
    let ticket = volume
        .start(request(SegmentOp::Read { offset: 0 }, vec(vec![0; 4096]), 6))
        .unwrap();
    volume.abandon(ticket);
    a.sync(Durability::Data).wait().unwrap();
}

#[test]
fn eight_threads_at_once() {
    let served = Served::new(|_| {});
    let volume = served.connect();
    let a = segment(&volume, "a", 8 * MIB);
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let (volume, a) = (&volume, &a);
            scope.spawn(move || {
                for round in 0..100_u64 {
                    let at = thread * MIB + round % 16 * 4096;
                    let value = (thread * 100 + round) as u8;
                    let mut page = a.buffer(4096).unwrap();
                    page.fill(value);
                    let mode = if round % 2 == 0 { Mode::Direct } else { Mode::Cached };
                    a.write_at(at, page).mode(mode).wait().unwrap();
                    let read = a.read_at(at, vec![0; 4096]).mode(mode).wait().unwrap();
                    assert!(read.buffer.iter().all(|byte| *byte == value));
                    if round % 10 == 0 {
                        let name = format!("{thread}-{round}");
                        volume
                            .create_segment(&name, &CreateOptions::of_size(4096))
                            .wait()
                            .unwrap();
                        volume.delete_segment(&name).wait().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(volume.in_flight(), 0);
}

/// Nobody of this link's threads blocks in it: the helper reaps.
#[test]
fn futures_are_polled_elsewhere() {
    let served = Served::new(|_| {});
    let volume = served.connect();
    let a = segment(&volume, "a", MIB);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let tasks = (0..32_u64).map(|at| {
            let (volume, a) = (volume.clone(), a.clone());
            tokio::spawn(async move {
                let name = format!("t{at}");
                volume
                    .create_segment(&name, &CreateOptions::of_size(4096))
                    .await
                    .unwrap();
                a.write_at(at * 4096, vec![at as u8; 4096]).await.unwrap();
                let read = a.read_at(at * 4096, vec![0; 4096]).cached().await.unwrap();
                assert_eq!(read.buffer, [at as u8; 4096]);
            })
        });
        let all = futures_util::future::join_all(tasks.collect::<Vec<_>>());
        let all = tokio::time::timeout(Duration::from_secs(60), all)
            .await
            .expect("nobody reaps");
        all.into_iter().for_each(|task| task.unwrap());
    });
    assert_eq!(volume.list().wait().unwrap().len(), 33);
}

/// While the volume is frozen writes wait: so there is something to cancel, and a deadline can pass.
#[test]
fn what_waits_is_cancelled_and_has_a_deadline() {
    let served = Served::new(|_| {});
    let volume = served.connect();
    let a = segment(&volume, "a", MIB);
    let frozen = volume.freeze().wait().unwrap();
    let late = a
        .write_at(0, vec![1; 4096])
        .within(Duration::from_millis(50))
        .wait()
        .unwrap_err();
    assert!(matches!(late.error.code(), "ECANCELED" | "EINDETERMINATE"), "{late:?}");
    let mut write = begun(a.write_at(4096, vec![2; 4096]));
    write.as_mut().get_mut().cancel();
    let failed = volume.block_on(write).unwrap().unwrap_err();
    assert_eq!(failed.error.code(), "ECANCELED", "{failed:?}");
    assert_eq!(failed.buffer.unwrap(), [2; 4096]);
    // One that waits, one that nobody waits for, and a second freeze that is given up.
    let write = begun(a.write_at(8192, vec![3; 4096]));
    drop(begun(volume.create_segment("given up", &CreateOptions::of_size(4096))));
    drop(begun(a.write_at(12288, vec![3; 4096])));
    let read = a.read_at(0, vec![1; 4096]).wait().unwrap();
    assert_eq!(read.buffer, [0; 4096]);
    assert!(volume.in_flight() > 0);
    drop(frozen);
    volume.block_on(write).unwrap().unwrap();
    a.sync(Durability::Data).wait().unwrap();
}

/// Each write that is completed at one client is read by the other, through the cache and past it.
#[test]
fn two_clients_see_each_others_writes() {
    let served = Served::new(|_| {});
    let (one, other) = (served.connect(), served.connect());
    let a = segment(&one, "a", MIB);
    let b = other.open_segment("a", Access::Write).wait().unwrap();
    for round in 1..50_u8 {
        let at = u64::from(round % 4) * 4096;
        a.write_at(at, vec![round; 4096]).direct().wait().unwrap();
        let read = b.read_at(at, vec![0; 4096]).cached().wait().unwrap();
        assert_eq!(read.buffer, [round; 4096]);
        b.write_at(at, vec![!round; 100]).cached().wait().unwrap();
        let read = a.read_at(at, vec![0; 4096]).cached().wait().unwrap();
        assert_eq!(
            (&read.buffer[..100], &read.buffer[100..]),
            (&[!round; 100][..], &[round; 3996][..])
        );
    }
    // A client that goes takes what it froze with it.
    let frozen = one.freeze().wait().unwrap();
    let write = begun(b.write_at(0, vec![1; 4096]));
    drop(a);
    drop(one);
    other.block_on(write).unwrap().unwrap();
    drop(frozen);
}

#[test]
fn a_broker_that_ends_under_load_ends_every_request() {
    for _ in 0..5 {
        let mut served = Served::new(|_| {});
        let volume = served.connect();
        let a = segment(&volume, "a", 8 * MIB);
        let (done, is_over) = (AtomicU64::new(0), Arc::new(AtomicBool::new(false)));
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (volume, a, done, is_over) = (&volume, &a, &done, &is_over);
                scope.spawn(move || {
                    for round in 0.. {
                        let at = (thread * 64 + round % 64) * 4096;
                        let ended: baio::Result<()> = match round % 4 {
                            0 => a.write_at(at, vec![1; 4096]).wait().map(drop).map_err(|failed| {
                                // The caller's own memory comes back, whoever has the copy.
                                assert!(failed.buffer.is_none_or(|buffer| buffer == [1; 4096]));
                                failed.error
                            }),
                            1 => a
                                .read_at(at, vec![0; 4096])
                                .cached()
                                .wait()
                                .map(drop)
                                .map_err(|failed| failed.error),
                            2 => a.sync(Durability::Data).wait().map(drop).map_err(|failed| failed.error),
                            _ => volume.list().wait().map(drop),
                        };
                        match ended {
                            Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                            Err(error) => {
                                let known = ["EPIPE", "EINDETERMINATE", "ECANCELED", "ESTALE"].contains(&error.code());
                                assert!(known, "{error:?}");
                                is_over.store(true, Ordering::Relaxed);
                                break;
                            }
                        }
                    }
                });
            }
            while done.load(Ordering::Relaxed) < 200 && !is_over.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            served.stop();
        });
        // From now on nothing is taken.
        let error = volume.list().wait().unwrap_err();
        assert!(
            matches!(error.fault, Fault::ServiceEnded) && error.cure().is_some(),
            "{error:?}"
        );
        let failed = a.write_at(0, vec![0; 4096]).wait().unwrap_err();
        assert!(matches!(failed.error.fault, Fault::ServiceEnded), "{failed:?}");
        assert_eq!(volume.in_flight(), 0);
        assert!(matches!(volume.close().unwrap_err().fault, Fault::ServiceEnded));
        let path = served.volume();
        served.end();
        // It was closed properly, and nobody has it.
        baio::Local::open(&path).unwrap().close().unwrap();
    }
}

/// A client that only turns and never sleeps hears of the end too.
#[test]
fn who_never_sleeps_sees_the_end() {
    let served = Served::new(|_| {});
    let volume = served.connect();
    let a = segment(&volume, "a", MIB);
    let frozen = volume.freeze().wait().unwrap();
    let ticket = volume
        .start(a.request(SegmentOp::Write { offset: 0 }, a.buffer(4096).unwrap()))
        .unwrap();
    volume.turn(Wait::No).unwrap();
    let free = volume.arena_free_bytes();
    served.stop();
    while volume.in_flight() > 0 {
        volume.turn(Wait::No).unwrap();
    }
    let outcome = volume.wait(ticket).unwrap().unwrap();
    assert!(matches!(
        outcome.result.unwrap_err().code(),
        "EINDETERMINATE" | "ECANCELED"
    ));
    if outcome.memory.is_empty() {
        // The other side may be at it still: nobody gets it again.
        assert_eq!(volume.arena_free_bytes(), free);
    }
    drop(frozen);
}

#[test]
fn close_ends_the_session_and_nothing_else() {
    let mut served = Served::new(|_| {});
    let (one, other) = (served.connect(), served.connect());
    let a = segment(&one, "a", MIB);
    let again = one.clone();
    one.close().unwrap();
    let failed = a.read_at(0, vec![0; 4096]).wait().unwrap_err();
    assert!(matches!(failed.error.fault, Fault::Stale), "{failed:?}");
    assert!(matches!(again.list().wait().unwrap_err().fault, Fault::Stale));
    again.close().unwrap();
    assert_eq!(other.list().wait().unwrap().len(), 1);
    served.end();
}

/// A broker that dies with a write in its hands: its kernel may be at the memory still, so nobody gets that again.
#[test]
fn what_a_dead_broker_had_is_lent_no_more() {
    use baio_words::session::{Answer, FromClient, VERSION, Welcome};
    use rustix::net::{
        AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketType,
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    let (die, dies) = std::sync::mpsc::channel::<()>();
    let broker = std::thread::spawn(move || {
        let socket = rustix::net::accept(&listener).unwrap();
        let mut bytes = [0; 4096];
        rustix::net::recv(&socket, &mut bytes, RecvFlags::empty()).unwrap();
        let memory = baio_ring::SessionMemory::create(8, 1 << 20).unwrap();
        let layout = *memory.layout();
        let welcome = Welcome {
            version: VERSION,
            features: 0,
            places: 8,
            questions_max: 1,
            uid: 7,
            memory_bytes: layout.bytes,
            submissions: layout.submissions,
            completions: layout.completions,
            arena_at: layout.arena_at,
            arena_bytes: layout.arena_bytes,
            volume: "mortal".into(),
            cached: false,
            block_size: 4096,
        };
        let fds = [memory.region().fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let message = welcome.encode();
        let flags = SendFlags::empty();
        rustix::net::sendmsg(&socket, &[std::io::IoSlice::new(&message)], &mut control, flags).unwrap();
        let (_, len) = rustix::net::recv(&socket, &mut bytes, RecvFlags::empty()).unwrap();
        let Ok(FromClient::Question { id, .. }) = FromClient::decode(&bytes[..len]) else {
            panic!("no question")
        };
        let answer = Answer::Opened {
            handle: baio_words::entry::HandleWords::default().into(),
            access: Access::Write,
            info: baio::SegmentInfo::default(),
        };
        rustix::net::send(&socket, &answer.encode(id).unwrap(), flags).unwrap();
        dies.recv().unwrap();
    });
    let volume = Remote::connect(&path).unwrap();
    assert_eq!(volume.identity().uid, 7);
    let a = volume.open_segment("a", Access::Write).wait().unwrap();
    let write = |len| a.request(SegmentOp::Write { offset: 0 }, a.buffer(len).unwrap());
    let sent = volume.start(write(4096)).unwrap();
    volume.turn(Wait::No).unwrap();
    let queued = volume.start(write(8192)).unwrap();
    die.send(()).unwrap();
    broker.join().unwrap();
    let outcome = volume.wait(sent).unwrap().unwrap();
    assert_eq!(outcome.result.unwrap_err().code(), "EINDETERMINATE");
    assert!(outcome.memory.is_empty());
    drop(volume.wait(queued));
    assert!(volume.arena_free_bytes() <= (1 << 20) - 4096);
    assert!(matches!(
        a.read_at(0, vec![0; 8]).wait().unwrap_err().error.fault,
        Fault::ServiceEnded
    ));
}
