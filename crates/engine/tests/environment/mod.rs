//! Machines that refuse: io_uring blocked, little locked memory, no AIO events left; always as an ordinary user, because
//! root is exempt from half of it.
//!
//! A test runs itself again in a child process ([`Environment::run_again`]); there its first call, [`begin`], enters the
//! environment that the child was made for. Whatever the child starts from then on is in it, too, also other programs.

#![allow(unsafe_code)]
#![allow(dead_code, reason = "each test binary includes this file and uses a part of it")]

use std::io::{BufRead, BufReader, Lines};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Names the environment that a child enters.
const ENTER: &str = "BAIO_ENVIRONMENT";
/// Where the tests of a child put their files.
pub(crate) const DIRECTORY: &str = "BAIO_TEST_DIRECTORY";

/// `nobody`.
const ORDINARY: u32 = 65534;

/// What is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Environment {
    /// A seccomp filter answers io_uring's calls with EPERM, as Docker's default profile does.
    RingForbidden,
    /// One that answers ENOSYS, as some container runtimes do.
    RingMissing,
    /// 64 KiB of RLIMIT_MEMLOCK.
    LittleLockedMemory,
    /// Another process has every event of fs.aio-max-nr.
    AioUsedUp,
    /// No ring and no events.
    RingForbiddenAndAioUsedUp,
    /// What this kernel has more than Ubuntu 22.04's is taken away (`BAIO_KERNEL_LACKS`).
    AsOn515,
    /// Or more than Debian 12's.
    AsOn61,
    /// Not an environment to test in: the process that has the events.
    HoldsEveryAioEvent,
}

pub(crate) const ALL: [Environment; 7] = [
    Environment::AsOn515,
    Environment::AsOn61,
    Environment::RingForbidden,
    Environment::RingMissing,
    Environment::LittleLockedMemory,
    Environment::AioUsedUp,
    Environment::RingForbiddenAndAioUsedUp,
];

impl Environment {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Environment::RingForbidden => "io_uring forbidden (EPERM)",
            Environment::RingMissing => "io_uring missing (ENOSYS)",
            Environment::LittleLockedMemory => "64 KiB of locked memory",
            Environment::AioUsedUp => "fs.aio-max-nr used up",
            Environment::RingForbiddenAndAioUsedUp => "io_uring forbidden and fs.aio-max-nr used up",
            Environment::AsOn515 => "as on Linux 5.15",
            Environment::AsOn61 => "as on Linux 6.1",
            Environment::HoldsEveryAioEvent => "holds every event",
        }
    }

    /// The backends that cannot start in it.
    pub(crate) fn refuses(self) -> &'static [&'static str] {
        match self {
            Environment::RingForbidden | Environment::RingMissing => &["uring"],
            Environment::LittleLockedMemory | Environment::AsOn515 | Environment::AsOn61 => &[],
            Environment::AioUsedUp => &["aio"],
            Environment::RingForbiddenAndAioUsedUp => &["aio", "uring"],
            Environment::HoldsEveryAioEvent => &["aio"],
        }
    }

    /// Takes it nothing away from this kernel? What an older one runs there is the usual world's.
    pub(crate) fn is_this_kernels(self) -> bool {
        let older = match self {
            Environment::AsOn515 => (5, 15),
            Environment::AsOn61 => (6, 1),
            _ => return false,
        };
        let uname = rustix::system::uname();
        let release = uname.release().to_string_lossy();
        let mut numbers = release.split(['.', '-']).map(str::parse::<u32>);
        let mut next = || numbers.next().and_then(Result::ok);
        next().zip(next()).is_some_and(|this| this <= older)
    }

    fn needs_a_holder(self) -> bool {
        matches!(self, Environment::AioUsedUp | Environment::RingForbiddenAndAioUsedUp)
    }

    /// Runs the test `test` of this executable again, in the environment; true when it passed.
    ///
    /// # Errors
    /// The machine cannot make this environment; why.
    pub(crate) fn run_again(self, test: &str) -> Result<bool, String> {
        let _events = AioEvents::reserve(self.needs_a_holder());
        let _holder = self.needs_a_holder().then(|| Holder::start(test)).transpose()?;
        let directory = writable_directory();
        let mut child = again(self, test);
        child.env(DIRECTORY, directory.path());
        Ok(child.status().map_err(|error| error.to_string())?.success())
    }

    /// Changes this thread, and what it starts, for good.
    fn enter(self) {
        become_ordinary();
        match self {
            Environment::RingForbidden | Environment::RingForbiddenAndAioUsedUp => forbid_rings(libc::EPERM),
            Environment::RingMissing => forbid_rings(libc::ENOSYS),
            Environment::LittleLockedMemory => limit_locked_memory(64 << 10),
            Environment::AioUsedUp | Environment::AsOn515 | Environment::AsOn61 => {}
            Environment::HoldsEveryAioEvent => hold_until_end_of_input(),
        }
    }
}

