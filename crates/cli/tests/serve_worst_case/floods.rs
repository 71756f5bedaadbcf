//! The worst that a user can think of: each kind in a thread of its own, over and over, until the process is killed. Nothing here minds a
//! refusal, nor being sent away.

use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use baio_words::entry::{HandleWords, Op, Place, Submission};
use baio_words::session::{Answer, DOORBELL, GOES_ON, Hello, Question};
use baio_words::{Access, CreateOptions, Durability, Hint, Mode, OperationName, ResizeOptions, Zeroing};

use crate::raw::{Client, Wire, create, hello};

const KINDS: [fn(&Path); 15] = [
    comes_and_goes,
    says_nothing,
    leaves_welcomes,
    changes,
    moves,
    opens_and_walks,
    leaves_lists,
    reads_lists,
    asks_what_is_answered_at_once,
    copies,
    is_at_the_device,
    keeps_memory,
    keeps_pages,
    hands_on_and_leaves,
    shouts,
];

/// Does all of it, for as long as its parent lives.
pub(crate) fn rage(socket: &Path) {
    use rustix::process::{Resource, Signal, getrlimit, set_parent_process_death_signal, setrlimit};
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    // Whoever is sent away finds out by a panic, and comes again.
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::scope(|scope| {
        for kind in KINDS {
            scope.spawn(move || {
                loop {
                    let _ = catch_unwind(AssertUnwindSafe(|| kind(socket)));
                }
            });
        }
    });
}

fn client(socket: &Path) -> Client {
    let hello = Hello {
        features: GOES_ON,
        ..hello()
    };
    Wire::connect(socket).greet(&hello).expect("a welcome")
}

fn clients(socket: &Path, count: usize) -> Vec<Client> {
    (0..count).map(|_| client(socket)).collect()
}

/// Connects and hangs up at each step there is.
fn comes_and_goes(socket: &Path) {
    for turn in 0..400 {
        let wire = Wire::connect(socket);
        match turn % 4 {
            0 => {}
            1 => drop(wire.try_send(&hello().encode())),
            2 => drop(wire.try_send(&[0; 9])),
            _ => drop(wire.greet(&hello())),
        }
    }
}

/// Many places, and no hello in any of them.
fn says_nothing(socket: &Path) {
    let wires: Vec<Wire> = (0..150).map(|_| Wire::connect(socket)).collect();
    for wire in wires {
        wire.receive();
    }
}

/// Many welcomes, each with a descriptor, and none of them received. Half of the sessions end at once.
fn leaves_welcomes(socket: &Path) {
    let wires: Vec<Wire> = (0..100).map(|_| Wire::connect(socket)).collect();
    for (nth, wire) in wires.iter().enumerate() {
        wire.try_send(&hello().encode());
        if nth % 2 == 0 {
            wire.try_send(&[9; 9]);
        }
    }
    std::thread::sleep(Duration::from_secs(2));
}

/// Poses the same kind of question as often as a session may, in each, and reads what comes.
fn poses(clients: &mut [Client], question: impl Fn(usize, u32) -> Question) {
    let mut posed = Vec::new();
    for (nth, client) in clients.iter_mut().enumerate() {
        for at in 0..32 {
            posed.push((nth, client.pose(&question(nth, at))));
        }
    }
    for (nth, id) in posed {
        while let Answer::Segments { more: true, .. } = clients[nth].answer(id) {}
    }
}

fn changes(socket: &Path) {
    let mut clients = clients(socket, 20);
    let uid = clients[0].uid();
    let name = |nth, at| format!("change {nth} {at}");
    poses(&mut clients, |nth, at| create(uid, &name(nth, at), 4096));
    poses(&mut clients, |nth, at| Question::Delete {
        operation: OperationName::NONE,
        owner_uid: uid,
        name: name(nth, at),
    });
}

/// Segments grow past each other, which moves them, and shrink again.
fn moves(socket: &Path) {
    let mut clients = clients(socket, 4);
    let uid = clients[0].uid();
    let name = |at: u32| format!("moved {}", at % 8);
    poses(&mut clients, |_, at| create(uid, &name(at), 64 << 10));
    for turn in 0..8 {
        poses(&mut clients, |nth, at| Question::Resize {
            operation: OperationName::NONE,
            owner_uid: uid,
            name: name(at),
            options: ResizeOptions::to_size(64 << (10 + (turn + nth + at as usize) % 6)),
        });
        poses(&mut clients, |nth, at| Question::Rename {
            operation: OperationName::NONE,
            owner_uid: uid,
            old: name(at),
            new: name(at + nth as u32 + 1),
        });
    }
}

fn opens_and_walks(socket: &Path) {
    let mut clients = clients(socket, 8);
    let uid = clients[0].uid();
    clients[0].made_once("opened", 4096);
    for turn in 0..8 {
        poses(&mut clients, |_, at| match at % 8 {
            0 => Question::OpenKnown {
                owner_uid: uid,
                name: "gone".into(),
                access: Access::Read,
                identity: Some([turn; 16]),
            },
            _ => Question::Open {
                owner_uid: uid,
                name: if at % 2 == 0 { "opened" } else { "not there" }.into(),
                access: Access::Read,
            },
        });
    }
}

/// Segments with the longest names, and lists of them that nobody reads.
fn leaves_lists(socket: &Path) {
    let mut clients = clients(socket, 20);
    let uid = clients[0].uid();
    poses(&mut clients, |nth, at| {
        create(uid, &format!("{:0>255}", nth as u32 * 32 + at), 4096)
    });
    for client in &clients {
        for id in 1000..1100 {
            client.wire.try_send(&Question::List.encode(id).unwrap());
        }
    }
    std::thread::sleep(Duration::from_secs(2));
}

