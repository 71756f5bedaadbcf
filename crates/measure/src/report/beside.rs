//! Ours beside the others: in how much work it was faster, the same or slower, and used less or more of the processor.
//!
//! Of each work the best of a kind of peers counts. A verdict needs rounds that agree: their spread, as wide again on either side and never less than
//! two per cent, lies on one side of the peer. Else the two are the same as far as anybody can tell; and one round tells nothing.

use std::collections::BTreeMap;

use crate::report::marks::Figure;
use crate::report::numbers::ratio;
use crate::report::record::{Found, Record, Row};

/// Kinds of peers, and the words that tell one by its name. What has none of them is ours by another way, and no peer.
const KINDS: [(&str, &[&str]); 4] = [
    (
        "blocking calls",
        &["thread", "synchronous", "blocking", "pread", "bare"],
    ),
    ("fio", &["fio "]),
    ("runtimes", &["tokio-uring", "glommio", "compio"]),
    ("GNU dd", &["dd,"]),
];

/// How names begin that are ours all the same.
const OURS: [&str; 6] = ["ours", "baio ", "the volume ", "uring,", "threads,", "aio "];

/// The least part by which a peer must differ.
const LEAST: f64 = 0.02;

/// One kind of peers.
pub(super) struct Beside<'a> {
    pub(super) peers: &'static str,
    pub(super) speed: Counts<'a>,
    pub(super) cpu: Counts<'a>,
}

#[derive(Default)]
pub(super) struct Counts<'a> {
    pub(super) better: Vec<Found<'a>>,
    pub(super) same: Vec<Found<'a>>,
    /// The worst first.
    pub(super) worse: Vec<Found<'a>>,
    /// Of these there was one round.
    pub(super) once: usize,
}

/// What a comparison says of us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Better,
    Same,
    Worse,
    /// There was one round.
    Once,
}

impl<'a> Beside<'a> {
    /// All kinds with which anything was compared.
    pub(super) fn all(record: &'a Record) -> Vec<Beside<'a>> {
        let all = KINDS.map(|(peers, _)| Beside {
            peers,
            speed: Counts::of(record, peers, Figure::Requests),
            cpu: Counts::of(record, peers, Figure::Cpu),
        });
        all.into_iter()
            .filter(|one| one.speed.all() + one.speed.once > 0)
            .collect()
    }
}

/// In which work they are faster, by most first.
pub(super) fn losses<'a>(all: &'a [Beside<'a>]) -> Vec<&'a Found<'a>> {
    let mut worst: Vec<&Found<'_>> = all.iter().flat_map(|one| &one.speed.worse).collect();
    let rate = |one: &Found<'_>| one.row.ratio.unwrap_or(1.0);
    worst.sort_by(|one, other| rate(one).total_cmp(&rate(other)));
    worst
}

/// How much slower ours was, and than whom.
pub(super) fn how_slow(row: &Row) -> String {
    let rate = row.ratio.unwrap_or(1.0);
    match rate < 0.5 {
        true => format!("{} times slower than {}", ratio(1.0 / rate), row.peer),
        false => format!("{:.0} % slower than {}", (1.0 - rate) * 100.0, row.peer),
    }
}

impl<'a> Counts<'a> {
    fn of(record: &'a Record, kind: &str, figure: Figure) -> Counts<'a> {
        let mut counts = Counts::default();
        for (experiment, told) in record.experiments.iter().enumerate() {
            let is_it =
                |row: &Row| row.ratio.is_some() && row.figure == figure.said() && kind_of(&row.peer) == Some(kind);
            // By work; a peer that has two marks has two rows.
            let mut best: BTreeMap<&str, Found<'a>> = BTreeMap::new();
            for found in told.found(experiment).filter(|found| is_it(found.row)) {
                let known = best.entry(&found.row.what).or_insert(found);
                if theirs(figure, found.row) > theirs(figure, known.row) {
                    *known = found;
                }
            }
            best.into_values().for_each(|found| counts.add(found));
        }
        let far = |one: &Found<'_>| one.row.ratio.map_or(1.0, |ratio| ratio.max(1.0 / ratio));
        counts.worse.sort_by(|one, other| far(other).total_cmp(&far(one)));
        counts
    }

    fn add(&mut self, compared: Found<'a>) {
        match Verdict::of(compared.row) {
            Verdict::Better => self.better.push(compared),
            Verdict::Same => self.same.push(compared),
            Verdict::Worse => self.worse.push(compared),
            Verdict::Once => self.once += 1,
        }
    }

    pub(super) fn all(&self) -> usize {
        self.better.len() + self.same.len() + self.worse.len()
    }
}

/// The more the better.
fn theirs(figure: Figure, row: &Row) -> f64 {
    let value = row.theirs.unwrap_or(f64::NAN);
    if Figure::more_is_better(figure.said()) {
        value
    } else {
        -value
    }
}

fn kind_of(peer: &str) -> Option<&'static str> {
    if OURS.iter().any(|start| peer.starts_with(start)) {
        return None;
    }
    let has = |words: &&[&str]| words.iter().any(|word| peer.contains(word));
    KINDS.iter().find(|(_, words)| has(words)).map(|(kind, _)| *kind)
}

impl Verdict {
    /// Of a row that has a ratio.
    pub(super) fn of(row: &Row) -> Verdict {
        let Some([least, most]) = row.spread else {
            return Verdict::Once;
        };
        let room = (most - least).max(LEAST);
        match (least - room > 1.0, most + room < 1.0) {
            (true, _) => Verdict::of_more(row),
            (_, true) => Verdict::of_more(row).turned(),
            _ => Verdict::Same,
        }
    }

