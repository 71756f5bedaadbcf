//! What of a job file runs when, and what came out.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::Builder;

use baio_console::exit_status::ExitStatus;
use baio_console::failure::Failure;
use baio_console::output::Answer;
use baio_console::target::TypedTarget;
use serde::Serialize;
use serde_json::Value;

use super::meaning::{Meaning, Synced};
use crate::command::stress::args::{Own, StressArgs, TypedDurability};
use crate::command::stress::plan::{COMMAND, Plan, plan};
use crate::command::stress::print::table;
use crate::costs::{self, Costs};
use crate::job::Job;
use crate::lanes;
use crate::result::{Report, Section, StageReport};
use crate::{Kind, Place};

/// What a job file gave.
#[derive(Serialize)]
pub(crate) struct Jobs {
    job_file: String,
    /// A row for each job, or for each clone of it; of a mix one for each direction.
    jobs: Vec<Row>,
    /// The first request that failed, as an error object.
    first_error: Option<Value>,
    #[serde(skip)]
    errors: u64,
}

/// One row.
#[derive(Serialize)]
struct Row {
    name: String,
    /// Those of one number have run at once.
    group: usize,
    target: String,
    request_size: u64,
    depth: u32,
    clones: u32,
    #[serde(flatten)]
    section: Section,
}

/// A clone that is ready to run.
struct Clone {
    /// Index of its meaning.
    of: usize,
    plan: Plan,
}

/// Makes what is missing, runs group after group, and adds up.
pub(super) fn run(args: &StressArgs, path: &Path, meanings: &[Meaning]) -> Result<Jobs, Failure> {
    at_once(path, meanings)?;
    look_first(args, meanings)?;
    let groups = prepared(args, meanings)?;
    let mut told = Jobs {
        job_file: path.display().to_string(),
        jobs: Vec::new(),
        first_error: None,
        errors: 0,
    };
    for (number, group) in groups.into_iter().enumerate() {
        let before = costs::own_costs();
        let ended = run_group(group)?;
        told.add(args, meanings, number, ended, costs::own_costs() - before);
    }
    Ok(told)
}

/// Clones that run at once, each with a thread and an engine.
const CLONES_MAX: u64 = 1024;

/// Files of all clones together: each has a name and a place in the plan.
const FILES_MAX: u64 = 65_536;

/// Refuses more than a machine is to bear at once.
fn at_once(path: &Path, meanings: &[Meaning]) -> Result<(), Failure> {
    let (mut clones, mut files) = (0, 0);
    for meaning in meanings {
        if meaning.waits {
            clones = 0;
        }
        clones += u64::from(meaning.clones);
        files += u64::from(meaning.clones) * u64::from(meaning.files);
        let (said, need) = if clones > CLONES_MAX {
            (
                format!("{clones} clones would run at once"),
                format!("at most {CLONES_MAX} of them"),
            )
        } else if files > FILES_MAX {
            (
                format!("{files} files would be worked on"),
                format!("at most {FILES_MAX} of them"),
            )
        } else {
            continue;
        };
        let said = format!("line {}: with the job [{}] {said}", meaning.line, meaning.name);
        return Err(Failure::usage(COMMAND, said)
            .on(path.display().to_string())
            .needing(need)
            .cured_by("choose smaller numjobs= or nrfiles=, or part the jobs by stonewall"));
    }
    Ok(())
}

/// Refuses what can be refused by looking, before a file is made.
fn look_first(args: &StressArgs, meanings: &[Meaning]) -> Result<(), Failure> {
    let mut made: HashSet<PathBuf> = HashSet::new();
    let mut own = Arc::<Own>::default();
    for meaning in meanings {
        let path = meaning.target(0, args.directory.as_deref());
        let size = args.size.map(|size| size.bytes()).or_else(|| meaning.file_size());
        if size.is_none() && meaning.files == 1 && !path.exists() && !made.contains(&path) {
            let said = format!("the job [{}] of line {} has no size", meaning.name, meaning.line);
            return Err(Failure::usage(COMMAND, said)
                .on(path.display().to_string())
                .needing("size=, for a file that is to be made")
                .cured_by("write it into the file, or pass --size"));
        }
        // Clones with files of their own may find some of them there.
        let clones = if meaning.filename.is_some() { 1 } else { meaning.clones };
        for clone in 0..clones {
            let plan = planned(args, meaning, clone, &own)?;
            let files = plan.wants.iter().filter(|want| want.place.kind == Kind::File);
            // What is too short here and was not refused is filled up, and will be so long.
            for (inode, want) in files.filter_map(|want| Some((want.place.inode?, want))) {
                let until = Arc::make_mut(&mut own).entry(inode).or_default();
                *until = want.size.max(*until);
            }
        }
        made.insert(path);
    }
    Ok(())
}

