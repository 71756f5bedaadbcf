//! Ours against peers, in turn: what every experiment that takes figures shares.
//!
//! A figure counts only as a ratio against a peer that ran in turn with it: ours, peer, ours, peer, and the median of the
//! ratios, so that the machine's drift meets both. Each side is a whole process. Beside a ratio stands the [`Mark`] that the
//! project has set itself, and whether it holds; a mark that is missed fails nothing, for figures are no test.
//!
//! A peer that cannot run here (not installed, refused by the kernel) is left out, with its reason. Ours must run.

use baio_console::failure::Failure;
use baio_stress::{CacheCounts, Measurement};
use serde_json::{Value, json};

use crate::figures::{fio, median, middle, stress, worker};
use crate::report::marks::{Bound, Figure, Mark};

/// One way to do the work.
pub(super) struct Side {
    pub(super) name: String,
    /// What a shell would be given to run it.
    pub(super) command: String,
    pub(super) run: Box<dyn Fn() -> Result<Measurement, String>>,
}

/// Whom ours is compared with.
pub(super) struct Peer {
    pub(super) side: Side,
    /// What is shown beside requests/s and processor time has a mark, or is named here without one.
    pub(super) marks: Vec<Mark>,
    pub(super) also: &'static [Figure],
}

type OfRun = dyn Fn(&Measurement, &CacheCounts) -> f64;

/// Something that our own cache counts, of one run.
pub(super) struct Count {
    said: &'static str,
    key: &'static str,
    of: Box<OfRun>,
    bound: Option<Bound>,
}

/// What one comparison gave.
pub(super) struct Turns {
    /// One a round.
    pub(super) ours: Vec<Measurement>,
    /// For each peer its name, and one a round, or why it was left out.
    peers: Vec<(String, Result<Vec<Measurement>, String>)>,
}

/// What an experiment gave: its comparisons, and what else there is to tell.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) lines: Vec<String>,
    pub(super) parts: Vec<Value>,
    /// Requests that failed, on any side: then the figures mean nothing.
    pub(super) errors: u64,
    /// Something else did not hold that must hold; a line tells what.
    pub(super) is_wrong: bool,
}

impl Turns {
    /// Of the peer of this number; none where it was left out.
    pub(super) fn peer(&self, index: usize) -> &[Measurement] {
        match self.peers.get(index) {
            Some((_, Ok(runs))) => runs,
            _ => &[],
        }
    }

    /// Those that ran, by their names.
    pub(super) fn peers(&self) -> impl Iterator<Item = (&str, &[Measurement])> {
        self.peers
            .iter()
            .filter_map(|(name, runs)| Some((name.as_str(), runs.as_deref().ok()?)))
    }

    /// The one of them that made most requests a second, which is known only now.
    pub(super) fn best(&self) -> Option<(&str, &[Measurement])> {
        let rate = |runs: &[Measurement]| middle(runs, |run| run.iops);
        self.peers().max_by(|one, other| rate(one.1).total_cmp(&rate(other.1)))
    }
}

impl Side {
    /// `baio stress`.
    pub(super) fn stress(name: String, run: stress::Run) -> Side {
        Side {
            name,
            command: run.command_line(),
            run: Box::new(move || run.run()),
        }
    }

    /// A job of our own.
    pub(super) fn worker(name: String, job: worker::Job) -> Side {
        Side {
            name,
            command: worker::command_line(&job),
            run: Box::new(move || worker::run(&job)),
        }
    }

    pub(super) fn fio(job: fio::Job) -> Side {
        Side {
            name: job.name(),
            command: job.command_line(),
            run: Box::new(move || fio::run(&job)),
        }
    }

    /// The same, behind what is done first each time and does not count.
    pub(super) fn after(self, prepare: impl Fn() -> Result<(), String> + 'static) -> Side {
        let run = self.run;
        Side {
            run: Box::new(move || prepare().and_then(|()| run())),
            ..self
        }
    }

    /// The same, unless there is a reason why it cannot run.
    pub(super) fn unless(self, reason: Option<&String>) -> Side {
        match reason.cloned() {
            Some(reason) => Side {
                run: Box::new(move || Err(reason.clone())),
                ..self
            },
            None => self,
        }
    }

    /// The same with rates that count the syncs behind the requests too, as fio's do.
    pub(super) fn synced(self) -> Side {
        let run = self.run;
        Side {
            run: Box::new(move || run().map(with_syncs)),
            ..self
        }
    }
}

