//! Each system call, flag and registration that is younger than Linux 5.4 is refused in turn, with each word that a kernel, a container
//! or a policy has for it, and the answers stay the same (docs/engine.md, "What a kernel may lack").

#![allow(unsafe_code)]

#[path = "environment/filter.rs"]
mod filter;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use baio_engine::{
    Caching, Choice, Config, Durability, Engine, Errno, File, Op, Open, Patience, Policy, Region, Request, Space, Wait,
    kernel,
};

use filter::{Which, forbid_some};

/// What a kernel without it says, and what policies say.
const WORDS: &[Errno] = &[Errno::ENOSYS, Errno::EINVAL, Errno::EPERM];
/// The C library goes on by another call after this word only.
const MISSING: &[Errno] = &[Errno::ENOSYS];
/// Of a flag of a read or write.
const UNKNOWN: &[Errno] = &[Errno::EOPNOTSUPP];

const REGISTER: libc::c_long = libc::SYS_io_uring_register;
const CACHESTAT: libc::c_long = 451;
const DIOALIGN: u32 = 0x2000;
const WRITE_ATOMIC: u32 = 0x1_0000;
const NOEXEC_SEAL: u32 = 8;

/// `IORING_REGISTER_*` (include/uapi/linux/io_uring.h) by their numbers.
const fn registers(what: u32) -> Which {
    Which::Argument(1, what)
}

#[rustfmt::skip]
const YOUNG: &[(&str, libc::c_long, Which, &[Errno])] = &[
    ("io_uring_setup, with an argument of 5.11", libc::SYS_io_uring_setup, Which::All, WORDS),
    ("io_uring_register", REGISTER, Which::All, WORDS),
    ("a registered arena", REGISTER, registers(0), WORDS),
    ("files registered no longer", REGISTER, registers(3), WORDS),
    ("an event fd", REGISTER, registers(4), WORDS),
    ("an event fd registered no longer", REGISTER, registers(5), WORDS),
    ("an update of registered files", REGISTER, registers(6), WORDS),
    ("a probe of operations", REGISTER, registers(8), WORDS),
    ("an empty table of files", REGISTER, registers(13), WORDS),
    ("a limit of workers", REGISTER, registers(19), WORDS),
    ("a registered ring", REGISTER, registers(20), WORDS),
    ("a ring registered no longer", REGISTER, registers(21), WORDS),
    ("statx", libc::SYS_statx, Which::All, MISSING),
    ("what direct I/O needs", libc::SYS_statx, Which::Bits(3, DIOALIGN), WORDS),
    ("atomic writes", libc::SYS_statx, Which::Bits(3, WRITE_ATOMIC), WORDS),
    ("cachestat", CACHESTAT, Which::All, WORDS),
    ("epoll_pwait2", libc::SYS_epoll_pwait2, Which::All, WORDS),
    ("memory that cannot be executed", libc::SYS_memfd_create, Which::Bits(1, NOEXEC_SEAL), WORDS),
    ("RWF_NOWAIT", libc::SYS_preadv2, Which::Bits(5, libc::RWF_NOWAIT as u32), UNKNOWN),
    ("RWF_NOWAIT", libc::SYS_pwritev2, Which::Bits(5, libc::RWF_NOWAIT as u32), UNKNOWN),
    ("clone3", libc::SYS_clone3, Which::All, MISSING),
    ("close_range", libc::SYS_close_range, Which::All, WORDS),
    ("openat2", libc::SYS_openat2, Which::All, WORDS),
    ("faccessat2", libc::SYS_faccessat2, Which::All, WORDS),
    ("pidfd_open", libc::SYS_pidfd_open, Which::All, WORDS),
    ("futex_waitv", libc::SYS_futex_waitv, Which::All, WORDS),
];

fn run(engine: &mut Engine, request: Request) -> String {
    let done = engine.run(request);
    let bytes = done.memory.into_buffer().map(|buffer| buffer.to_vec());
    let sum = bytes.map_or(0, |bytes| bytes.iter().map(|&byte| u64::from(byte)).sum());
    format!("{:?} {} {sum}", done.result, done.bytes_done)
}

fn filled(engine: &Engine, len: usize, byte: u8) -> baio_engine::Buffer {
    let mut buffer = engine.buffer(len).unwrap();
    buffer.fill(byte);
    buffer
}

