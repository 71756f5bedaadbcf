//! What an experiment found: rows for people, raw measurements for programs, sentences, drawings.
//!
//! A comparison gives a row for each peer and figure; what is counted of our own side gives one without a peer. The report's table, its
//! page and its verdict are made of these rows ([`Row`](crate::report::record::Row)), so nothing that is a figure is told in a sentence.

use baio_console::failure::Failure;
use baio_stress::{CacheCounts, Measurement};
use serde_json::{Value, json};

use crate::disk;
use crate::figures::middle;
use crate::report::comparison::{Peer, Side, Turns, in_turn, ratio, ratios};
use crate::report::marks::{Bound, Figure, Mark};
use crate::report::progress::Progress;
use crate::report::record::{Chart, Row};

/// What an experiment gave: its comparisons, and what else there is to tell.
#[derive(Default)]
pub(super) struct Findings {
    /// Sentences: what was done, and what is no figure.
    pub(super) lines: Vec<String>,
    /// The measurements themselves.
    pub(super) parts: Vec<Value>,
    pub(super) rows: Vec<Row>,
    /// Of the disk alone.
    pub(super) disk: Vec<disk::Figure>,
    pub(super) charts: Vec<Chart>,
    /// Requests that failed, on any side: then the figures mean nothing.
    pub(super) errors: u64,
    /// Something else did not hold that must hold; a line tells what.
    pub(super) is_wrong: bool,
    pub(super) progress: Progress,
}

impl Findings {
    /// Runs ours in turn with its peers, and notes what that gave.
    ///
    /// # Errors
    /// Our side failed.
    pub(super) fn compare(&mut self, rounds: usize, ours: Side, peers: Vec<Peer>) -> Result<Turns, Failure> {
        self.progress.at(&ours.name);
        let turns = in_turn(&ours, &peers, rounds).map_err(|error| our_side(error, &ours.name))?;
        self.note(&ours, &peers, &turns);
        Ok(turns)
    }

    /// Notes what our own cache has done in the comparison that was made last, and what it is to do at most: the median of the rounds.
    pub(super) fn counted(
        &mut self,
        runs: &[Measurement],
        (said, key): (&str, &str),
        most: Option<f64>,
        of: impl Fn(&Measurement, &CacheCounts) -> f64,
    ) {
        let of_run = |run: &Measurement| run.cache.as_ref().map_or(f64::NAN, |cache| of(run, cache));
        self.count(said, key, middle(runs, of_run), most.map(Bound::AtMost));
    }

    /// Tells why something is not compared at all.
    pub(super) fn skip(&mut self, what: &str, reason: &str) {
        self.rows.push(Row {
            what: what.to_owned(),
            skipped: Some(reason.to_owned()),
            ..Row::default()
        });
        self.parts.push(json!({ "part": what, "skipped": reason }));
    }

    /// Notes something counted of the comparison that was made last, and what it is to be.
    pub(super) fn count(&mut self, said: &str, key: &str, value: f64, bound: Option<Bound>) {
        let of_last = |key: &str| self.parts.last().and_then(|part| part[key].as_str());
        let row = Row {
            what: of_last("part").unwrap_or_default().to_owned(),
            command: of_last("command").unwrap_or_default().to_owned(),
            ..Row::of(said, "", value)
        };
        self.rows.push(row.held_to(bound, value));
        self.told(key, value, bound);
    }

    /// Notes a figure of our own that is of no comparison.
    pub(super) fn figure(&mut self, what: &str, figure: &str, unit: &str, value: f64, bound: Option<Bound>) {
        let row = Row {
            what: what.to_owned(),
            ..Row::of(figure, unit, value)
        };
        self.rows.push(row.held_to(bound, value));
    }

    /// Holds our side to a mark against one of its peers, who is known only now: the row of that figure gets it.
    pub(super) fn hold(&mut self, turns: &Turns, peer: &str, mark: Mark, key: &str) {
        let Some((_, theirs)) = turns.peers().find(|(name, _)| *name == peer) else {
            return;
        };
        let value = ratio(mark.figure, &turns.ours, theirs);
        let what = self.parts.last().and_then(|part| part["part"].as_str());
        let is_it = |row: &Row| Some(row.what.as_str()) == what && row.peer == peer && row.figure == mark.figure.said();
        if let Some(at) = self.rows.iter().rposition(is_it) {
            let row = std::mem::take(&mut self.rows[at]);
            self.rows[at] = row.held_to(Some(mark.bound), value);
        }
        self.told(key, value, Some(mark.bound));
    }