fn with_syncs(mut run: Measurement) -> Measurement {
    if let Some(sync) = run.sync_seconds
        && run.iops > 0.0
    {
        let seconds = run.requests as f64 / run.iops;
        let part = seconds / (seconds + sync);
        (run.iops, run.bytes_per_second) = (run.iops * part, run.bytes_per_second * part);
    }
    run
}

impl Count {
    pub(super) fn new(
        said: &'static str,
        key: &'static str,
        of: impl Fn(&Measurement, &CacheCounts) -> f64 + 'static,
    ) -> Count {
        Count {
            said,
            key,
            of: Box::new(of),
            bound: None,
        }
    }

    pub(super) fn at_most(self, most: f64) -> Count {
        Count {
            bound: Some(Bound::AtMost(most)),
            ..self
        }
    }
}

impl Peer {
    pub(super) fn new(side: Side, marks: impl IntoIterator<Item = Mark>) -> Peer {
        Peer {
            side,
            marks: marks.into_iter().collect(),
            also: &[],
        }
    }

    /// Every figure once, in the order in which it is shown.
    fn figures(&self) -> Vec<Figure> {
        let marked = self.marks.iter().map(|mark| mark.figure);
        let mut figures = vec![Figure::Requests, Figure::Cpu, Figure::CpuLessStart];
        for figure in marked.chain(self.also.iter().copied()) {
            if !figures.contains(&figure) {
                figures.push(figure);
            }
        }
        figures
    }
}

impl Findings {
    /// Runs ours in turn with its peers, and notes what that gave.
    ///
    /// # Errors
    /// Our side failed.
    pub(super) fn compare(&mut self, rounds: usize, ours: Side, peers: Vec<Peer>) -> Result<Turns, Failure> {
        let turns = in_turn(&ours, &peers, rounds).map_err(|error| {
            Failure::new("report", "EIO", error)
                .on(ours.name.as_str())
                .needing("our own side to run")
                .cured_by("run its command by itself and see what it says; `baio doctor` tells what works here")
        })?;
        self.note(&ours, &peers, &turns);
        Ok(turns)
    }

    /// Notes what our own cache has done in the comparison that was made last: the median of the rounds.
    pub(super) fn counted(&mut self, runs: &[Measurement], counts: &[Count]) {
        for count in counts {
            let value = middle(runs, |run| {
                run.cache.as_ref().map_or(f64::NAN, |cache| (count.of)(run, cache))
            });
            self.count(count.said, count.key, value, count.bound);
        }
    }

    /// Tells why something is not compared at all.
    pub(super) fn skip(&mut self, what: &str, reason: &str) {
        self.lines.push(format!("skipped: {what}: {reason}"));
        self.parts.push(json!({ "part": what, "skipped": reason }));
    }

    /// Notes something counted of the comparison that was made last, and what it is to be.
    pub(super) fn count(&mut self, said: &str, key: &str, value: f64, bound: Option<Bound>) {
        let verdict = bound.map_or_else(String::new, |bound| format!(" ({})", bound.verdict(value)));
        let shown = if value.fract() == 0.0 {
            format!("{value}")
        } else {
            format!("{value:.3}")
        };
        self.lines.push(format!("    {shown} {said}{verdict}"));
        let Some(part) = self.parts.last_mut() else { return };
        part["counts"][key] = json!({
            "value": value,
            "mark": bound.map(|bound| bound.to_string()),
            "holds": bound.map(|bound| bound.shortfall(value).is_none()),
        });
    }

    /// Whether everything held that must hold; tells it of requests.
    pub(super) fn verified(&mut self) -> bool {
        if self.errors > 0 {
            self.lines
                .push(format!("{} REQUESTS FAILED: these figures mean nothing", self.errors));
        }
        self.errors == 0 && !self.is_wrong
    }