/// The groups, with every file there. Each clone is planned when the files of those before it have been made.
fn prepared(args: &StressArgs, meanings: &[Meaning]) -> Result<Vec<Vec<Clone>>, Failure> {
    let mut groups: Vec<Vec<Clone>> = Vec::new();
    let mut own = Arc::<Own>::default();
    for (of, meaning) in meanings.iter().enumerate() {
        if meaning.waits || groups.is_empty() {
            groups.push(Vec::new());
        }
        for clone in 0..meaning.clones {
            let mut plan = planned(args, meaning, clone, &own)?;
            crate::make(&mut plan.job, &plan.wants)?;
            for made in plan.wants.iter().filter(|want| want.place.kind == Kind::Missing) {
                let inode = Place::look(COMMAND, &made.place.path)?.inode;
                Arc::make_mut(&mut own).extend(inode.map(|inode| (inode, u64::MAX)));
            }
            if let Some(group) = groups.last_mut() {
                // One line of progress is enough.
                plan.job.is_shown = group.is_empty();
                group.push(Clone { of, plan });
            }
        }
    }
    Ok(groups)
}

fn planned(args: &StressArgs, meaning: &Meaning, clone: u32, own: &Arc<Own>) -> Result<Plan, Failure> {
    let path = meaning.target(clone, args.directory.as_deref());
    let size = args.size.map(|size| size.bytes()).or_else(|| meaning.file_size());
    let runtime = args.runtime.or(meaning.runtime);
    // Each block once is fio's map of random blocks; who goes on for a time goes round.
    let once = !meaning.time_based && meaning.io_size.is_none() && !(meaning.repeats && meaning.rw.is_random());
    let own = StressArgs {
        rw: meaning.rw,
        read_percent: meaning.read_percent,
        request_size: meaning.request_size.into(),
        depth: Some(meaning.depth),
        batch: meaning.batch,
        backend: meaning.backend,
        mode: meaning.mode(),
        cold: !meaning.is_direct && meaning.invalidate,
        durability: match meaning.is_synced {
            Synced::No => TypedDurability::None,
            Synced::Data => TypedDurability::Data,
            Synced::All => TypedDurability::Full,
        },
        end_sync: meaning.end_sync,
        size: size.map(Into::into),
        io_size: meaning.io_size.map(Into::into),
        runtime,
        once,
        files: meaning.files,
        iterations: 1,
        seed: meaning.seed.wrapping_add(clone.into()),
        force: args.force,
        lays_out: Some(Arc::clone(own)),
        ..StressArgs::on(&TypedTarget::from(path.into_os_string()))
    };
    let mut plan = plan(&own)?;
    for stage in &mut plan.job.stages {
        stage.endless = meaning.time_based || meaning.io_size.is_some();
        stage.runtime = runtime;
    }
    Ok(plan)
}

/// Runs all of a group at once. The first failure is told, when all have ended.
fn run_group(group: Vec<Clone>) -> Result<Vec<(Clone, Report)>, Failure> {
    // Nobody begins before all have a thread: where one cannot be had, nothing is done.
    let may_go = RwLock::new(false);
    let reports = std::thread::scope(|scope| {
        let mut held = may_go.write().unwrap_or_else(PoisonError::into_inner);
        let mut started = Vec::with_capacity(group.len());
        for clone in &group {
            let run = || match *may_go.read().unwrap_or_else(PoisonError::into_inner) {
                true => Some(lanes::run(&clone.plan.job, &mut |_| ())),
                false => None,
            };
            match Builder::new().spawn_scoped(scope, run) {
                Ok(thread) => started.push(thread),
                Err(error) => return vec![Err(lanes::no_thread(COMMAND, group.len(), &error))],
            }
        }
        *held = true;
        drop(held);
        let joined = started.into_iter().map(|thread| {
            let badly = || Failure::new(COMMAND, "EIO", "a thread ended badly");
            thread.join().ok().flatten().unwrap_or_else(|| Err(badly()))
        });
        joined.collect::<Vec<_>>()
    });
    let reports = reports.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(group.into_iter().zip(reports).collect())
}

