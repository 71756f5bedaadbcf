//! Runs a report from its first experiment to its last. Each experiment is saved as it ends. If one fails the others go on. A
//! signal ends the report and keeps everything that was measured.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use baio_console::diagnostics;
use baio_console::exit_status::ExitStatus;
use baio_console::failure::Failure;
use baio_console::interrupt::Interrupt;

use crate::figures::interrupt;
use crate::report::args::ReportArgs;
use crate::report::experiments::{Experiment, Work, choose};
use crate::report::findings::Findings;
use crate::report::progress::{Course, Progress};
use crate::report::record::{Experiment as Told, FAILED, FORMAT, Machine, Record, Row, STOPPED};
use crate::report::save::Shelf;
use crate::report::setting::{Setting, at_most, working_set_of};
use crate::report::target::Target;
use crate::report::volume_scale::{SEGMENTS, SEGMENTS_QUICK};
use crate::report::work_dir::{Need, Place, WorkDir, refuse_without_room, remove_left_over};
use crate::report::{machine, promises};

/// A report that was taken, or as much of it as there is.
pub(crate) struct Taken {
    pub(super) record: Record,
    pub(super) json: PathBuf,
    pub(super) html: Option<PathBuf>,
    /// The working files, where they were to stay.
    pub(super) kept: Option<PathBuf>,
    interrupted: Option<Interrupt>,
    /// Why it could not be kept.
    pub(super) unsaved: Option<Failure>,
}

impl Taken {
    pub(super) fn interrupted(&self) -> Option<Interrupt> {
        self.interrupted
    }

    pub(super) fn exit_status(&self) -> ExitStatus {
        let experiments = &self.record.experiments;
        match self.interrupted {
            Some(came) => came.exit_status(),
            None if self.unsaved.is_some() || experiments.iter().any(Told::has_failed) => ExitStatus::Failed,
            None if experiments.iter().any(|experiment| !experiment.verified) => ExitStatus::NotVerified,
            None => ExitStatus::Success,
        }
    }
}

/// Runs the experiments that are asked for, or all.
pub(super) fn take(args: ReportArgs) -> Result<Taken, Failure> {
    let working_set = working_set_of(args.quick, args.working_set.map(|size| size.bytes()))?;
    let (parent, target) = Target::of(&args)?;
    let (chosen, left_out) = choose(&args.only, target.as_ref())?;
    let working_set = target
        .as_ref()
        .map_or(working_set, |target| at_most(working_set, target));
    let shelf = Shelf::at(args.out.as_deref().unwrap_or(Path::new(".")))?;
    let path = target.as_ref().map(|target| target.path.as_path());
    if let Some(path) = path.filter(|path| shelf.writes(path)) {
        return Err(Failure::usage("report", "the report writes this file")
            .on(path.display().to_string())
            .needing("a target that stays as it is")
            .cured_by("name another directory by --out"));
    }
    let words = words(&args, &parent, target.as_ref(), working_set);
    let before = if args.resume {
        resumed(&shelf, &words, &machine::look(&parent, target.as_ref()))?
    } else {
        None
    };
    if before.is_some() {
        shelf.go_on();
    }
    shelf.may_set_aside()?;
    interrupt::watch("report")?;
    let of_the_caller = [path, args.input.as_deref(), args.out.as_deref()];
    remove_left_over(
        &parent,
        &of_the_caller.map(|path| path.and_then(|path| path.canonicalize().ok())),
    );
    let segments = args
        .segments
        .unwrap_or(if args.quick { SEGMENTS_QUICK } else { SEGMENTS });
    look_for_room(
        &parent,
        &chosen,
        &Work {
            working_set,
            // Of one that cannot be looked at it is told when it is read.
            input: args
                .input
                .as_ref()
                .and_then(|path| path.metadata().ok())
                .map(|found| found.len()),
            segments,
            only_reads: target.is_some(),
        },
    )?;
    let work = WorkDir::make(&parent, args.keep)?;
    let setting = Setting {
        dir: work.path().to_owned(),
        input: args.input,
        quick: args.quick,
        working_set,
        segments,
        target,
    };
    let fresh = || Record {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
        began: now(),
        quick: setting.quick,
        options: words,
        machine: machine::look(&setting.dir, setting.target.as_ref()),
        left_out,
        ..Record::default()
    };
    let record = before.unwrap_or_else(fresh);
    let mut unsaved = None;
    let record = all(&chosen, &setting, record, &shelf, &mut unsaved);
    Ok(Taken {
        record,
        unsaved,
        json: shelf.json(),
        html: shelf.html(),
        kept: args.keep.then(|| work.path().to_owned()),
        interrupted: interrupt::check().err(),
    })
}