/// The first call of a test that runs itself again. `None`: it has not been run again, and nothing has changed.
pub(crate) fn begin() -> Option<Environment> {
    let wanted = std::env::var(ENTER).ok()?;
    let holder = [Environment::HoldsEveryAioEvent];
    let environment = ALL
        .into_iter()
        .chain(holder)
        .find(|environment| format!("{environment:?}") == wanted);
    let environment = environment.unwrap_or_else(|| panic!("no environment {wanted}"));
    environment.enter();
    if let Some(made) = std::env::var_os(DIRECTORY)
        && let Err(error) = tempfile::tempfile_in(&made)
    {
        panic!(
            "{}: {error}; an ordinary user must be able to reach the target directory",
            PathBuf::from(made).display()
        );
    }
    Some(environment)
}

/// Has this process entered one?
pub(crate) fn is_entered() -> bool {
    std::env::var_os(ENTER).is_some()
}

fn again(environment: Environment, test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of this test"));
    command.args(["--exact", test, "--nocapture"]);
    command.env(ENTER, format!("{environment:?}"));
    let lacks = match environment {
        Environment::AsOn515 => "as on 5.15",
        Environment::AsOn61 => "as on 6.1",
        _ => return quiet(command),
    };
    command.env(baio_engine::kernel::LACKS, lacks);
    quiet(command)
}

fn quiet(mut command: Command) -> Command {
    command.stdout(Stdio::null());
    command
}

/// Everybody may write into it, where everybody may look into the directories above it.
fn writable_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory for test files");
    let everybody = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(directory.path(), everybody).expect("a directory of our own");
    directory
}

fn become_ordinary() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // SAFETY: no memory is involved. The library's calls change every thread of the process.
    let changed = unsafe {
        libc::setgroups(0, std::ptr::null()) == 0 && libc::setgid(ORDINARY) == 0 && libc::setuid(ORDINARY) == 0
    };
    assert!(changed, "{}", std::io::Error::last_os_error());
    // SAFETY: no memory is involved. A process that has changed its user cannot open its own /proc files without it.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1) };
}

fn limit_locked_memory(bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
    };
    // SAFETY: the kernel reads one rlimit.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// `struct seccomp_data` (seccomp(2)): the call's number, then the architecture that gives the number its meaning.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

/// `AUDIT_ARCH_*` (include/uapi/linux/audit.h) of the architecture this is compiled for.
const fn this_architecture() -> Option<u32> {
    if cfg!(target_arch = "x86_64") {
        Some(0xc000_003e)
    } else if cfg!(target_arch = "aarch64") {
        Some(0xc000_00b7)
    } else {
        None
    }
}

