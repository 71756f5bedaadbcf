//! What is known to differ between the original and ours. Nowhere else does the test make the two the same. Each difference is a line of
//! docs/program/drop-ins.md, "Known differences".

use crate::common::{Context, Library};

/// How the lines begin.
pub(crate) const LINES: [&str; 5] = [
    "**A flag or priority that is refused**",
    "**A poll**",
    "**An address that is not a context**",
    "**EINTR.**",
    "**An event fd**",
];

/// The other files that programs use, by their place in `World::others`. 0 is only a path, 1 and 2 are /dev/null and /dev/zero, 6 is a directory.
pub(crate) const PIPE: usize = 3;
pub(crate) const PIPE_END: usize = 4;
pub(crate) const SOCKET: usize = 5;

/// "A flag or priority that is refused": those that each file knows and each thread may have.
pub(crate) const RW_FLAGS: [i32; 5] = [libc::RWF_DSYNC, libc::RWF_SYNC, 1, 1 << 30, 0x30];
pub(crate) const PRIORITIES: [i16; 5] = [0, 3, 2 << 13 | 4, 3 << 13, (7_u16 << 13) as i16];

/// "A poll": of what an event says, what was asked for and what always is.
pub(crate) fn poll(result: i64, asked: i16) -> i64 {
    if result < 0 {
        return result;
    }
    result & i64::from(asked | libc::POLLERR | libc::POLLHUP)
}

/// "An address that is not a context": may it be asked for events?
pub(crate) fn may_take_from_none(library: &Library, context: Context) -> bool {
    library.name == "ours" || context == 0
}

/// "EINTR": a ring of ours, at work in this thread, has woken it in a wait of the kernel's own for a context that has not gone over, which
/// found nothing. Who will not wait is not woken.
pub(crate) fn woken(told: i32, waits: bool) -> i32 {
    if told == -libc::EINTR && waits { 0 } else { told }
}

/// "An event fd": so long may its signal come after its event.
pub(crate) const LATE: std::time::Duration = std::time::Duration::from_secs(20);

#[test]
fn known_differences_stand_in_the_document() {
    let text = include_str!("../../../../docs/program/drop-ins.md");
    let (_, known) = text.split_once("## Known differences").unwrap();
    for line in LINES {
        assert!(known.contains(&format!("\n- {line}")), "{line}");
    }
}