    fn note(&mut self, ours: &Side, peers: &[Peer], turns: &Turns) {
        let all = turns.peers().flat_map(|(_, runs)| runs).chain(&turns.ours);
        self.errors += all.map(|run| run.errors).sum::<u64>();
        self.lines.push(summary(&ours.name, &turns.ours));
        self.lines.push(format!("    {}", ours.command));
        let against: Vec<Value> = peers
            .iter()
            .zip(&turns.peers)
            .map(|(peer, (_, runs))| match runs {
                Ok(runs) => self.note_peer(peer, &turns.ours, runs),
                Err(reason) => {
                    let name = &peer.side.name;
                    self.lines.push(format!("  against {name}: skipped: {reason}"));
                    json!({ "peer": name, "command": peer.side.command, "skipped": reason })
                }
            })
            .collect();
        self.parts.push(json!({
            "part": ours.name,
            "command": ours.command,
            "runs": turns.ours,
            "against": against,
        }));
    }

    fn note_peer(&mut self, peer: &Peer, ours: &[Measurement], runs: &[Measurement]) -> Value {
        let mut said = Vec::new();
        let mut marks = Vec::new();
        let mut object = json!({ "peer": peer.side.name, "command": peer.side.command, "runs": runs });
        for figure in peer.figures() {
            let ratio = ratio(figure, ours, runs);
            object[figure.key()] = json!(ratio);
            let mut words = format!("{ratio:.2} of its {}", figure.said());
            for mark in peer.marks.iter().filter(|mark| mark.figure == figure) {
                words += &format!(" ({})", mark.verdict(ratio));
                marks.push(json!({
                    "figure": figure.key(),
                    "mark": mark.to_string(),
                    "holds": mark.shortfall(ratio).is_none(),
                }));
            }
            said.push(words);
        }
        object["marks"] = Value::Array(marks);
        let name = &peer.side.name;
        self.lines.push(format!("  against {name}: {}", said.join(", ")));
        self.lines.push(format!("    {}", peer.side.command));
        object
    }
}

/// Ours, peer, ours, peer: A B A B for each peer. A peer that fails once is not tried again.
fn in_turn(ours: &Side, peers: &[Peer], rounds: usize) -> Result<Turns, String> {
    let mut turns = Turns {
        ours: Vec::with_capacity(rounds),
        peers: peers
            .iter()
            .map(|peer| (peer.side.name.clone(), Ok(Vec::new())))
            .collect(),
    };
    for _ in 0..rounds {
        turns.ours.push((ours.run)()?);
        for (peer, (_, runs)) in peers.iter().zip(&mut turns.peers) {
            let Ok(so_far) = runs else { continue };
            match (peer.side.run)() {
                Ok(run) => so_far.push(run),
                Err(reason) => *runs = Err(reason),
            }
        }
    }
    Ok(turns)
}

/// The median of the ratios, round by round.
pub(super) fn ratio(figure: Figure, ours: &[Measurement], theirs: &[Measurement]) -> f64 {
    let pairs = ours.iter().zip(theirs);
    let ratios: Vec<f64> = pairs
        .map(|(ours, theirs)| figure.of(ours) / figure.of(theirs))
        .collect();
    median(&ratios)
}

