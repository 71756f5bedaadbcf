//! The claim: no signal that a program can block reaches a thread of ours, and every one is counted as long as it lives.

use baio_process::thread;

/// The signals that this thread blocks, as the kernel tells them.
fn blocked() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap()
}

/// All but KILL and STOP, which nobody can block, and the two that the C library keeps for itself.
const ALL: u64 = !(1 << 8 | 1 << 18 | 1 << 31 | 1 << 32);

#[test]
fn no_signal_reaches_one_and_each_is_counted() {
    let before = blocked();
    assert_eq!(before & ALL, 0, "the program itself blocks some: {before:x}");
    assert_eq!(thread::alive(), 0);

    let one = thread::named("one")
        .start(|| (blocked() & ALL, thread::alive()))
        .unwrap();
    assert_eq!(one.join().unwrap(), (ALL, 1));

    let in_scope = std::thread::scope(|scope| {
        let one = thread::named("in a scope").start_in(scope, blocked).unwrap();
        one.join().unwrap()
    });
    assert_eq!(in_scope & ALL, ALL);

    let panics = thread::named("panics").start(|| panic!("as it should")).unwrap();
    panics.join().unwrap_err();
    assert_eq!(thread::alive(), 0);

    // There is no room for such a stack.
    let refused = thread::named("none").stack_bytes(1 << 46).start(|| ());
    refused.unwrap_err();
    assert_eq!(thread::alive(), 0);
    assert_eq!(blocked(), before, "the program's own mask is as it was");
}