fn look_for_room(dir: &Path, chosen: &[&Experiment], work: &Work) -> Result<(), Failure> {
    let needs = chosen.iter().map(|one| Need {
        name: one.name,
        bytes: one.room(work),
        less_by: one.needs_less_by(),
    });
    refuse_without_room(dir, needs)
}

fn all(
    chosen: &[&Experiment],
    setting: &Setting,
    mut record: Record,
    shelf: &Shelf,
    unsaved: &mut Option<Failure>,
) -> Record {
    record.experiments.retain(|told| !told.has_stopped());
    let is_told = |record: &Record, name: &str| record.experiments.iter().any(|told| told.name == name);
    let left: Vec<&Experiment> = chosen
        .iter()
        .copied()
        .filter(|one| !is_told(&record, one.name))
        .collect();
    let has_all = |record: &Record| chosen.iter().all(|one| is_told(record, one.name));
    record.finished = has_all(&record);
    let mut course = Course::new(left.len());
    for experiment in left {
        let progress = course.begin(experiment.name, experiment.shows);
        record.experiments.push(one(experiment, setting, progress));
        record
            .experiments
            .sort_by_key(|told| chosen.iter().position(|one| one.name == told.name));
        course.end();
        record.finished = has_all(&record) && interrupt::check().is_ok();
        tell(&mut record);
        // What was measured is shown all the same.
        *unsaved = shelf.save(&record, interrupt::check().is_err()).err();
        if interrupt::check().is_err() {
            break;
        }
    }
    tell(&mut record);
    record
}

/// What of it all experiments together say.
fn tell(record: &mut Record) {
    record.seconds = record.experiments.iter().fold(0.0, |sum, told| sum + told.seconds);
    record.promises = promises::promises(&record.experiments);
}

/// One experiment, whatever comes of it.
fn one(experiment: &Experiment, setting: &Setting, progress: Progress) -> Told {
    let begun = Instant::now();
    let mut findings = Findings {
        progress,
        ..Findings::default()
    };
    // What it has found is looked at afterwards, row by row: a half-written one is not seen.
    let ended = catch_unwind(AssertUnwindSafe(|| in_its_place(experiment, setting, &mut findings)));
    let why = match (ended, interrupt::check()) {
        (_, Err(came)) => Some((STOPPED, came.to_string())),
        (Ok(Ok(())), Ok(())) => None,
        // In one line, for a table.
        (Ok(Err(failure)), Ok(())) => Some((FAILED, failure.to_string().replace('\n', " "))),
        (Err(panic), Ok(())) => Some((FAILED, said_in(&*panic))),
    };
    let verified = findings.verified() && why.as_ref().is_none_or(|(kind, _)| *kind != FAILED);
    findings.rows.extend(why.map(|(kind, why)| Row {
        what: experiment.name.into(),
        figure: kind.into(),
        skipped: Some(why),
        ..Row::default()
    }));
    Told {
        name: experiment.name.into(),
        shows: experiment.shows.into(),
        verified,
        seconds: begun.elapsed().as_secs_f64(),
        rows: findings.rows,
        disk: findings.disk,
        charts: findings.charts,
        notes: findings.lines,
        parts: findings.parts,
    }
}