fn reads_lists(socket: &Path) {
    let mut clients = clients(socket, 8);
    for _ in 0..4 {
        poses(&mut clients, |_, _| Question::List);
    }
}

fn asks_what_is_answered_at_once(socket: &Path) {
    let mut clients = clients(socket, 16);
    for _ in 0..64 {
        poses(&mut clients, |_, at| match at % 3 {
            0 => Question::Info,
            1 => Question::Status,
            _ => Question::Opening,
        });
    }
}

/// A segment of this user's as long as two arenas; all who come share it.
fn opened(clients: &mut [Client]) -> Vec<HandleWords> {
    clients
        .iter_mut()
        .map(|client| client.made_once("large", 8 << 20))
        .collect()
}

/// Each has all of its places under way with this entry, several times over.
fn submits(clients: &mut [Client], handles: &[HandleWords], entry: impl Fn(&Client, u32) -> Submission) {
    for turn in 0..4 {
        for (client, handle) in clients.iter_mut().zip(handles) {
            for place in 0..client.welcome.places {
                let tag = client.tag(place);
                let entry = entry(client, place + turn);
                let entry = Submission {
                    tag,
                    handle: *handle,
                    ..entry
                };
                client.push(&entry.encode());
            }
            client.publish();
        }
        for client in &mut *clients {
            for _ in 0..client.welcome.places {
                client.next().expect("the session goes on");
            }
        }
    }
}

/// The whole arena, or the largest part of it that an entry can name.
fn whole(client: &Client) -> Place {
    Place::Arena {
        at: 0,
        len: client.welcome.arena_bytes as u32,
    }
}

fn copies(socket: &Path) {
    let mut clients = clients(socket, 6);
    let handles = opened(&mut clients);
    submits(&mut clients, &handles, |client, nth| Submission {
        mode: Mode::Cached,
        place: whole(client),
        ..Submission::new(if nth % 8 == 0 { Op::Write } else { Op::Read }, Default::default())
    });
}

fn is_at_the_device(socket: &Path) {
    let mut clients = clients(socket, 8);
    let handles = opened(&mut clients);
    submits(&mut clients, &handles, |client, nth| {
        let (op, place, len) = match nth % 8 {
            0 => (Op::Sync, Place::Nowhere, 0),
            1 => (Op::Zero, Place::Nowhere, 1 << 20),
            2 => (Op::Discard, Place::Nowhere, 1 << 20),
            3 | 4 => (Op::Write, whole(client), 0),
            _ => (Op::Read, whole(client), 0),
        };
        Submission {
            place,
            len,
            durability: if nth % 2 == 0 {
                Durability::Data
            } else {
                Durability::None
            },
            ..Submission::new(op, Default::default())
        }
    });
}

/// The broker fills the arena; its client keeps the memory and goes.
fn keeps_memory(socket: &Path) {
    let mut kept: Vec<OwnedFd> = Vec::new();
    for _ in 0..200 {
        let mut client = client(socket);
        let handle = client.made_once("large", 8 << 20);
        let len = client.welcome.arena_bytes as u32;
        client.read(handle, 0, len);
        kept.push(client.memfd().try_clone_to_owned().unwrap());
    }
}

fn keeps_pages(socket: &Path) {
    let mut clients = clients(socket, 4);
    let handles = opened(&mut clients);
    for turn in 0..16 {
        poses(&mut clients, |nth, at| {
            let from = u64::from(at) * 64;
            Question::Hint {
                handle: handles[nth].into(),
                hint: match (turn + at) % 4 {
                    0 => Hint::Prefetch(vec![0..2048; 8]),
                    1 | 2 => Hint::Keep(from..from + 64),
                    _ => Hint::Drop(0..2048),
                },
            }
        });
    }
}

/// Descriptors on their way that nobody receives.
fn hands_on_and_leaves(socket: &Path) {
    let mut clients = clients(socket, 40);
    let handles = opened(&mut clients);
    for (client, handle) in clients.iter_mut().zip(handles) {
        for id in 1000..1064 {
            let access = Access::Read;
            client.wire.try_send(
                &Question::HandOn {
                    handle: handle.into(),
                    access,
                }
                .encode(id)
                .unwrap(),
            );
        }
    }
    std::thread::sleep(Duration::from_secs(2));
}

/// Doorbells, calls to end what is not there, questions that nobody may ask, and at the end what breaks the protocol.
fn shouts(socket: &Path) {
    let clients = clients(socket, 4);
    let words = [
        DOORBELL.to_vec(),
        Question::Cancel { question: 7 }.encode(1).unwrap(),
        Question::Freeze.encode(2).unwrap(),
        Question::Check.encode(3).unwrap(),
        Question::Create {
            operation: OperationName::NONE,
            owner_uid: 0,
            name: "another's".into(),
            options: CreateOptions {
                zero: Zeroing::Lazy,
                ..CreateOptions::of_size(4096)
            },
        }
        .encode(4)
        .unwrap(),
    ];
    for turn in 0..4000 {
        for client in &clients {
            client.wire.try_send(&words[turn % words.len()]);
            if client.wire.has_something() {
                client.wire.receive();
            }
        }
    }
    for client in clients {
        client.wire.try_send(&[7; 70]);
    }
}