/// What an engine says to one request of each kind; `None` where its backend cannot start.
fn answers(choice: Choice) -> Option<Vec<String>> {
    let config = Config {
        backend: choice,
        slots: 32,
        arena_bytes: 4 << 20,
        register_arena: true,
        ..Config::default()
    };
    let mut engine = Engine::new(&config).ok()?;
    let mut told = vec![format!("{:?}", engine.ready_fd(false).is_some())];
    let kept = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    kept.as_file().set_len(1 << 16).unwrap();
    let file = File::open(kept.path(), &Open::write()).unwrap();
    engine.attach(&file);
    for caching in [Caching::Kernel, Caching::Direct] {
        let policy = Policy {
            caching,
            ..Policy::kernel()
        };
        if !file.gives(caching) {
            continue;
        }
        for (durability, patience) in [
            (Durability::None, Patience::Wait),
            (Durability::Data, Patience::Wait),
            (Durability::Full, Patience::Wait),
        ] {
            let policy = Policy {
                durability,
                patience,
                ..policy
            };
            let buffer = filled(&engine, 8192, durability as u8 + 1);
            told.push(run(&mut engine, Request::write(&file, 4096, buffer, policy)));
            let buffer = filled(&engine, 16_384, 9);
            let policy = Policy {
                durability: Durability::None,
                ..policy
            };
            told.push(run(&mut engine, Request::read(&file, 0, buffer, policy)));
        }
    }
    engine.run(Request::sync(&file, Durability::Full));
    told.push(format!("{:?}", file.probe(Caching::Direct)));
    let reserve = Op::Allocate {
        offset: 1 << 16,
        len: 4096,
        space: Space::Reserve,
    };
    told.push(run(&mut engine, Request::bare(reserve, Some(&file), Policy::kernel())));
    told.push(run(&mut engine, Request::truncate(&file, 5000, Durability::None)));
    told.push(format!("{:?}", file.size()));
    engine.detach(&file);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let pipe = File::from_fd(reader.into(), "a pipe").unwrap();
    let mut empty = Request::read_stream(&pipe, filled(&engine, 64, 0));
    empty.policy.patience = Patience::NoWait;
    told.push(run(&mut engine, empty));
    writer.write_all(b"some bytes").unwrap();
    let read = Request::read_stream(&pipe, filled(&engine, 64, 0));
    told.push(run(&mut engine, read));
    let (one, mut other) = UnixStream::pair().unwrap();
    let socket = File::from_fd(one.into(), "a socket").unwrap();
    other.write_all(b"more").unwrap();
    let receive = Request::read_stream(&socket, filled(&engine, 64, 0));
    told.push(run(&mut engine, receive));
    let at = engine.now().after(Duration::from_millis(1));
    told.push(run(
        &mut engine,
        Request::bare(Op::Timer { at }, None, Policy::kernel()),
    ));
    told.push(format!("{:?}", engine.turn(Wait::No)));
    let region = Region::create(8192).unwrap();
    told.push(format!("{}", region.size()));
    Some(told)
}

/// Asynchronous ones: what takes the place of a ring is one of these.
const BACKENDS: [Choice; 4] = [Choice::Auto, Choice::Uring, Choice::Aio, Choice::Threads];

#[test]
fn whatever_young_call_is_refused_the_answers_are_the_same() {
    let expected = answers(Choice::Threads).expect("threads can be made here");
    for choice in BACKENDS {
        assert_eq!(
            answers(choice).unwrap_or_else(|| expected.clone()),
            expected,
            "{choice}"
        );
    }
    let mut refusals = 0;
    for (what, call, which, words) in YOUNG {
        for word in *words {
            refusals += 1;
            are_answered(&format!("{what} refused with {word}"), &expected, || {
                forbid_some(&[(*call, *which)], word.raw());
            });
        }
    }
    println!(
        "{} calls and flags, refused in {refusals} ways, on {} backends each",
        YOUNG.len(),
        BACKENDS.len()
    );
}

/// Whoever comes to use one that is not in the table above is found here.
#[test]
fn without_any_call_younger_than_linux_5_4_the_answers_are_the_same() {
    let expected = answers(Choice::Threads).expect("threads can be made here");
    for word in WORDS {
        let what = format!("all that is young refused with {word}");
        are_answered(&what, &expected, || filter::forbid_the_young(word.raw()));
    }
}

/// Without a filter.
fn starts(choice: Choice) -> bool {
    let config = Config {
        backend: choice,
        ..Config::default()
    };
    Engine::new(&config).is_ok()
}

/// All else that is refused costs speed.
fn may_cost_the_ring(what: &str) -> bool {
    ["io_uring_setup", "all that is young"]
        .iter()
        .any(|refused| what.starts_with(refused))
}

/// In a thread of its own: a filter stays.
fn are_answered(what: &str, expected: &Vec<String>, forbid: impl Fn() + Sync) {
    for choice in BACKENDS {
        let told = std::thread::scope(|scope| {
            let filtered = scope.spawn(|| {
                forbid();
                answers(choice)
            });
            filtered.join().unwrap_or_else(|_| panic!("{what}, on {choice}"))
        });
        match told {
            Some(told) => assert_eq!(told, *expected, "{what}, on {choice}"),
            None => assert!(
                may_cost_the_ring(what) && choice == Choice::Uring || !starts(choice),
                "{what}: {choice} does not start"
            ),
        }
    }
}

/// What no filter sees, the set-up flags of a ring and its operations, are lines of the table: each is taken away alone.
#[test]
fn whatever_line_is_taken_away_the_answers_are_the_same() {
    const TEST: &str = "whatever_line_is_taken_away_the_answers_are_the_same";
    if std::env::var_os(kernel::LACKS).is_some() {
        let expected = answers(Choice::Threads).expect("threads can be made here");
        for choice in BACKENDS {
            match answers(choice) {
                Some(told) => assert_eq!(told, expected, "{choice}"),
                None => assert_ne!(choice, Choice::Auto, "nothing starts"),
            }
        }
        return;
    }
    for line in kernel::TABLE {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", TEST]).env(kernel::LACKS, line.name);
        assert!(child.status().unwrap().success(), "`{}` is taken away", line.name);
    }
    println!(
        "{} lines, each taken away alone, on {} backends each",
        kernel::TABLE.len(),
        BACKENDS.len()
    );
}
