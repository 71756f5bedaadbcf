//! Ours against peers, in turn: what every experiment that takes figures shares.
//!
//! A figure counts only as a ratio against a peer that ran in turn with it: ours, peer, peer, ours, and the median of the
//! ratios, so that the machine's drift meets both, and neither always finds what the other has left. Each side is a whole process. Beside a ratio stands the [`Mark`] that the
//! project has set itself, and whether it holds; a mark that is missed fails nothing, for figures are no test.
//!
//! A peer that cannot run here (not installed, refused by the kernel) is left out, with its reason. Ours must run.

use std::path::Path;

use baio_stress::Measurement;

use crate::figures::command_line::Measures;
use crate::figures::{fio, interrupt, median, middle};
use crate::report::files::settle;
use crate::report::marks::{Figure, Mark};

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

/// What one comparison gave.
pub(super) struct Turns {
    /// One a round.
    pub(super) ours: Vec<Measurement>,
    /// For each peer its name, and one a round, or why it was left out.
    pub(super) peers: Vec<(String, Result<Vec<Measurement>, String>)>,
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

    /// The one of them that made most requests a second, which is known only now. One of which nothing was measured is not the best.
    pub(super) fn best(&self) -> Option<(&str, &[Measurement])> {
        let rate = |runs: &[Measurement]| middle(runs, |run| run.iops);
        let measured = self.peers().filter(|(_, runs)| rate(runs).is_finite());
        measured.max_by(|one, other| rate(one.1).total_cmp(&rate(other.1)))
    }
}

impl Side {
    pub(super) fn by(name: impl Into<String>, run: impl Measures + 'static) -> Side {
        Side {
            name: name.into(),
            command: run.line().to_string(),
            run: Box::new(move || run.run()),
        }
    }

    pub(super) fn fio(job: fio::Job) -> Side {
        Side::by(job.name(), job)
    }

    /// The same, and each time nothing of this file is in the kernel's cache when it begins.
    pub(super) fn cold(self, path: &Path) -> Side {
        let path = path.to_owned();
        self.after(move || settle(&path))
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

impl Peer {
    pub(super) fn new(side: Side, marks: impl IntoIterator<Item = Mark>) -> Peer {
        Peer {
            side,
            marks: marks.into_iter().collect(),
            also: &[],
        }
    }

    /// The same with these figures too.
    pub(super) fn also(self, also: &'static [Figure]) -> Peer {
        Peer { also, ..self }
    }

    /// Every figure once, in the order in which it is shown.
    pub(super) fn figures(&self) -> Vec<Figure> {
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

/// Ours, peers, and in the next round the other way round: A B B A. A peer that fails once is not tried again.
pub(super) fn in_turn(ours: &Side, peers: &[Peer], rounds: usize) -> Result<Turns, String> {
    let mut turns = Turns {
        ours: Vec::with_capacity(rounds),
        peers: peers
            .iter()
            .map(|peer| (peer.side.name.clone(), Ok(Vec::new())))
            .collect(),
    };
    for round in 0..rounds {
        // Who comes first meets a file and a device that nobody has just used. In a single round that is always ours.
        let is_first = round % 2 == 0;
        let mut others: Vec<_> = peers.iter().zip(&mut turns.peers).collect();
        if is_first {
            turns.ours.push((ours.run)()?);
        } else {
            others.reverse();
        }
        for (peer, (_, runs)) in others {
            let Ok(so_far) = runs else { continue };
            let told = (peer.side.run)();
            // Else one that was ended with the report would look like one that cannot run.
            interrupt::check().map_err(|signal| signal.to_string())?;
            match told {
                Ok(run) => so_far.push(run),
                Err(reason) => *runs = Err(reason),
            }
        }
        if !is_first {
            turns.ours.push((ours.run)()?);
        }
    }
    Ok(turns)
}

/// The median of the ratios, round by round.
pub(super) fn ratio(figure: Figure, ours: &[Measurement], theirs: &[Measurement]) -> f64 {
    median(&ratios(figure, ours, theirs))
}

/// One a round.
pub(super) fn ratios(figure: Figure, ours: &[Measurement], theirs: &[Measurement]) -> Vec<f64> {
    let pairs = ours.iter().zip(theirs);
    pairs
        .map(|(ours, theirs)| figure.of(ours) / figure.of(theirs))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::findings::Findings;
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
        assert_eq!(*order.borrow(), "ABBAAB");
        let against = &findings.parts[0]["against"][0];
        assert_eq!(against["iops_ratio"], 1.0);
        assert_eq!(against["cpu_ratio"], 0.5);
        assert_eq!(against["runs"].as_array().unwrap().len(), 3);
        assert_eq!(against["marks"][0]["holds"], true);
        assert!(findings.verified());
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