/// In a directory of its own, which goes with all that is in it.
fn in_its_place(experiment: &Experiment, setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let place = Place::make(&setting.dir, experiment.name);
    let told = |error| Failure::from_io("report", &error).on(setting.dir.display().to_string());
    let place = place.map_err(told)?;
    let setting = Setting {
        dir: place.path().to_owned(),
        ..setting.clone()
    };
    (experiment.run)(&setting, findings)
}

fn said_in(panic: &(dyn std::any::Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().map(|said| (*said).to_owned());
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("it panicked: {}", said.unwrap_or_default())
}

/// What a report depends on, as words of a command line: one with other words is another report.
fn words(args: &ReportArgs, parent: &Path, target: Option<&Target>, working_set: u64) -> Vec<String> {
    let mut words = vec!["--working-set".to_owned(), working_set.to_string()];
    words.extend(args.quick.then(|| "--quick".to_owned()));
    let path = |path: &PathBuf| {
        std::path::absolute(path)
            .unwrap_or_else(|_| path.clone())
            .display()
            .to_string()
    };
    let mut further =
        |option: &str, value: Option<String>| words.extend(value.map(|value| format!("{option}={value}")));
    further("--dir", Some(parent.display().to_string()));
    further("--target", target.map(Target::typed));
    further("--input", args.input.as_ref().map(path));
    further("--segments", args.segments.map(|number| number.to_string()));
    words.extend(args.only.iter().map(|name| format!("--only={name}")));
    words
}

/// What is there to go on with; none where nothing was begun.
fn resumed(shelf: &Shelf, words: &[String], machine: &Machine) -> Result<Option<Record>, Failure> {
    let Some(kept) = shelf.kept()? else {
        diagnostics::say(format_args!(
            "report: {} is not there: beginning a new report",
            shelf.json().display()
        ));
        return Ok(None);
    };
    let version = env!("CARGO_PKG_VERSION");
    if kept.version != version || kept.machine != *machine {
        return Err(
            Failure::usage("report", "the report that is there is of another program or machine")
                .on(shelf.json().display().to_string())
                .needing(format!(
                    "a report of baio {version} on this machine, with the peers that are here"
                ))
                .cured_by("leave --resume out, which begins a new report, or name another directory by --out"),
        );
    }
    if kept.options == words {
        return Ok(Some(kept));
    }
    let options = kept.options.join(" ");
    Err(
        Failure::usage("report", "the report that is there was taken with other options")
            .on(shelf.json().display().to_string())
            .needing(format!("the options {options}"))
            .cured_by("give these, or leave --resume out, which writes over it, or name another directory by --out"),
    )
}

/// RFC 3339, in UTC.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    baio_console::date::date_time(since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::experiments::When;

    fn setting(dir: &Path) -> Setting {
        Setting {
            dir: dir.to_owned(),
            input: None,
            quick: true,
            working_set: 1 << 20,
            segments: SEGMENTS_QUICK,
            target: None,
        }
    }

    type Run = fn(&Setting, &mut Findings) -> Result<(), Failure>;

    const fn experiment(name: &'static str, run: Run) -> Experiment {
        Experiment {
            name,
            when: When::Always,
            run,
            shows: "that it goes on",
        }
    }

    const GOOD: Experiment = experiment("good", |_, findings| {
        findings.figure("something", "a figure", "", 1.0, None);
        Ok(())
    });
    const BAD: Experiment = experiment("bad", |_, findings| {
        findings.figure("something", "a figure", "", 1.0, None);
        Err(Failure::new("report", "EIO", "no\nluck"))
    });
    const PANICS: Experiment = experiment("panics", |_, _| panic!("no {}", "luck"));

    /// What comes of these, in this directory, after what is told already.
    fn taken(chosen: &[&Experiment], dir: &Path, record: Record) -> Record {
        let shelf = Shelf::at(&dir.join("out")).unwrap();
        let work = dir.join("work");
        std::fs::create_dir_all(&work).unwrap();
        let record = all(chosen, &setting(&work), record, &shelf, &mut None);
        assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0, "whatever was made goes");
        record
    }

    #[test]
    fn what_an_experiment_made_goes_however_it_ends() {
        fn makes(setting: &Setting) {
            std::fs::create_dir(setting.dir.join("sub")).unwrap();
            std::fs::write(setting.dir.join("sub/large"), [1; 4096]).unwrap();
        }
        let dir = tempfile::tempdir().unwrap();
        let fails = experiment("bad", |setting, _| {
            makes(setting);
            Err(Failure::new("report", "ENOSPC", "full"))
        });
        let panics = experiment("panics", |setting, _| {
            makes(setting);
            panic!("full")
        });
        // The next one finds nothing.
        let looks = experiment("good", |setting, _| {
            let above = std::fs::read_dir(setting.dir.parent().unwrap()).unwrap();
            assert_eq!(above.count(), 1);
            Ok(())
        });
        let record = taken(&[&fails, &panics, &looks], dir.path(), Record::default());
        let failed: Vec<_> = record.experiments.iter().map(Told::has_failed).collect();
        assert_eq!(failed, [true, true, false]);
        assert!(dir.path().join("out/report.json").exists());
    }

    #[test]
    fn what_fails_is_a_row_and_the_others_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let record = taken(&[&BAD, &PANICS, &GOOD], dir.path(), Record::default());
        let [bad, panics, good] = &record.experiments[..] else {
            panic!("{record:?}");
        };
        assert_eq!(bad.rows.len(), 2, "what was measured before stays");
        assert!(bad.has_failed() && panics.has_failed() && !good.has_stopped());
        assert!(!bad.verified && !panics.verified && good.verified);
        let why = |told: &Told| told.rows.last().unwrap().skipped.clone().unwrap();
        assert!(!why(bad).contains('\n') && why(bad).contains("luck"), "{}", why(bad));
        assert_eq!(why(panics), "it panicked: no luck");
        assert!(record.finished);
        let before = Record {
            experiments: vec![good.clone()],
            ..Record::default()
        };
        let again = taken(&[&GOOD], tempfile::tempdir().unwrap().path(), before);
        assert!(again.finished, "nothing was left to be run");
    }

    /// One that was kept, with a row that has no figure.
    fn kept(name: &str, verified: bool, figure: &str) -> Told {
        Told {
            name: name.into(),
            verified,
            seconds: 77.0,
            rows: vec![Row {
                figure: figure.into(),
                skipped: Some("why".into()),
                ..Row::default()
            }],
            ..Told::default()
        }
    }

    #[test]
    fn what_was_measured_stays_and_what_failed_is_run_again() {
        let dir = tempfile::tempdir().unwrap();
        let record = Record {
            format: FORMAT,
            experiments: vec![kept("good", true, "requests/s"), kept("other", true, STOPPED)],
            ..Record::default()
        };
        let other = Experiment { name: "other", ..GOOD };
        let record = taken(&[&other, &GOOD], dir.path(), record);
        let told = record.experiments.iter();
        let old: Vec<_> = told.map(|told| (&told.name[..], told.seconds == 77.0)).collect();
        assert_eq!(old, [("other", false), ("good", true)]);
    }

    #[test]
    fn the_exit_status_tells_how_it_ended() {
        let status = |experiments: &[(bool, &str)], interrupted: Option<Interrupt>| {
            let told = experiments.iter().map(|(verified, figure)| kept("", *verified, figure));
            let record = Record {
                experiments: told.collect(),
                ..Record::default()
            };
            let taken = Taken {
                record,
                json: PathBuf::new(),
                html: None,
                kept: None,
                interrupted,
                unsaved: None,
            };
            taken.exit_status() as u8
        };
        assert_eq!(status(&[(true, "requests/s")], None), 0);
        assert_eq!(status(&[(false, "requests/s")], None), 3);
        assert_eq!(status(&[(false, FAILED), (false, "")], None), 1);
        assert_eq!(status(&[(false, FAILED)], Some(Interrupt::Interrupted)), 130);
        assert_eq!(status(&[(true, STOPPED)], Some(Interrupt::Terminated)), 143);
    }
}
