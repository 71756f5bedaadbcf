//! A log that a core drives: made, and waited for.

use baio_engine::Wait;
use baio_storage::log::{LogAnswer, LogOptions, Lsn};
use baio_storage::{Core, Handle, HeldLog, LogReply};

pub(crate) const LOG_BYTES: u64 = 512 << 10;

pub(crate) fn options() -> LogOptions {
    LogOptions {
        batch_bytes_max: 16 << 10,
        ..LogOptions::default()
    }
}

pub(crate) fn held(reply: LogReply) -> HeldLog {
    match reply {
        LogReply::Opened(held, LogAnswer::Opened(_)) => held,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn create_log(core: &mut Core, handle: Handle) -> HeldLog {
    let question = core.begin_create_log(handle, &options()).unwrap();
    held(core.wait_log(&question).unwrap())
}

pub(crate) fn is_durable(log: &HeldLog, lsn: Lsn) -> bool {
    lsn < log.appender().durable_lsn()
}

/// Turns until the record is durable; not for ever.
pub(crate) fn wait(core: &mut Core, log: &HeldLog, lsn: Lsn) {
    for _ in 0..10_000 {
        if is_durable(log, lsn) {
            return;
        }
        core.turn(Wait::one()).unwrap();
    }
    panic!("it does not become durable");
}
