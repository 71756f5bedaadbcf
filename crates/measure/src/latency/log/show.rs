//! What came out of appending: each round of each side, and the medians.

use std::io::{self, Write};

use baio_console::interrupt::{self, Interrupt};
use baio_console::output::{Align, Table, wrapped};
use baio_console::size::format_size;
use baio_stress::Latency;
use serde::Serialize;

use super::super::args::LatencyArgs;
use super::super::below::Below;
use super::super::show;
use super::load::{Kind, Load, Loaded};
use crate::figures::median;

/// What `latency` has to say of appends.
#[derive(Serialize)]
pub(crate) struct Told {
    target: String,
    record_size: u64,
    /// Of the three the one that was asked for.
    waiting: Option<u32>,
    threads: Option<u32>,
    rate: Option<u32>,
    runtime_seconds: f64,
    below: Below,
    sides: Vec<Side>,
    /// The signal that ended it before all rounds were done.
    pub(in crate::latency) ended_early: Option<Interrupt>,
    /// Of the log to each peer.
    ratios: Vec<Ratio>,
}

/// One side: the median of its rounds, figure by figure.
#[derive(Serialize)]
struct Side {
    side: &'static str,
    #[serde(flatten)]
    median: Figures,
    rounds: Vec<Figures>,
}

/// A side's figures by another's, round by round; the median of them.
#[derive(Serialize)]
struct Ratio {
    side: &'static str,
    peer: &'static str,
    appends_per_second: f64,
    cpu_us_per_append: f64,
    context_switches_per_append: f64,
    latency_us_p50: f64,
    latency_us_p99: f64,
}

#[derive(Clone, Serialize)]
struct Figures {
    appends_per_second: f64,
    bytes_per_second: f64,
    cpu_us_per_append: f64,
    context_switches_per_append: f64,
    latency_us: Latency,
    append_us: Latency,
    first_of_batch_latency_us: Latency,
    batches: f64,
    records_per_batch_mean: f64,
    /// Null where nobody has counted.
    records_per_batch_max: Option<f64>,
    batch_bytes_mean: f64,
    /// How often an append found no room.
    refused: f64,
}

