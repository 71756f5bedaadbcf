//! What came out of a plan, and of each run of a seed.

use baio_engine::sim::Fault;
use serde::Serialize;

macro_rules! faults {
    ($($name:ident: $fault:ident,)*) => {
        /// How often each fault was injected.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        #[allow(missing_docs, reason = "the names are those of the faults")]
        pub struct Faults {
            $(pub $name: u64,)*
        }

        impl Faults {
            pub(super) fn of(&mut self, fault: Fault) -> &mut u64 {
                match fault {
                    $(Fault::$fault => &mut self.$name,)*
                }
            }
        }
    };
}

faults! {
    short_read: ShortRead,
    short_write: ShortWrite,
    read_error: ReadError,
    write_error: WriteError,
    no_space: NoSpace,
    interrupted: Interrupted,
    try_again: TryAgain,
    delay: Delay,
    lost_write: LostWrite,
    torn_write: TornWrite,
    misdirected: Misdirected,
    rot: Rot,
    failed_flush: FailedFlush,
}

/// What came out. Each seed is run twice; everything but the time is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Of this object.
    pub schema_version: u32,
    /// Seeds run.
    pub seeds: u64,
    /// Requests submitted.
    pub requests: u64,
    /// Of these completed.
    pub completed: u64,
    /// Notices that memory is free again.
    pub released: u64,
    /// Requests that ended as cancelled.
    pub cancelled: u64,
    /// Requests that were overdue.
    pub indeterminate: u64,
    /// Syncs and fences that succeeded.
    pub synced: u64,
    /// Those refused because an earlier one had failed.
    pub poisoned: u64,
    /// Power cuts.
    pub power_cuts: u64,
    /// Sectors compared with the model, in reads and behind power cuts.
    pub sectors_checked: u64,
    /// Sectors seen that were known to be damaged, and so could not be compared.
    pub sectors_damaged: u64,
    /// Events of the machines.
    pub events: u64,
    /// Faults injected.
    pub faults: Faults,
    /// Seeds in which an answer was wrong.
    pub wrong: u64,
    /// Seeds that told two stories.
    pub replays_differing: u64,
    /// Wall-clock time, for both runs of every seed.
    pub seconds: f64,
    /// Requests submitted in both runs, per second of that.
    pub requests_per_second: f64,
}

impl Report {
    pub(super) fn add(&mut self, tale: &Tale) {
        self.requests += tale.report.requests;
        self.completed += tale.report.completed;
        self.released += tale.report.released;
        self.cancelled += tale.report.cancelled;
        self.indeterminate += tale.report.indeterminate;
        self.synced += tale.report.synced;
        self.poisoned += tale.report.poisoned;
        self.power_cuts += tale.report.power_cuts;
        self.sectors_checked += tale.report.sectors_checked;
        self.sectors_damaged += tale.report.sectors_damaged;
        self.events += tale.report.events;
        let mut mine = tale.report.faults;
        for fault in Fault::ALL {
            *self.faults.of(fault) += *mine.of(fault);
        }
    }
}

/// What one run of a seed came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tale {
    pub(super) report: Report,
    pub(super) hash: u64,
    /// Folded over everything that was told.
    pub(super) told: u64,
    pub(super) wrong: Option<String>,
}