impl Jobs {
    fn add(
        &mut self,
        args: &StressArgs,
        meanings: &[Meaning],
        group: usize,
        ended: Vec<(Clone, Report)>,
        costs: Costs,
    ) {
        let requests = |report: &Report| -> u64 {
            let lanes = report.stages.iter().flat_map(|stage| &stage.lanes);
            lanes.map(|lane| lane.reads.requests + lane.writes.requests).sum()
        };
        let all = ended.iter().map(|(_, report)| requests(report)).sum::<u64>().max(1) as f64;
        let mut ended = ended.into_iter().peekable();
        while let Some((clone, mut report)) = ended.next() {
            let meaning = &meanings[clone.of];
            let mut clones = 1;
            while let Some((_, other)) = ended.next_if(|(other, _)| meaning.is_one_row && other.of == clone.of) {
                join(&mut report, other);
                clones += 1;
            }
            if let Some(failure) = report.first_error().filter(|_| self.first_error.is_none()) {
                failure.tell();
                self.first_error = Some(failure.to_json()["error"].take());
            }
            let job = &clone.plan.job;
            for mut section in report.parts(job) {
                // What a process costs cannot be told apart by its threads: it is that of all requests of the group.
                section.measured.cpu_us_per_request = costs.cpu.as_secs_f64() * 1e6 / all;
                section.measured.context_switches_per_request = costs.context_switches as f64 / all;
                self.errors += section.measured.errors;
                self.jobs.push(Row {
                    name: meaning.name.clone(),
                    group,
                    target: shown_target(job, args, meaning, clones),
                    request_size: meaning.request_size,
                    depth: meaning.depth,
                    clones,
                    section,
                });
            }
        }
    }
}

fn shown_target(job: &Job, args: &StressArgs, meaning: &Meaning, clones: u32) -> String {
    let several = job.objects.count() > 1 || (clones > 1 && meaning.filename.is_none());
    match (several, args.directory.as_deref()) {
        (false, _) => job.objects.name(0),
        (true, elsewhere) => format!("{}, ...", meaning.target(0, elsewhere).display()),
    }
}

/// Adds the lanes of another clone, stage by stage.
fn join(report: &mut Report, other: Report) {
    for (stage, more) in report.stages.iter_mut().zip(other.stages) {
        let StageReport {
            lanes,
            threads,
            rss_bytes,
            ..
        } = more;
        stage.lanes.extend(lanes);
        stage.threads = stage.threads.max(threads);
        stage.rss_bytes = stage.rss_bytes.max(rss_bytes);
    }
}

impl Answer for Jobs {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let named: Vec<Section> = self
            .jobs
            .iter()
            .map(|row| Section {
                part: match row.clones {
                    1 => format!("{} {}", row.name, row.section.part),
                    clones => format!("{} x{clones} {}", row.name, row.section.part),
                },
                ..row.section.clone()
            })
            .collect();
        let groups = self.jobs.last().map_or(0, |row| row.group);
        for group in 0..=groups {
            let rows: Vec<usize> = (0..self.jobs.len())
                .filter(|&row| self.jobs[row].group == group)
                .collect();
            let sections: Vec<Section> = rows.iter().map(|&row| named[row].clone()).collect();
            table(&sections).write(out)?;
            let sum = |of: &dyn Fn(&Row) -> u64| rows.iter().map(|&row| of(&self.jobs[row])).sum::<u64>();
            writeln!(
                out,
                "{} requests, {:.2} us CPU each; {} failed",
                sum(&|row| row.section.measured.requests),
                sections
                    .first()
                    .map_or(0.0, |section| section.measured.cpu_us_per_request),
                sum(&|row| row.section.measured.errors),
            )?;
            if group < groups {
                writeln!(out)?;
            }
        }
        Ok(())
    }

    fn exit_status(&self) -> ExitStatus {
        match self.errors {
            0 => ExitStatus::Success,
            _ => ExitStatus::Failed,
        }
    }
}
