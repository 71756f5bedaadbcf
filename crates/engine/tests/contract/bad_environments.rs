//! What must be true in a bad environment besides the contract: exactly the backends that it refuses are absent, `Auto`
//! starts with one of the others, and what it says about the refused ones helps.

use std::time::Duration;

use baio_engine::{Choice, Engine, EngineOptions, Errno};

use crate::Ran;
use crate::backends::{Bench, tell};
use crate::environment::Environment;

pub(crate) fn check(environment: Environment, ran: &Ran) {
    let known = |name: &&&str| crate::BACKENDS.iter().any(|row| row.name == **name);
    let mut expected: Vec<&str> = environment.refuses().iter().filter(known).copied().collect();
    let mut absent: Vec<&str> = ran.absent.iter().map(|(name, _)| *name).collect();
    expected.sort_unstable();
    absent.sort_unstable();
    assert_eq!(absent, expected, "{}: {:?}", environment.name(), ran.absent);
    for (backend, why) in &ran.absent {
        says_why(environment, backend, why);
    }
    auto_starts(environment, ran);
    if environment == Environment::LittleLockedMemory {
        locked_memory_costs_speed_only();
    }
}

/// Cause and cure of a refusal, in words that somebody can act on.
fn says_why(environment: Environment, backend: &str, text: &str) {
    let words: &[&str] = match (environment, backend) {
        (Environment::RingForbidden | Environment::RingForbiddenAndAioUsedUp, "uring") => {
            &["EPERM", "io_uring_disabled", "seccomp"]
        }
        (Environment::RingMissing, "uring") => &["ENOSYS", "seccomp"],
        (Environment::AioUsedUp | Environment::RingForbiddenAndAioUsedUp, "aio") => &["EAGAIN", "aio-max-nr"],
        other => panic!("{other:?} is not refused"),
    };
    for word in words {
        assert!(text.contains(word), "{backend}: `{text}` does not say {word}");
    }
}

fn auto_starts(environment: Environment, ran: &Ran) {
    let engine = auto(&EngineOptions {
        backend: Choice::Auto,
        ..Bench::config()
    });
    let taken = engine.explain().backend;
    tell(&format!(
        "in a bad environment: {}: auto takes {taken}",
        environment.name()
    ));
    assert!(
        ran.backends.contains(&taken),
        "{taken} has not shown that it keeps the contract"
    );
    assert!(!environment.refuses().contains(&taken));
    let best = environment.refuses().contains(&"uring");
    assert_eq!(
        best,
        engine.rejected().iter().any(|rejected| rejected.backend == "uring")
    );
    for rejected in engine.rejected() {
        assert!(environment.refuses().contains(&rejected.backend), "{rejected:?}");
        let cure = rejected.cure.as_deref().expect("a cure");
        says_why(environment, rejected.backend, &format!("{}; {cure}", rejected.reason));
    }
}

/// A closed ring's share of the locked memory comes back a moment later.
fn auto(config: &EngineOptions) -> Engine {
    for _ in 0..500 {
        let engine = Engine::new(config).expect("auto starts everywhere");
        if engine
            .rejected()
            .iter()
            .all(|rejected| !rejected.reason.contains("ENOMEM"))
        {
            return engine;
        }
        drop(engine);
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no memory for a ring");
}

/// More than the limit: `Auto` goes on without it, and says what to raise.
fn locked_memory_costs_speed_only() {
    let config = EngineOptions {
        backend: Choice::Auto,
        slots: 16 << 10,
        ..Bench::config()
    };
    let engine = Engine::new(&config).expect("auto starts everywhere");
    if let Some(rejected) = engine.rejected().iter().find(|rejected| rejected.backend == "uring") {
        assert!(rejected.reason.contains(Errno::ENOMEM.name()), "{rejected:?}");
        let cure = rejected.cure.as_deref().expect("a cure");
        assert!(cure.contains("RLIMIT_MEMLOCK") && cure.contains("slots"), "{cure}");
    }
    drop(engine);
    let engine = auto(&EngineOptions {
        backend: Choice::Auto,
        register_arena: true,
        ..Bench::config()
    });
    let features = engine.explain().features;
    let arena = features.iter().find(|(name, _)| *name == "registered_arena");
    if let Some((_, had)) = arena {
        let why = had.as_ref().expect_err("16 MiB do not fit into 64 KiB");
        assert!(why.contains("RLIMIT_MEMLOCK"), "{why}");
    }
}