    /// The same with marks against the better of its peers, each with its key. Where none ran, each is told as one that was not judged.
    pub(super) fn hold_to_best<'a>(&mut self, turns: &Turns, marks: impl IntoIterator<Item = (Mark, &'a str)>) {
        let best = turns.best().map(|(name, _)| name);
        for (mark, key) in marks {
            match best {
                Some(name) => self.hold(turns, name, mark, key),
                None => self.not_judged(mark.figure.said(), mark.figure.unit(), mark.bound),
            }
        }
    }

    /// Notes a mark of the comparison that was made last for which no peer has given a figure: it is not one that holds.
    pub(super) fn not_judged(&mut self, figure: &str, unit: &str, bound: Bound) {
        let of_last = |key: &str| self.parts.last().and_then(|part| part[key].as_str());
        let row = Row {
            what: of_last("part").unwrap_or_default().to_owned(),
            command: of_last("command").unwrap_or_default().to_owned(),
            figure: figure.to_owned(),
            unit: unit.to_owned(),
            mark: Some(bound.to_string()),
            skipped: Some("no peer gave a figure".to_owned()),
            ..Row::default()
        };
        self.rows.push(row);
    }

    /// Whether everything held that must hold; tells it of requests.
    pub(super) fn verified(&mut self) -> bool {
        if self.errors > 0 {
            self.lines
                .push(format!("{} REQUESTS FAILED: these figures mean nothing", self.errors));
        }
        self.errors == 0 && !self.is_wrong
    }

    /// Among the raw parts.
    fn told(&mut self, key: &str, value: f64, bound: Option<Bound>) {
        let Some(part) = self.parts.last_mut() else { return };
        part["counts"][key] = json!({
            "value": value,
            "mark": bound.map(|bound| bound.to_string()),
            "holds": bound.map(|bound| bound.shortfall(value).is_none()),
        });
    }

    fn note(&mut self, ours: &Side, peers: &[Peer], turns: &Turns) {
        let all = turns.peers().flat_map(|(_, runs)| runs).chain(&turns.ours);
        self.errors += all.map(|run| run.errors).sum::<u64>();
        if peers.is_empty() {
            for figure in [Figure::Requests, Figure::Cpu] {
                let row = Row::of(figure.said(), figure.unit(), middle(&turns.ours, |run| figure.of(run)));
                self.rows.push(row.by(ours));
            }
        }
        let against: Vec<Value> = peers
            .iter()
            .zip(&turns.peers)
            .map(|(peer, (_, runs))| match runs {
                Ok(runs) => self.note_peer(ours, peer, &turns.ours, runs),
                Err(reason) => self.note_missing(ours, peer, &turns.ours, reason),
            })
            .collect();
        self.parts.push(json!({
            "part": ours.name,
            "command": ours.command,
            "runs": turns.ours,
            "against": against,
        }));
    }

    fn note_missing(&mut self, ours: &Side, peer: &Peer, runs: &[Measurement], reason: &str) -> Value {
        let row = |figure: Figure, mark: Option<String>| {
            let row = Row {
                skipped: Some(reason.to_owned()),
                mark,
                ..Row::of(figure.said(), figure.unit(), middle(runs, |run| figure.of(run)))
            };
            row.by(ours).beside(&peer.side)
        };
        // A mark that could not be judged is not one that holds.
        let marked = peer.marks.iter().map(|mark| row(mark.figure, Some(mark.to_string())));
        self.rows.extend(marked);
        if peer.marks.is_empty() {
            self.rows.push(row(Figure::Requests, None));
        }
        json!({ "peer": peer.side.name, "command": peer.side.command, "skipped": reason })
    }

    fn note_peer(&mut self, ours: &Side, peer: &Peer, runs: &[Measurement], theirs: &[Measurement]) -> Value {
        let mut marks = Vec::new();
        let mut object = json!({ "peer": peer.side.name, "command": peer.side.command, "runs": theirs });
        for figure in peer.figures() {
            let ratio = ratio(figure, runs, theirs);
            let rounds = ratios(figure, runs, theirs).into_iter();
            object[figure.key()] = json!(ratio);
            let row = Row {
                theirs: finite(middle(theirs, |run| figure.of(run))),
                ratio: finite(ratio),
                spread: disk::ends(rounds.filter(|ratio| ratio.is_finite())).map(|(least, most)| [least, most]),
                ..Row::of(figure.said(), figure.unit(), middle(runs, |run| figure.of(run)))
            };
            let row = row.by(ours).beside(&peer.side);
            let held = peer.marks.iter().filter(|mark| mark.figure == figure);
            let mut bounds: Vec<Option<Bound>> = held.map(|mark| Some(mark.bound)).collect();
            for bound in bounds.iter().flatten() {
                marks.push(json!({
                    "figure": figure.key(),
                    "mark": bound.to_string(),
                    "holds": bound.shortfall(ratio).is_none(),
                }));
            }
            if bounds.is_empty() {
                bounds.push(None);
            }
            let rows = bounds.into_iter().map(|bound| row.clone().held_to(bound, ratio));
            self.rows.extend(rows);
        }
        object["marks"] = Value::Array(marks);
        object
    }
}