impl Told {
    /// Each side by its name; is the first of them our log?
    pub(super) fn of(
        args: &LatencyArgs,
        load: Load,
        below: Below,
        sides: &[(&'static str, Vec<Loaded>)],
        has_log: bool,
    ) -> Told {
        let record_size = args.log.record_size.bytes();
        let (waiting, threads, rate) = match load.kind {
            Kind::Waiting(count) => (Some(count), None, None),
            Kind::Threads(count) => (None, Some(count), None),
            Kind::Rate(per_second) => (None, None, Some(per_second)),
        };
        let side = |(name, loaded): &(&'static str, Vec<Loaded>)| {
            let rounds: Vec<Figures> = loaded.iter().map(|round| Figures::of(round, record_size)).collect();
            Side {
                side: name,
                median: Figures::median(&rounds),
                rounds,
            }
        };
        let shown: Vec<Side> = sides.iter().map(side).collect();
        let ratios = match shown.split_first() {
            Some((log, peers)) if has_log => peers.iter().map(|peer| Ratio::of(log, peer)).collect(),
            _ => Vec::new(),
        };
        Told {
            target: args.target.to_string(),
            record_size,
            waiting,
            threads,
            rate,
            runtime_seconds: args.log.runtime.as_secs_f64(),
            below,
            sides: shown,
            ended_early: interrupt::came(),
            ratios,
        }
    }

    fn load(&self) -> String {
        match (self.waiting, self.threads, self.rate) {
            (Some(count), _, _) => format!("{count} waiting, of one thread"),
            (_, Some(count), _) => format!("{count} threads"),
            (_, _, Some(rate)) => format!("{rate} a second at random"),
            _ => String::new(),
        }
    }
}

impl Ratio {
    fn of(log: &Side, peer: &Side) -> Ratio {
        let of = |pick: &dyn Fn(&Figures) -> f64| {
            let pairs = log.rounds.iter().zip(&peer.rounds);
            let ratios: Vec<f64> = pairs.map(|(log, peer)| pick(log) / pick(peer)).collect();
            median(&ratios)
        };
        Ratio {
            side: log.side,
            peer: peer.side,
            appends_per_second: of(&|round| round.appends_per_second),
            cpu_us_per_append: of(&|round| round.cpu_us_per_append),
            context_switches_per_append: of(&|round| round.context_switches_per_append),
            latency_us_p50: of(&|round| round.latency_us.p50.unwrap_or(f64::NAN)),
            latency_us_p99: of(&|round| round.latency_us.p99.unwrap_or(f64::NAN)),
        }
    }
}

impl Figures {
    fn of(loaded: &Loaded, record_size: u64) -> Figures {
        let (tally, batches) = (&loaded.tally, loaded.batches);
        let appends = tally.latency.count().max(1) as f64;
        let per_second = tally.latency.count() as f64 / loaded.seconds.max(1e-9);
        Figures {
            appends_per_second: per_second,
            bytes_per_second: per_second * record_size as f64,
            cpu_us_per_append: loaded.costs.cpu.as_secs_f64() * 1e6 / appends,
            context_switches_per_append: loaded.costs.context_switches as f64 / appends,
            latency_us: tally.latency.latency(),
            append_us: tally.call.latency(),
            first_of_batch_latency_us: tally.first.latency(),
            batches: batches.count as f64,
            records_per_batch_mean: batches.records as f64 / batches.count.max(1) as f64,
            records_per_batch_max: batches.records_max.map(f64::from),
            batch_bytes_mean: batches.bytes as f64 / batches.count.max(1) as f64,
            refused: tally.refused as f64,
        }
    }

    fn median(rounds: &[Figures]) -> Figures {
        let of = |pick: fn(&Figures) -> f64| median(&rounds.iter().map(pick).collect::<Vec<_>>());
        let known = |pick: &dyn Fn(&Figures) -> Option<f64>| {
            let known: Vec<f64> = rounds.iter().filter_map(pick).collect();
            (!known.is_empty()).then(|| median(&known))
        };
        let latency = |pick: fn(&Figures) -> &Latency| {
            let point = |of: fn(&Latency) -> Option<f64>| known(&|round| of(pick(round)));
            Latency {
                mean: point(|latency| latency.mean),
                p50: point(|latency| latency.p50),
                p99: point(|latency| latency.p99),
                p999: point(|latency| latency.p999),
                max: point(|latency| latency.max),
            }
        };
        Figures {
            appends_per_second: of(|round| round.appends_per_second),
            bytes_per_second: of(|round| round.bytes_per_second),
            cpu_us_per_append: of(|round| round.cpu_us_per_append),
            context_switches_per_append: of(|round| round.context_switches_per_append),
            latency_us: latency(|round| &round.latency_us),
            append_us: latency(|round| &round.append_us),
            first_of_batch_latency_us: latency(|round| &round.first_of_batch_latency_us),
            batches: of(|round| round.batches),
            records_per_batch_mean: of(|round| round.records_per_batch_mean),
            records_per_batch_max: known(&|round| round.records_per_batch_max),
            batch_bytes_mean: of(|round| round.batch_bytes_mean),
            refused: of(|round| round.refused),
        }
    }
}

impl Told {
    pub(in crate::latency) fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let how = format!(
            "{}: durable records of {}, {} ({}); the median of {} rounds of {} s",
            self.target,
            format_size(self.record_size),
            self.load(),
            self.below.sentence(),
            self.sides.first().map_or(0, |side| side.rounds.len()),
            self.runtime_seconds,
        );
        writeln!(out, "{}", wrapped(&how))?;
        let right = |heading| (heading, Align::Right);
        let mut table = Table::with_headings(&[
            ("SIDE", Align::Left),
            right("APPENDS/s"),
            right("p50"),
            right("p99"),
            right("p99.9"),
            right("call p50"),
            right("CPU us"),
            right("switches"),
            right("batch"),
        ])
        .fit(Some(80), &["switches", "CPU us"]);
        let shown = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), show::shown);
        for side in &self.sides {
            let figures = &side.median;
            table.row([
                side.side.to_owned(),
                format!("{:.0}", figures.appends_per_second),
                shown(figures.latency_us.p50),
                shown(figures.latency_us.p99),
                shown(figures.latency_us.p999),
                shown(figures.append_us.p50),
                format!("{:.2}", figures.cpu_us_per_append),
                format!("{:.3}", figures.context_switches_per_append),
                format!("{:.1}", figures.records_per_batch_mean),
            ]);
        }
        table.write(out)?;
        for ratio in &self.ratios {
            let beside = format!(
                "{} / {}: appends/s {:.2}, p50 {:.2}, p99 {:.2}, CPU {:.2}, switches {:.2}",
                ratio.side,
                ratio.peer,
                ratio.appends_per_second,
                ratio.latency_us_p50,
                ratio.latency_us_p99,
                ratio.cpu_us_per_append,
                ratio.context_switches_per_append,
            );
            writeln!(out, "{}", wrapped(&beside))?;
        }
        Ok(())
    }
}
