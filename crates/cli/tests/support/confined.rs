//! The program under test in a worse world: as an ordinary user, with system calls forbidden, little locked memory, or the
//! operations of native AIO used up by somebody else.

#![allow(unsafe_code)]
#![allow(dead_code, reason = "no story needs all of it")]

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Nobody: an ordinary user whom every system knows.
const ORDINARY: u32 = 65534;

/// What a child may not have. It is always an ordinary user, where this process may become one.
#[derive(Default)]
pub(crate) struct Confined {
    forbidden: Vec<libc::sock_filter>,
    locked_memory: Option<u64>,
}

impl Confined {
    pub(crate) fn new() -> Confined {
        Confined::default()
    }

    /// These system calls fail with `errno`, as under a container's seccomp profile.
    pub(crate) fn without(mut self, calls: &[libc::c_long], errno: i32) -> Confined {
        self.forbidden = filter(calls, errno);
        self
    }

    /// `RLIMIT_MEMLOCK`, in bytes.
    pub(crate) fn with_locked_memory(mut self, bytes: u64) -> Confined {
        self.locked_memory = Some(bytes);
        self
    }

    /// Runs the program so, to its end.
    pub(crate) fn run(self, program: &str, words: &[&str]) -> Output {
        let place = tempfile::tempdir().unwrap();
        let mut command = Command::new(reachable(program, place.path()));
        command.args(words).current_dir("/").env("LC_ALL", "C");
        let becomes_ordinary = rustix::process::geteuid().is_root();
        // SAFETY: between fork and exec only system calls are made: nothing allocates, and no lock is taken.
        unsafe {
            command.pre_exec(move || self.enter(becomes_ordinary));
        }
        command.output().unwrap()
    }

    fn enter(&self, becomes_ordinary: bool) -> io::Result<()> {
        if let Some(bytes) = self.locked_memory {
            let limit = libc::rlimit {
                rlim_cur: bytes,
                rlim_max: bytes,
            };
            // SAFETY: the kernel reads the structure during the call.
            told(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) })?;
        }
        if becomes_ordinary {
            // SAFETY: no memory is involved but an empty list.
            unsafe {
                told(libc::setgroups(0, std::ptr::null()))?;
                told(libc::setgid(ORDINARY))?;
                told(libc::setuid(ORDINARY))?;
            }
        }
        if !self.forbidden.is_empty() {
            let program = libc::sock_fprog {
                len: self.forbidden.len() as u16,
                filter: self.forbidden.as_ptr().cast_mut(),
            };
            // SAFETY: the kernel copies the filter during the call.
            unsafe {
                told(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
                let mode = libc::SECCOMP_MODE_FILTER as libc::c_ulong;
                told(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program))?;
            }
        }
        Ok(())
    }
}

fn told(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// A classic BPF program: load the number of the call, compare it with each, refuse or allow.
fn filter(calls: &[libc::c_long], errno: i32) -> Vec<libc::sock_filter> {
    let step = |code: u32, jt: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf: 0,
        k,
    };
    let mut steps = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for (index, &call) in calls.iter().enumerate() {
        let to_the_refusal = (calls.len() - index) as u8;
        steps.push(step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            to_the_refusal,
            call as u32,
        ));
    }
    let answers = [libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_ERRNO | errno as u32];
    steps.extend(answers.map(|answer| step(libc::BPF_RET | libc::BPF_K, 0, answer)));
    steps
}

/// A copy of the program that everybody may run: the build's directory may be closed to others.
fn reachable(program: &str, place: &Path) -> PathBuf {
    let everybody = || std::fs::Permissions::from_mode(0o755);
    let path = place.join("baio");
    // By another process: a child that a test beside this one forks meanwhile would have the copy open for writing, and what is
    // open so cannot be executed (ETXTBSY).
    let copied = Command::new("cp").arg(program).arg(&path).status().unwrap();
    assert!(copied.success());
    for opened in [place, &path] {
        std::fs::set_permissions(opened, everybody()).unwrap();
    }
    path
}

/// A process that holds every operation of native AIO that there is, until it is dropped. No setting is changed.
///
/// It is a fork without an exec, so it also holds whatever this process has open: run no child beside it whose end is told
/// by a pipe, but such as start later.
pub(crate) struct HoldsAllAio {
    pid: libc::pid_t,
}

impl HoldsAllAio {
    /// Takes what is left; the reason why not, else.
    pub(crate) fn start() -> Result<HoldsAllAio, String> {
        let mut ready = [0; 2];
        // SAFETY: the array has room for both ends.
        told(unsafe { libc::pipe2(ready.as_mut_ptr(), libc::O_CLOEXEC) }).map_err(|error| error.to_string())?;
        // SAFETY: the child makes system calls only, and never returns from `hold`.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => return Err(io::Error::last_os_error().to_string()),
            0 => hold(ready[1]),
            _ => {}
        }
        let held = HoldsAllAio { pid };
        let mut taken = [0_u8; 1];
        // SAFETY: both descriptors are this function's own, and the buffer outlives the call.
        let got = unsafe {
            libc::close(ready[1]);
            let got = libc::read(ready[0], taken.as_mut_ptr().cast(), 1);
            libc::close(ready[0]);
            got
        };
        match (got, taken[0]) {
            (1, 1) => Ok(held),
            _ => Err("native AIO cannot be had at all".into()),
        }
    }
}

impl Drop for HoldsAllAio {
    fn drop(&mut self) {
        // SAFETY: the child is this process's own and has not been waited for.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// Contexts as large as they are given, then smaller ones, until not even one operation is left.
fn hold(ready: libc::c_int) -> ! {
    let mut size: libc::c_long = 1 << 24;
    let mut taken = 0_u8;
    // SAFETY: only system calls; the kernel writes the context's id into `context` during the call.
    unsafe {
        // Whoever started this may die without a word.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        while size > 0 {
            let mut context: libc::c_ulong = 0;
            if libc::syscall(libc::SYS_io_setup, size, &raw mut context) == 0 {
                taken = 1;
            } else {
                size /= 2;
            }
        }
        libc::write(ready, (&raw const taken).cast(), 1);
        loop {
            libc::pause();
        }
    }
}
