//! The program under test in a worse world: as an ordinary user, with system calls forbidden, little locked memory, or the
//! operations of native AIO used up by somebody else.

#![allow(unsafe_code)]
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Nobody: an ordinary user whom every system knows.
pub(crate) const ORDINARY: u32 = 65534;

/// What a child may not have. It is always an ordinary user, where this process may become one.
pub(crate) struct Confined {
    forbidden: Vec<libc::sock_filter>,
    locked_memory: Option<u64>,
    user: u32,
}

impl Confined {
    pub(crate) fn new() -> Confined {
        Confined::as_user(ORDINARY)
    }

    /// As this user, where this process may become one.
    pub(crate) fn as_user(user: u32) -> Confined {
        Confined {
            forbidden: Vec::new(),
            locked_memory: None,
            user,
        }
    }

    /// These system calls fail with `errno`, as under a container's seccomp profile.
    pub(crate) fn without(mut self, calls: &[libc::c_long], errno: i32) -> Confined {
        self.forbidden = filter(calls, errno);
        self
    }

    /// These system calls end the process at once, and so does every open of whatever there is for anything else than reading. A filter
    /// sees numbers and no paths: what is opened to read, such as the program's libraries, it cannot tell from a volume.
    pub(crate) fn dies_of(mut self, calls: &[libc::c_long]) -> Confined {
        self.forbidden = deadly(calls);
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
        let mut command = self.command(&reachable(program, place.path()));
        command.args(words).current_dir("/");
        command.output().unwrap()
    }

    /// The program, which that user must be able to reach ([`reachable`]), to be started so.
    pub(crate) fn command(self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LC_ALL", "C");
        let becomes_ordinary = rustix::process::geteuid().is_root();
        // SAFETY: between fork and exec only system calls are made: nothing allocates, and no lock is taken.
        unsafe {
            command.pre_exec(move || self.enter(becomes_ordinary));
        }
        command
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
                told(libc::setgid(self.user))?;
                told(libc::setuid(self.user))?;
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

/// The same with death as the answer, and with a look at the flags of opens:
///
/// ```text
///         number
///         each call: -> die
///         openat? else -> open
///         its flags: any that write -> die, else allow
///   open: open? else allow
///         its flags: any that write -> die, else allow
///         allow
///   die:  die
/// ```
fn deadly(calls: &[libc::c_long]) -> Vec<libc::sock_filter> {
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let load = |at: u32| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at);
    let is = |call: libc::c_long, jt, jf| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, call as u32);
    let writes = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u32;
    let any = |flags, jt, jf| step(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, jt, jf, flags);
    let answer = |answer| step(libc::BPF_RET | libc::BPF_K, 0, 0, answer);
    // Of `struct seccomp_data`: the number, and the lower halves of two of the arguments.
    let argument = |at: u32| 16 + 8 * at + if cfg!(target_endian = "big") { 4 } else { 0 };
    let mut steps = vec![load(0)];
    for (index, &call) in calls.iter().enumerate() {
        steps.push(is(call, (calls.len() - index - 1 + 7) as u8, 0));
    }
    steps.extend([
        is(libc::SYS_openat, 0, 2),
        load(argument(2)),
        any(writes, 4, 3),
        is(OPEN, 0, 2),
        load(argument(1)),
        any(writes, 1, 0),
        answer(libc::SECCOMP_RET_ALLOW),
        answer(libc::SECCOMP_RET_KILL_PROCESS),
    ]);
    steps
}

/// The older call, where the architecture has it.
#[cfg(target_arch = "x86_64")]
const OPEN: libc::c_long = libc::SYS_open;
#[cfg(not(target_arch = "x86_64"))]
const OPEN: libc::c_long = -1;

/// Takes that user and group in a thread of its own, and does something there. Only root may.
pub(crate) fn as_user<T: Send>(user: u32, act: impl FnOnce() -> T + Send) -> T {
    let act = || {
        // The system's calls are the thread's own, unlike those of the C library.
        // SAFETY: no memory is involved but an empty list.
        unsafe {
            assert_eq!(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()), 0);
            assert_eq!(libc::syscall(libc::SYS_setresgid, user, user, user), 0);
            assert_eq!(libc::syscall(libc::SYS_setresuid, user, user, user), 0);
        }
        act()
    };
    std::thread::scope(|scope| scope.spawn(act).join().unwrap())
}

/// Asks the kernel for a ring, which a filter may not forgive.
pub(crate) fn asks_for_a_ring() {
    // SAFETY: the kernel looks at the second argument, finds no memory there, and fails.
    unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, std::ptr::null_mut::<u8>()) };
}

/// Gives a file to that user.
pub(crate) fn give(path: &Path, user: u32) {
    std::os::unix::fs::chown(path, Some(user), Some(user)).unwrap();
}

/// A copy of the program that everybody may run: the build's directory may be closed to others.
pub(crate) fn reachable(program: &str, place: &Path) -> PathBuf {
    let everybody = || std::fs::Permissions::from_mode(0o755);
    let path = place.join(Path::new(program).file_name().unwrap());
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
