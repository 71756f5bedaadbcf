//! Each system call, flag and registration that is younger than Linux 5.4 is refused in turn, with each word that a kernel, a container
//! or a policy has for it, and the answers stay the same (docs/inside/kernels.md).

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use baio_engine::{
    Caching, Choice, Durability, Engine, EngineOptions, Errno, Error, File, Op, Open, Patience, Policy, Region,
    Request, Space, Wait, kernel,
};

use crate::young::{self, Refusal};

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

/// Does an uncached request do what it shall, or is it refused plainly, before anything is done? Nothing else does the same.
fn goes_uncached_or_not_at_all(engine: &mut Engine, file: &File) -> bool {
    let policy = Policy {
        caching: Caching::Uncached,
        ..Policy::kernel()
    };
    let bytes = || filled(engine, 8192, 7);
    let before = Request::write(file, 8192, bytes(), Policy::kernel());
    let write = Request::write(file, 8192, bytes(), policy);
    let read = Request::read(file, 8192, filled(engine, 8192, 0), policy);
    let is_there = |bytes: baio_engine::Buffer| bytes.iter().all(|&byte| byte == 7);
    [before, write, read].into_iter().all(|request| {
        let done = engine.run(request);
        let words = [Errno::EOPNOTSUPP, Errno::ENOSYS, Errno::EINVAL, Errno::EPERM];
        match done.result {
            Err(Error::System(word)) => words.contains(&word) && done.bytes_done == 0,
            whole => whole == Ok(8192) && done.memory.into_buffer().is_some_and(is_there),
        }
    })
}

/// What an engine says to one request of each kind; `None` where its backend cannot start.
fn answers(choice: Choice) -> Option<Vec<String>> {
    let config = EngineOptions {
        backend: choice,
        slots: 32,
        arena_bytes: 4 << 20,
        register_arena: true,
        ..EngineOptions::default()
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
    assert!(goes_uncached_or_not_at_all(&mut engine, &file));
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
    for refusal in Refusal::each() {
        refusals += 1;
        are_answered(refusal, &expected);
    }
    println!(
        "{} calls and flags each alone, and all at once: refused in {refusals} ways, on {} backends each",
        young::YOUNG.len(),
        BACKENDS.len()
    );
}

/// Without a filter.
fn starts(choice: Choice) -> bool {
    let config = EngineOptions {
        backend: choice,
        ..EngineOptions::default()
    };
    Engine::new(&config).is_ok()
}

/// In a thread of its own: a filter stays.
fn are_answered(refusal: Refusal, expected: &Vec<String>) {
    let what = refusal.name();
    println!("{what}");
    for choice in BACKENDS {
        let told = std::thread::scope(|scope| {
            let filtered = scope.spawn(|| {
                refusal.begin();
                answers(choice)
            });
            filtered.join().unwrap_or_else(|_| panic!("{what}, on {choice}"))
        });
        match told {
            Some(told) => assert_eq!(told, *expected, "{what}, on {choice}"),
            None => assert!(
                refusal.may_cost_the_ring() && choice == Choice::Uring || !starts(choice),
                "{what}: {choice} does not start"
            ),
        }
    }
}

/// What no filter sees, the set-up flags of a ring and its operations, are lines of the table: each is taken away alone.
#[test]
fn whatever_line_is_taken_away_the_answers_are_the_same() {
    const TEST: &str = "young_calls::whatever_line_is_taken_away_the_answers_are_the_same";
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