fn summary(name: &str, runs: &[Measurement]) -> String {
    let middle = |of: fn(&Measurement) -> f64| middle(runs, of);
    let calls = middle(|m| m.system_calls_per_request.unwrap_or(f64::NAN));
    let calls = if calls.is_nan() {
        String::new()
    } else {
        format!(", {calls:.2} system calls")
    };
    let [p50, p99] = [
        middle(|m| m.latency_us.p50.unwrap_or(f64::NAN)),
        middle(|m| m.latency_us.p99.unwrap_or(f64::NAN)),
    ];
    let latency = if p50.is_nan() {
        String::new()
    } else {
        format!(", p50 {p50:.0} us, p99 {p99:.0} us")
    };
    format!(
        "{name}: {:.0} requests/s, {:.2} us CPU{calls} and {:.2} context switches a request{latency}",
        middle(|m| m.iops),
        middle(|m| m.cpu_us_per_request),
        middle(|m| m.context_switches_per_request),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::marks::{cpu, rate};
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    fn measured(iops: f64, cpu: f64) -> Measurement {
        Measurement {
            iops,
            cpu_us_per_request: cpu,
            ..Measurement::default()
        }
    }

    fn side(name: &str, run: impl Fn() -> Result<Measurement, String> + 'static) -> Side {
        Side {
            name: name.into(),
            command: format!("run {name}"),
            run: Box::new(run),
        }
    }

    #[test]
    fn sides_run_in_turn_and_each_round_has_its_ratio() {
        let order = Rc::new(RefCell::new(String::new()));
        let (a, b) = (Rc::clone(&order), Rc::clone(&order));
        let drift = Cell::new(1.0);
        let ours = side("ours", move || {
            a.borrow_mut().push('A');
            Ok(measured(100.0, 1.0))
        });
        let peer = side("peer", move || {
            b.borrow_mut().push('B');
            // 50, 100, 200: the ratios are 2, 1, 1/2, whose middle is 1.
            drift.set(drift.get() * 2.0);
            Ok(measured(25.0 * drift.get(), 2.0))
        });
        let mut findings = Findings::default();
        findings
            .compare(3, ours, vec![Peer::new(peer, [rate(0.97), cpu(0.75)])])
            .unwrap();
        assert_eq!(*order.borrow(), "ABABAB");
        let against = &findings.parts[0]["against"][0];
        assert_eq!(against["iops_ratio"], 1.0);
        assert_eq!(against["cpu_ratio"], 0.5);
        assert_eq!(against["runs"].as_array().unwrap().len(), 3);
        assert_eq!(against["marks"][0]["holds"], true);
        assert!(findings.lines.iter().any(|line| line.contains("run peer")));
        assert!(findings.verified());
    }

    #[test]
    fn a_peer_that_cannot_run_is_left_out_and_ours_goes_on() {
        let tries = Rc::new(Cell::new(0));
        let counted = Rc::clone(&tries);
        let peer = side("peer", move || {
            counted.set(counted.get() + 1);
            Err("not here".into())
        });
        let mut findings = Findings::default();
        let (ours, peers) = (
            side("ours", || Ok(measured(1.0, 1.0))),
            vec![Peer::new(peer, [rate(0.97), cpu(0.75)])],
        );
        findings.compare(2, ours, peers).unwrap();
        assert_eq!(tries.get(), 1);
        assert_eq!(findings.parts[0]["against"][0]["skipped"], "not here");
        assert_eq!(findings.parts[0]["runs"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn failed_requests_on_either_side_spoil_the_figures() {
        let failing = || {
            Ok(Measurement {
                errors: 2,
                ..measured(1.0, 1.0)
            })
        };
        let mut findings = Findings::default();
        let (ours, peers) = (
            side("ours", || Ok(measured(1.0, 1.0))),
            vec![Peer::new(side("peer", failing), [rate(0.97)])],
        );
        findings.compare(1, ours, peers).unwrap();
        assert_eq!(findings.errors, 2);
        assert!(!findings.verified());
    }

    #[test]
    fn what_was_counted_stands_with_its_comparison() {
        let mut findings = Findings::default();
        let (ours, peers) = (side("ours", || Ok(measured(1.0, 1.0))), Vec::new());
        findings.compare(1, ours, peers).unwrap();
        findings.count("reads a request", "reads", 1.5, Some(Bound::AtMost(1.0)));
        assert!(
            findings
                .lines
                .last()
                .unwrap()
                .ends_with("(mark <= 1: falls short by 50 %)")
        );
        findings.count("reads in vain", "vain", 2.0, Some(Bound::AtMost(0.0)));
        assert!(
            findings
                .lines
                .last()
                .unwrap()
                .ends_with("2 reads in vain (mark <= 0: falls short)")
        );
        findings.count("pages a read", "pages", 4.0, None);
        let counts = &findings.parts[0]["counts"];
        assert_eq!(counts["reads"]["holds"], false);
        assert_eq!(counts["reads"]["mark"], "<= 1");
        assert_eq!(counts["pages"]["value"], 4.0);
        assert!(findings.lines.last().unwrap().ends_with("    4 pages a read"));
    }

    #[test]
    fn a_sync_behind_the_requests_counts_where_it_is_asked_for() {
        let synced = || {
            Ok(Measurement {
                requests: 100,
                bytes_per_second: 1000.0,
                sync_seconds: Some(3.0),
                ..measured(100.0, 1.0)
            })
        };
        // A second of requests, and three of the sync.
        let run = (side("ours", synced).synced().run)().unwrap();
        assert_eq!((run.iops, run.bytes_per_second), (25.0, 250.0));
        assert_eq!((side("ours", synced).run)().unwrap().iops, 100.0);
    }

    #[test]
    fn our_own_side_must_run() {
        let (ours, peers) = (side("ours", || Err("no".into())), Vec::new());
        assert!(Findings::default().compare(1, ours, peers).is_err());
    }
}
