//! A seccomp filter on one thread: what a kernel, a container or a policy may refuse is refused here.

#![allow(unsafe_code)]
#![allow(dead_code, reason = "each test binary includes this file and uses a part of it")]

/// From now on these system calls fail with `errno` in this thread, and in those that it starts.
pub(crate) fn forbid(calls: &[libc::c_long], errno: i32) {
    let all: Vec<_> = calls.iter().map(|&call| (call, Which::All)).collect();
    forbid_some(&all, errno);
}

/// Which calls of a number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    All,
    /// Whose argument of this place, counted from 0, is this.
    Argument(u32, u32),
    /// Whose argument of this place has one of these bits.
    Bits(u32, u32),
    /// Whose argument of this place is this or higher.
    From(u32, u32),
}

/// As [`forbid`], by number and argument.
pub(crate) fn forbid_some(calls: &[(libc::c_long, Which)], errno: i32) {
    set(program(calls, libc::SECCOMP_RET_ERRNO | errno as u32));
}

/// From now on the calls of this number and every higher one fail with `errno`.
pub(crate) fn forbid_from(first: libc::c_long, errno: i32) {
    let step = |code: u32, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    set(vec![
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, first as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ]);
}

/// From now on the process ends when this thread, or one that it starts, makes one of these calls.
pub(crate) fn kill_for(calls: &[libc::c_long]) {
    let all: Vec<_> = calls.iter().map(|&call| (call, Which::All)).collect();
    set(program(&all, libc::SECCOMP_RET_KILL_PROCESS));
}

fn set(filter: Vec<libc::sock_filter>) {
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies the filter.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER as libc::c_ulong;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

fn program(calls: &[(libc::c_long, Which)], verdict: u32) -> Vec<libc::sock_filter> {
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let load = |at: u32| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at);
    let refuse = step(libc::BPF_RET | libc::BPF_K, 0, 0, verdict);
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let mut steps = Vec::new();
    for &(call, which) in calls {
        // `struct seccomp_data`: the number of the call comes first, the arguments at 16, of 64 bits each; the lower half counts.
        let (at, how, value) = match which {
            Which::All => (0, equal, call as u32),
            Which::Argument(place, value) => (16 + 8 * place, equal, value),
            Which::Bits(place, bits) => (16 + 8 * place, libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, bits),
            Which::From(place, first) => (16 + 8 * place, libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, first),
        };
        steps.extend([
            load(0),
            step(equal, 0, 3, call as u32),
            load(at),
            step(how, 0, 1, value),
            refuse,
        ]);
    }
    steps.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    steps
}