/// From here on io_uring's calls end with `errno`. The filter stays with the threads and programs started later.
fn forbid_rings(errno: i32) {
    let architecture = this_architecture().expect("a filter for this architecture");
    let statement = |code: u32, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    // Equal: over `jt` instructions; else over `jf`.
    let when_equal = |k: u32, jt: u8, jf: u8| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt,
        jf,
        k,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let answer = libc::BPF_RET | libc::BPF_K;
    let mut program = [
        statement(load, ARCHITECTURE),
        when_equal(architecture, 0, 4),
        statement(load, NUMBER),
        when_equal(libc::SYS_io_uring_setup as u32, 3, 0),
        when_equal(libc::SYS_io_uring_enter as u32, 2, 0),
        when_equal(libc::SYS_io_uring_register as u32, 1, 0),
        statement(answer, libc::SECCOMP_RET_ALLOW),
        statement(answer, libc::SECCOMP_RET_ERRNO | errno as u32),
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: no memory is involved.
    let sealed = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(sealed, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the kernel copies the filter, which lives until the call returns.
    let filtered = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) };
    assert_eq!(filtered, 0, "{}", std::io::Error::last_os_error());
}

/// AIO events are the machine's: tests that use them and tests that use them up take turns, also those of other processes.
pub(crate) struct AioEvents {
    _lock: Option<std::fs::File>,
}

impl AioEvents {
    /// Waits for its turn, however long the others take on a machine that is slow. Whoever ends gives it back.
    pub(crate) fn reserve(alone: bool) -> AioEvents {
        use rustix::fs::{FlockOperation, flock};
        let operation = match alone {
            true => FlockOperation::LockExclusive,
            false => FlockOperation::LockShared,
        };
        let path = std::env::temp_dir().join("baio-tests-of-aio.lock");
        let file = std::fs::File::options().create(true).append(true).open(path).ok();
        let locked = |file: &std::fs::File| rustix::io::retry_on_intr(|| flock(file, operation)).is_ok();
        AioEvents {
            _lock: file.filter(locked),
        }
    }
}

/// The process that has every AIO event, as long as this lives. No setting of the machine is changed; should this process
/// end without dropping it, the child reads the end of its input and ends as well.
struct Holder {
    child: Child,
    _input: ChildStdin,
    /// After a minute the harness says there that the test has been running for long: with nobody to read, it would die of that.
    _output: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    fn start(test: &str) -> Result<Holder, String> {
        let mut command = again(Environment::HoldsEveryAioEvent, test);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let input = child.stdin.take().expect("a pipe");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        // The harness prints lines of its own first.
        let mut lines = output.by_ref().map_while(Result::ok);
        let held = lines.find_map(|line| line.split_once(HOLDING).map(|(_, said)| said.to_owned()));
        let holder = Holder {
            child,
            _input: input,
            _output: output,
        };
        match held {
            Some(said) if said.is_empty() => Ok(holder),
            Some(said) => Err(said),
            None => Err("the holder of the events did not start".into()),
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The kernel counts them free a moment later.
        for _ in 0..500 {
            let count = std::fs::read_to_string("/proc/sys/fs/aio-nr").unwrap_or_default();
            let most = std::fs::read_to_string("/proc/sys/fs/aio-max-nr").unwrap_or_default();
            if count != most {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

const HOLDING: &str = "holding: ";

/// Takes events until there is none left, says so, and keeps them until its input ends; what others give back meanwhile, too.
fn hold_until_end_of_input() -> ! {
    let problem = match take_events(1 << 20) {
        Some(libc::EAGAIN) => String::new(),
        Some(errno) => format!("io_setup: {}", std::io::Error::from_raw_os_error(errno)),
        None => "there is no end of them".into(),
    };
    println!("{HOLDING}{problem}");
    let input = std::io::stdin();
    loop {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let soon = Timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        };
        let ended = poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&soon));
        if ended != Ok(0) {
            std::process::exit(0);
        }
        take_events(1024);
    }
}

/// Takes what there is, in pieces of at most `asked`; why it got no more. The contexts live until the process ends.
fn take_events(mut asked: i64) -> Option<i32> {
    let mut refused = None;
    while asked > 0 {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes one context handle.
        let result = unsafe { libc::syscall(libc::SYS_io_setup, asked, &raw mut context) };
        if result < 0 {
            refused = std::io::Error::last_os_error().raw_os_error();
            asked /= 2;
        }
    }
    refused
}
