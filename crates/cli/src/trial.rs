//! Which backend the program takes where nobody says (`BAIO_BACKEND`), and which it may not even try: a filter of system calls (seccomp) may
//! kill whoever asks for a ring. Where there is a filter, another process of the program tries first.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::OnceLock;

use baio::{EngineOptions, Errno, SetupError};
use baio_console::failure::Failure;
use baio_engine::{Choice, Engine};

/// Names the backend of all commands whose line leaves it open.
const NAMED: &str = "BAIO_BACKEND";
/// Names the backend that this process is to try, and nothing else.
const TRIED: &str = "BAIO_TRIED_BACKEND";
/// `SIGSYS` (signal(7)): what such a filter ends a process by.
const BAD_CALL: i32 = 31;

/// In a process that is only to try one: tries.
pub(crate) fn trial() -> Option<ExitCode> {
    let name = std::env::var(TRIED).ok()?;
    let config = EngineOptions {
        backend: name.parse().ok()?,
        slots: 8,
        reserved_slots: 1,
        arena_bytes: 1 << 16,
        ..EngineOptions::default()
    };
    // How it ends is looked at, not what it says: that the program finds by itself.
    drop(Engine::new(&config));
    Some(ExitCode::SUCCESS)
}

/// From here on engines go by it.
///
/// # Errors
/// The environment names no backend.
pub(crate) fn settle() -> Result<(), Failure> {
    let auto = match std::env::var(NAMED) {
        Err(_) => Choice::Auto,
        Ok(name) => name.parse().map_err(|why: String| {
            Failure::usage("baio", format!("the environment says {NAMED}={name}"))
                .needing(why)
                .cured_by(format!("unset {NAMED}"))
        })?,
    };
    Choice::rule(auto, may_try);
    Ok(())
}

fn may_try(choice: Choice) -> Result<(), SetupError> {
    static KILLS: [OnceLock<bool>; Choice::ALL.len()] = [const { OnceLock::new() }; Choice::ALL.len()];
    let (Choice::Uring | Choice::Aio) = choice else {
        return Ok(());
    };
    let known = Choice::ALL.iter().position(|known| *known == choice);
    let kills = known.and_then(|at| KILLS.get(at));
    if !kills.is_some_and(|kills| *kills.get_or_init(|| kills_who_tries(choice))) {
        return Ok(());
    }
    let refused = SetupError::new("start", format!("the backend {choice}"), Errno::EPERM);
    Err(refused
        .need("a seccomp filter that does not kill whoever asks for it".to_owned())
        .cure(
            "let the filter refuse the call by EPERM or allow it, or choose another backend (--backend, BAIO_BACKEND)",
        ))
}

/// Where a filter binds this process: does it end a process that tries this?
fn kills_who_tries(choice: Choice) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let is_filtered = status.lines().any(|line| line.split_whitespace().eq(["Seccomp:", "2"]));
    if !is_filtered {
        return false;
    }
    let Ok(program) = std::env::current_exe() else {
        return false;
    };
    // It has the standard streams of this one, and says nothing: to open others may be forbidden too.
    let tried = Command::new(program)
        .env(TRIED, choice.name())
        .stdin(Stdio::inherit())
        .status();
    tried.is_ok_and(|status| status.signal() == Some(BAD_CALL))
}
