//! `baio check`: what is wrong with a volume, and with `--repair` what was done about it.

use std::io::{self, Write};

use baio::{CheckReport, Link, Repair};
use baio_console::exit_status::ExitStatus;
use baio_console::failure::Failure;
use baio_console::named::Volume;
use baio_console::output::{Align, Answer, Table};
use baio_console::progress::{Progress, Unit};
use serde::Serialize;

use crate::command::reach::ask;
use crate::command::volume_args::CheckArgs;

/// What `check` shows.
#[derive(Default, Serialize)]
pub(crate) struct Checked {
    problems: Vec<Problem>,
    /// Problems that a broker has found and not told one by one.
    untold: u64,
    repaired: u64,
    clean: bool,
    buckets: u64,
    segments: u64,
    owners: u64,
    quarantined: u64,
    unfinished_moves: u64,
    over_quota: u64,
    blocks: u64,
    free_blocks: u64,
}

/// One thing that is wrong.
#[derive(Serialize)]
struct Problem {
    kind: &'static str,
    object: String,
    offset: u64,
    what: String,
    repair: &'static str,
}

/// Checks, and tells.
pub(crate) fn run(args: CheckArgs) -> Result<Checked, Failure> {
    let path = match args.path.volume("check")? {
        Volume::Here(path) => path,
        // What is in use is not repaired.
        Volume::Served(_) if args.repair => return Err(args.path.served("check --repair")),
        served => {
            let checked = ask("check", (&served, &args.path.to_string()), |reach| {
                reach.run(Unit::Things("buckets"), reach.link.check())
            });
            return checked.map(Checked::from);
        }
    };
    let mut shown = Progress::new("check", Unit::Things("buckets"));
    let checked = baio::check(&path, args.repair, &mut |progress| {
        shown.reach(progress.buckets_done, progress.buckets);
    });
    drop(shown);
    let report = checked.map_err(|error| Failure::from_storage("check", args.path.to_string(), &error))?;
    Ok(Checked::from(report))
}

impl From<CheckReport> for Checked {
    fn from(report: CheckReport) -> Checked {
        let problems = report.problems.into_iter().map(|problem| Problem {
            kind: problem.kind,
            object: problem.place.object,
            offset: problem.place.offset,
            what: problem.what,
            repair: match problem.repair {
                Repair::Repaired => "repaired",
                Repair::Repairable => "repairable",
                Repair::Lost => "lost",
                Repair::Unread => "unread",
            },
        });
        Checked {
            problems: problems.collect(),
            untold: report.untold,
            repaired: report.repaired,
            clean: report.clean,
            buckets: report.buckets,
            segments: report.segments,
            owners: report.owners,
            quarantined: report.quarantined,
            unfinished_moves: report.unfinished_moves,
            over_quota: report.over_quota,
            blocks: report.blocks,
            free_blocks: report.free_blocks,
        }
    }
}

impl Checked {
    /// Problems in all. A broker may say any number of those that it has not told.
    fn found(&self) -> u64 {
        (self.problems.len() as u64).saturating_add(self.untold)
    }
}

impl Answer for Checked {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        if !self.problems.is_empty() {
            let mut table = Table::with_headings(&[
                ("OFFSET", Align::Right),
                ("WHERE", Align::Left),
                ("PROBLEM", Align::Left),
                ("REPAIR", Align::Left),
                ("WHAT", Align::Left),
            ]);
            for problem in &self.problems {
                table.row([
                    problem.offset.to_string(),
                    problem.object.clone(),
                    problem.kind.to_owned(),
                    problem.repair.to_owned(),
                    problem.what.clone(),
                ]);
            }
            table.write(out)?;
            writeln!(out)?;
        }
        let mut table = Table::without_headings(&[Align::Left, Align::Left]);
        let found = match (self.found(), self.untold) {
            (0, _) => "none".to_owned(),
            (found, 0) => format!("{found}, {} of them repaired", self.repaired),
            (found, untold) => format!("{found}, {untold} of them not shown: end the broker to see them all"),
        };
        table.row(["problems", &found]);
        table.row([
            "segments",
            &format!("{}; owners {}, buckets {}", self.segments, self.owners, self.buckets),
        ]);
        table.row(["blocks", &format!("{}, {} of them free", self.blocks, self.free_blocks)]);
        table.write(out)
    }

    /// What is left wrong did not verify.
    fn exit_status(&self) -> ExitStatus {
        if self.found() > self.repaired {
            ExitStatus::NotVerified
        } else {
            ExitStatus::Success
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_may_count_as_many_problems_as_it_likes() {
        let problem = Problem {
            kind: "bucket",
            object: "bucket 0".to_owned(),
            offset: 0,
            what: "it is not there".to_owned(),
            repair: "lost",
        };
        let checked = Checked {
            problems: vec![problem],
            untold: u64::MAX,
            ..Checked::default()
        };
        assert_eq!(checked.exit_status(), ExitStatus::NotVerified);
        let mut text = Vec::new();
        checked.write_text(&mut text).unwrap();
        assert!(String::from_utf8_lossy(&text).contains("18446744073709551615, "));
    }
}