    /// What it is to have more of this figure.
    fn of_more(row: &Row) -> Verdict {
        if Figure::more_is_better(&row.figure) {
            Verdict::Better
        } else {
            Verdict::Worse
        }
    }

    fn turned(self) -> Verdict {
        match self {
            Verdict::Better => Verdict::Worse,
            Verdict::Worse => Verdict::Better,
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(what: &str, figure: Figure, peer: &str, theirs: f64, spread: Option<[f64; 2]>) -> Row {
        Row {
            what: what.into(),
            figure: figure.said().into(),
            peer: peer.into(),
            theirs: Some(theirs),
            ratio: Some(spread.map_or(2.0, |[least, most]| f64::midpoint(least, most))),
            spread,
            ..Row::default()
        }
    }

    #[test]
    fn rounds_that_do_not_agree_and_one_round_make_no_verdict() {
        let verdict = |figure, spread| Verdict::of(&row("", figure, "fio", 1.0, spread));
        for (spread, rate) in [
            (Some([1.2, 1.25]), Verdict::Better),
            (Some([1.0, 1.9]), Verdict::Same),
            (Some([1.05, 1.2]), Verdict::Same),
            (Some([1.01, 1.01]), Verdict::Same),
            (Some([0.7, 0.75]), Verdict::Worse),
            (None, Verdict::Once),
        ] {
            assert_eq!(verdict(Figure::Requests, spread), rate, "{spread:?}");
            assert_eq!(verdict(Figure::Cpu, spread), rate.turned(), "{spread:?}");
        }
    }

    #[test]
    fn the_best_of_a_kind_counts_and_ours_by_another_way_does_not() {
        let even = |peer: &str, theirs| row("read", Figure::Requests, peer, theirs, Some([1.2, 1.25]));
        let record = Record::of(vec![
            even("fio io_uring", 90.0),
            row("read", Figure::Requests, "fio libaio", 100.0, Some([0.7, 0.75])),
            even("64 fio psync threads", 50.0),
            even("64 fio psync threads", 50.0),
            even("ours, direct", 50.0),
            even("threads, 0 ms", 50.0),
            row("write", Figure::Requests, "fio io_uring", 1.0, None),
        ]);
        let all = Beside::all(&record);
        let told: Vec<_> = all
            .iter()
            .map(|one| (one.peers, one.speed.better.len(), one.speed.worse.len(), one.speed.once))
            .collect();
        assert_eq!(told, [("blocking calls", 1, 0, 0), ("fio", 0, 1, 1)]);
        assert_eq!(all[1].speed.worse[0].row.peer, "fio libaio");
    }
}