/// Our own side did not run.
pub(super) fn our_side(error: String, name: &str) -> Failure {
    Failure::new("report", "EIO", error)
        .on(name)
        .needing("our own side to run")
        .cured_by("run its command by itself and see what it says; `baio doctor` tells what works here")
}

/// JSON knows no others.
pub(super) fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

impl Row {
    /// A figure of ours.
    fn of(figure: &str, unit: &str, value: f64) -> Row {
        Row {
            figure: figure.to_owned(),
            unit: unit.to_owned(),
            ours: finite(value),
            ..Row::default()
        }
    }

    fn by(self, ours: &Side) -> Row {
        Row {
            what: ours.name.clone(),
            command: ours.command.clone(),
            ..self
        }
    }

    fn beside(self, peer: &Side) -> Row {
        Row {
            peer: peer.name.clone(),
            peers_command: peer.command.clone(),
            ..self
        }
    }

    /// With the mark that `value`, a ratio or a count, is to keep.
    fn held_to(self, bound: Option<Bound>, value: f64) -> Row {
        let Some(bound) = bound else { return self };
        let short = bound.shortfall(value);
        Row {
            mark: Some(bound.to_string()),
            holds: Some(short.is_none()),
            short_by: short.and_then(finite),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::marks::{cpu, rate};
    use crate::report::record::Record;
    use crate::report::tally::Tally;
    use std::cell::Cell;
    use std::rc::Rc;

    fn side(name: &str, rates: &'static [f64]) -> Side {
        let round = Cell::new(0);
        Side {
            name: name.into(),
            command: format!("run {name}"),
            run: Box::new(move || {
                let iops = rates.get(round.get()).copied().ok_or("not here")?;
                round.set(round.get() + 1);
                Ok(Measurement {
                    iops,
                    cpu_us_per_request: 2.0,
                    ..Measurement::default()
                })
            }),
        }
    }

    fn compared(rounds: usize, peer: Side, marks: &[Mark]) -> (Findings, Turns) {
        let mut findings = Findings::default();
        let peers = vec![Peer::new(peer, marks.iter().copied())];
        let turns = findings.compare(rounds, side("ours", &[90.0, 100.0, 110.0]), peers);
        (findings, turns.unwrap())
    }

    #[test]
    fn a_comparison_gives_a_row_for_each_peer_and_figure() {
        let (findings, _) = compared(3, side("peer", &[100.0, 100.0, 100.0]), &[rate(1.5), cpu(1.0)]);
        let [requests, cpu, less_start] = &findings.rows[..] else {
            panic!("{:?}", findings.rows);
        };
        assert_eq!((&requests.what[..], &requests.figure[..]), ("ours", "requests/s"));
        assert_eq!((requests.ours, requests.theirs), (Some(100.0), Some(100.0)));
        assert_eq!((requests.ratio, requests.spread), (Some(1.0), Some([0.9, 1.1])));
        assert_eq!(
            (requests.mark.as_deref(), requests.holds),
            (Some(">= 1.5"), Some(false))
        );
        assert!((requests.short_by.unwrap() - 100.0 / 3.0).abs() < 1e-9);
        assert_eq!(
            (&requests.command[..], &requests.peers_command[..]),
            ("run ours", "run peer")
        );
        assert_eq!((&cpu.unit[..], cpu.holds, cpu.short_by), ("us", Some(true), None));
        assert_eq!((&less_start.mark, less_start.holds), (&None, None));
    }

    #[test]
    fn a_single_round_has_no_spread_and_a_missing_peer_a_reason() {
        let (findings, _) = compared(1, side("peer", &[100.0]), &[]);
        assert_eq!(findings.rows[0].spread, None);
        // One that cannot run is tried once.
        let tries = Rc::new(Cell::new(0));
        let counted = Rc::clone(&tries);
        let peer = side("peer", &[]).after(move || {
            counted.set(counted.get() + 1);
            Ok(())
        });
        let (findings, turns) = compared(2, peer, &[rate(1.0)]);
        assert_eq!((tries.get(), turns.ours.len()), (1, 2));
        let [row] = &findings.rows[..] else {
            panic!("{:?}", findings.rows)
        };
        assert_eq!((row.skipped.as_deref(), row.holds), (Some("not here"), None));
        assert!(row.mark.is_some(), "a mark that was not judged is told");
        assert_eq!((row.ours, &row.peer[..]), (Some(95.0), "peer"));
        assert_eq!(findings.parts[0]["against"][0]["skipped"], "not here");
    }

    #[test]
    fn a_mark_against_the_better_stands_in_its_row() {
        let (mut findings, turns) = compared(1, side("peer", &[60.0]), &[]);
        findings.hold(&turns, "peer", rate(2.0), "iops_ratio");
        let marked: Vec<&Row> = findings.rows.iter().filter(|row| row.mark.is_some()).collect();
        assert_eq!(marked.len(), 1);
        assert_eq!((&marked[0].figure[..], marked[0].holds), ("requests/s", Some(false)));
        assert_eq!(findings.parts[0]["counts"]["iops_ratio"]["holds"], false);
    }

    #[test]
    fn a_mark_against_the_better_of_none_is_not_measured() {
        let (mut findings, turns) = compared(1, side("peer", &[]), &[]);
        assert!(turns.best().is_none());
        findings.hold_to_best(&turns, [(rate(1.0), "requests"), (cpu(1.0), "cpu")]);
        let record = Record::of(findings.rows);
        let tally = Tally::of(&record);
        assert_eq!((tally.held, tally.missed.len(), tally.not_measured), (0, 0, 2));
        assert!(record.rows().all(|found| found.row.what == "ours"));
    }

    #[test]
    fn what_was_counted_stands_with_its_comparison() {
        let (mut findings, _) = compared(1, side("peer", &[60.0]), &[]);
        let before = findings.rows.len();
        findings.count("reads a request", "reads", 1.5, Some(Bound::AtMost(1.0)));
        findings.count("reads in vain", "vain", 2.0, Some(Bound::AtMost(0.0)));
        findings.count("pages a read", "pages", 4.0, None);
        findings.count("nothing", "nothing", f64::NAN, Some(Bound::AtMost(0.0)));
        let [reads, vain, pages, nothing] = &findings.rows[before..] else {
            panic!("{:?}", findings.rows);
        };
        assert_eq!(
            (&reads.what[..], reads.ours, reads.short_by),
            ("ours", Some(1.5), Some(50.0))
        );
        assert_eq!((vain.holds, pages.holds, pages.ours), (Some(false), None, Some(4.0)));
        assert_eq!(
            (nothing.ours, nothing.holds),
            (None, Some(false)),
            "nothing measured is nothing met"
        );
        let counts = &findings.parts[0]["counts"];
        assert_eq!(counts["reads"]["holds"], false);
        assert_eq!(counts["reads"]["mark"], "<= 1");
        assert_eq!(counts["pages"]["value"], 4.0);
    }
}
