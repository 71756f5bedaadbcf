//! What the seed documents ask for, S1 to S20. A line of the table names the experiments that show it; their rows say whether it holds.

use crate::report::experiments::When;
use crate::report::record::{Experiment, Promise};

/// What is asked for, and by which experiments it is shown. None: it is not built yet.
struct Asked {
    id: &'static str,
    title: &'static str,
    document: &'static str,
    shown_by: &'static [&'static str],
}

/// A line each.
macro_rules! asked {
    ($($id:literal $title:literal, $document:literal: [$($shown_by:literal)*])*) => {
        [$(Asked { id: $id, title: $title, document: $document, shown_by: &[$($shown_by),*] },)*]
    };
}

const ASKED: [Asked; 20] = asked! {
    "S1" "retry-based asynchronous buffered reads", "000, 001 §2-3.1": ["cached-reads"]
    "S2" "upfront readahead", "001 §3.2-3.5": ["sequential-reads"]
    "S3" "direct and buffered I/O on the same data", "001 §4": ["mixed-paths"]
    "S4" "concurrent direct writes to one object", "001 §5.1": ["random-write"]
    "S5" "concurrent O_SYNC buffered writes", "000, 001 §5.2-7.1": ["durable-writes" "buffered-writes"]
    "S6" "tagged radix tree write-back", "001 §6": ["plain-writes"]
    "S7" "filtered wake-ups", "001 §7.2": ["durable-writes"]
    "S8" "database page cleaners", "001 §8": ["page-cleaners"]
    "S9" "disk and communications I/O in one loop", "001 §9": ["one-queue"]
    "S10" "POSIX AIO and libaio on top", "000, 001 §10": ["drop-ins"]
    "S11" "aio-stress", "001 §3.6, §7.3": ["aio-stress-table" "streaming-figures"]
    "S12" "asynchronous dd", "002": ["request-size"]
    "S13" "the transaction-log writer", "002": ["log-appends"]
    "S14" "write latency per I/O scheduler", "003": ["posted-writes"]
    "S15" "disk segments: create, open, quota, names", "004 §4": ["segments"]
    "S16" "many operations in one call, status words", "004 §4, §6": ["batches" "segments"]
    "S17" "on-disk structure", "004 §5": ["segments" "volume-scale"]
    "S18" "service thread, shared memory", "004 §5": ["service" "broker"]
    "S19" "user-level file systems, stubs", "004 §4": []
    "S20" "pipelined request processing", "004 §7": ["pipelining"]
};

/// One row each, with what `experiments` say of it.
pub(super) fn promises(experiments: &[Experiment]) -> Vec<Promise> {
    let of = |asked: &Asked| Promise {
        id: asked.id.into(),
        title: asked.title.into(),
        document: asked.document.into(),
        state: state(asked.shown_by, experiments).into(),
        shown_by: asked.shown_by.iter().map(|name| (*name).to_owned()).collect(),
    };
    ASKED.iter().map(of).collect()
}

fn state(shown_by: &[&str], experiments: &[Experiment]) -> &'static str {
    let named = experiments.iter().filter(|one| shown_by.contains(&&one.name[..]));
    let ran: Vec<&Experiment> = named.filter(|one| one.has_shown()).collect();
    let marks = || ran.iter().flat_map(|one| &one.rows).filter_map(|row| row.holds);
    // One that runs on request only is not missed where nobody asked for it.
    let is_missed = |name: &&str| When::of(name) != Some(When::OnRequest) && !ran.iter().any(|one| one.name == *name);
    match () {
        () if shown_by.is_empty() => "not built yet",
        () if ran.is_empty() => "not run",
        () if ran.iter().any(|one| !one.verified) || marks().any(|holds| !holds) => "missed",
        // Without a mark it is an answer that was looked at, and not a figure.
        () if shown_by.iter().any(is_missed) => "in part",
        () if marks().next().is_none() => "checked",
        () => "shown",
    }
}

impl Experiment {
    /// Did it come to any result? One that was skipped, or stopped before, has shown nothing.
    fn has_shown(&self) -> bool {
        !self.has_stopped() && (self.rows.is_empty() || self.rows.iter().any(|row| row.skipped.is_none()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::record::Row;

    fn experiment(name: &str, holds: Option<bool>) -> Experiment {
        let row = Row {
            holds,
            ..Row::default()
        };
        Experiment {
            name: name.into(),
            verified: true,
            rows: vec![row],
            ..Experiment::default()
        }
    }

    fn state_of(experiments: &[Experiment], id: &str) -> String {
        promises(experiments)
            .into_iter()
            .find(|promise| promise.id == id)
            .unwrap()
            .state
    }

    #[test]
    fn a_promise_is_shown_by_marks_that_hold_and_checked_without_any() {
        let of = |holds| state_of(&[experiment("random-write", holds)], "S4");
        assert_eq!([Some(true), Some(false), None].map(of), ["shown", "missed", "checked"]);
        assert_eq!(
            state_of(&[experiment("service", Some(true))], "S18"),
            "in part",
            "no broker ran"
        );
        assert_eq!(
            state_of(&[experiment("segments", Some(true))], "S17"),
            "shown",
            "the other one runs when named"
        );
        assert_eq!(
            state_of(&[experiment("volume-scale", Some(true))], "S17"),
            "in part",
            "the one that runs on request stands for no other"
        );
        assert_eq!(state_of(&[], "S18"), "not run");
        assert_eq!(state_of(&[], "S19"), "not built yet");
    }

    #[test]
    fn what_was_skipped_or_did_not_verify_shows_nothing() {
        let mut skipped = experiment("service", None);
        skipped.rows[0].skipped = Some("not here".into());
        assert_eq!(state_of(&[skipped], "S18"), "not run");
        let mut wrong = experiment("service", Some(true));
        wrong.verified = false;
        assert_eq!(state_of(&[wrong], "S18"), "missed");
    }

    #[test]
    fn all_twenty_are_there_once_and_so_are_their_experiments() {
        let ids: Vec<&str> = ASKED.iter().map(|asked| asked.id).collect();
        assert_eq!(ids, (1..=20).map(|number| format!("S{number}")).collect::<Vec<_>>());
        let mut shown_by = ASKED.iter().flat_map(|asked| asked.shown_by);
        assert!(shown_by.all(|name| When::of(name).is_some()));
    }
}
