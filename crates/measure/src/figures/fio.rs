//! fio as a peer: the command, exactly as printed, and what it reports.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use baio_stress::{Latency, Measurement, Rw};
use serde_json::Value;

use crate::figures::command_line::{CommandLine, Measures};
use crate::figures::{quoted, start_up};

/// How fio carries its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    IoUring,
    Libaio,
    Posixaio,
    /// Blocking threads, one for each request in flight.
    Psync,
}

/// A run of fio.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    engine: Engine,
    rw: Rw,
    files: Vec<PathBuf>,
    /// Requests in flight; of [`Engine::Psync`] as many threads.
    depth: u32,
    /// O_DIRECT, else the kernel's cache, which fio empties of its files first.
    direct: bool,
    /// What else its command says.
    further: Vec<String>,
    /// It runs in this memory cgroup.
    cgroup: Option<PathBuf>,
    /// Of ours, in place of the distribution's.
    library: Option<PathBuf>,
}

impl Engine {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Engine::IoUring => "io_uring",
            Engine::Libaio => "libaio",
            Engine::Posixaio => "posixaio",
            Engine::Psync => "psync",
        }
    }
}

impl Job {
    /// Direct requests to the first `len` bytes of each file, nothing durable; at random one to each block, by a map of those that
    /// were used.
    pub(crate) fn new(engine: Engine, rw: Rw, files: Vec<PathBuf>, len: u64, depth: u32) -> Job {
        // Of all files together.
        let size = format!("--size={}", len * files.len() as u64);
        Job {
            engine,
            rw,
            files,
            depth,
            direct: true,
            further: vec![size],
            cgroup: None,
            library: None,
        }
    }

    /// With further options, none of which has a blank in it; of two about one thing fio takes the last.
    pub(crate) fn with(mut self, words: &str) -> Job {
        self.further.extend(words.split_whitespace().map(str::to_owned));
        self
    }

    /// As many as there is time for, at random with replacement.
    pub(crate) fn timed(self, runtime: Duration) -> Job {
        let ms = runtime.as_millis();
        self.with(&format!("--norandommap --time_based --runtime={ms}ms"))
    }

    /// Through the kernel's cache.
    pub(crate) fn buffered(self) -> Job {
        Job { direct: false, ..self }
    }

    /// In a memory cgroup.
    pub(crate) fn confined(self, cgroup: Option<PathBuf>) -> Job {
        Job { cgroup, ..self }
    }

    /// On a library of ours: a preloaded one for POSIX AIO, which glibc has itself, else one that is found first.
    pub(crate) fn on(self, library: PathBuf) -> Job {
        Job {
            library: Some(library),
            ..self
        }
    }

    /// The words before the program, if any, that put our library in place of the other.
    fn environment(&self) -> Vec<String> {
        let Some(library) = &self.library else {
            return Vec::new();
        };
        let put = match (self.engine, library.parent()) {
            (Engine::Posixaio, _) | (_, None) => format!("LD_PRELOAD={}", library.display()),
            (_, Some(dir)) => format!("LD_LIBRARY_PATH={}", dir.display()),
        };
        vec!["env".into(), put, "BAIO_EXPLAIN=1".into()]
    }

    /// What a library of ours says where it, and not the system's, carries the requests.
    fn has_carried(&self, stderr: &str) -> bool {
        let carries = |line: &str| {
            let end = line.trim_end();
            line.starts_with("baio ") && (end.ends_with(": io_uring") || end.ends_with("io_uring when its reads wait"))
        };
        self.library.is_none() || stderr.lines().any(carries)
    }

    /// What it is called beside our figures.
    pub(crate) fn name(&self) -> String {
        let cache = if self.direct { "" } else { ", the kernel's cache" };
        match (self.engine, self.depth) {
            (Engine::Psync, 1) => format!("1 fio psync thread{cache}"),
            (Engine::Psync, threads) => format!("{threads} fio psync threads{cache}"),
            (engine, _) => format!("fio {}{cache}", engine.name()),
        }
    }

    /// Jobs of one kind start alike.
    fn kind(&self) -> String {
        let threads = if self.engine == Engine::Psync { self.depth } else { 1 };
        let whose = if self.library.is_some() { " on ours" } else { "" };
        format!("fio {} {threads} {}{whose}", self.engine.name(), self.files.len())
    }

    /// The words of the command.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = vec![
            "--name=baio-peer".into(),
            format!("--ioengine={}", self.engine.name()),
            format!("--rw={}", self.rw.name()),
            format!("--direct={}", u8::from(self.direct)),
            "--slat_percentiles=1".into(),
            "--output-format=json".into(),
        ];
        if self.engine == Engine::Psync {
            words.push(format!("--numjobs={}", self.depth));
            words.push("--thread".into());
            words.push("--group_reporting".into());
        } else {
            words.push(format!("--iodepth={}", self.depth));
        }
        words.extend(self.further.iter().cloned());
        // fio reads a colon as a separator of files.
        let escaped = |path: &PathBuf| path.display().to_string().replace(':', "\\:");
        let files: Vec<String> = self.files.iter().map(escaped).collect();
        words.push(format!("--filename={}", files.join(":")));
        words
    }

    /// The command's program and its words: through a shell where that is what joins the cgroup.
    fn command(&self) -> Vec<String> {
        let mut command = Vec::new();
        if let Some(cgroup) = &self.cgroup {
            let procs = quoted(&cgroup.join("cgroup.procs").display().to_string());
            let join = format!("echo $$ > {procs} && exec \"$0\" \"$@\"");
            command.extend(["sh".to_owned(), "-c".to_owned(), join]);
        }
        command.extend(self.environment());
        command.push("fio".to_owned());
        command.extend(self.words());
        command
    }
}

/// Is it there?
pub(crate) fn version() -> Option<String> {
    let output = Command::new("fio").arg("--version").output().ok()?;
    let version = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| version.trim().to_owned())
}

impl Measures for Job {
    fn line(&self) -> CommandLine {
        CommandLine::of(self.command())
    }

    /// The processor time is the whole process's, as on our side.
    fn run(&self) -> Result<Measurement, String> {
        let finished = self.line().finish()?;
        if !self.has_carried(&finished.stderr) {
            let said = finished.stderr.lines().find(|line| line.starts_with("baio "));
            let said = said.unwrap_or("it says nothing");
            return Err(format!("our library has not carried the requests: {said}"));
        }
        let mut measured = parse(self, &finished.stdout)?;
        let start = start_up::cost(&self.kind(), || {
            let ms = start_up::RUNTIME.as_millis();
            self.clone().with(&format!("--runtime={ms}ms")).line().process()
        });
        finished.charge(&mut measured, Some(start));
        measured.rss_bytes = Some(finished.ended.memory_bytes);
        Ok(measured)
    }
}

/// What fio printed; its own account of its costs is not used.
fn parse(job: &Job, stdout: &str) -> Result<Measurement, String> {
    // fio prints notes before its object when it cannot do something as asked.
    let json = stdout.find('{').map_or("", |at| &stdout[at..]);
    let value: Value = serde_json::from_str(json).map_err(|error| format!("fio's output: {error}"))?;
    let done = &value["jobs"][0];
    let half = &done[if job.rw.writes() { "write" } else { "read" }];
    let requests = half["total_ios"].as_u64().unwrap_or(0);
    if requests == 0 {
        return Err("fio made no request".into());
    }
    let failed = done["total_err"].as_u64().unwrap_or(0);
    Ok(Measurement {
        iops: half["iops"].as_f64().unwrap_or(0.0),
        bytes_per_second: half["bw_bytes"].as_f64().unwrap_or(0.0),
        latency_us: latency(&half["clat_ns"]),
        submit_latency_us: half["slat_ns"]["percentile"]
            .is_object()
            .then(|| latency(&half["slat_ns"])),
        in_flight_max: u64::from(job.depth),
        threads_max: (job.engine == Engine::Psync).then_some(u64::from(job.depth)),
        requests,
        // A request that fails ends the job, which then says so here and with its exit status.
        errors: failed + u64::from(done["error"].as_i64().unwrap_or(0) != 0),
        backend: format!("fio {}", job.engine.name()),
        mode: if job.direct { "direct" } else { "kernel" }.into(),
        ..Measurement::default()
    })
}

fn latency(value: &Value) -> Latency {
    let us = |ns: &Value| ns.as_f64().map(|ns| ns / 1000.0);
    Latency {
        mean: us(&value["mean"]),
        p50: us(&value["percentile"]["50.000000"]),
        p99: us(&value["percentile"]["99.000000"]),
        p999: us(&value["percentile"]["99.900000"]),
        max: us(&value["max"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(engine: Engine, rw: Rw) -> Job {
        let files = vec!["/a".into(), "/b:c".into()];
        Job::new(engine, rw, files, 1 << 20, 16).timed(Duration::from_millis(400))
    }

    #[test]
    fn threads_are_jobs_and_requests_in_flight_are_a_depth() {
        let threads = job(Engine::Psync, Rw::RandomRead).words();
        assert!(threads.contains(&"--numjobs=16".to_owned()) && threads.contains(&"--group_reporting".to_owned()));
        assert!(!threads.iter().any(|word| word.starts_with("--iodepth")));
        let ring = job(Engine::IoUring, Rw::RandomRead).words();
        assert!(ring.contains(&"--iodepth=16".to_owned()) && !ring.contains(&"--thread".to_owned()));
    }

    #[test]
    fn several_files_share_the_size_and_a_colon_in_a_name_is_none_between_names() {
        let words = job(Engine::Libaio, Rw::RandomWrite).words();
        assert!(words.contains(&"--size=2097152".to_owned()), "{words:?}");
        assert!(words.contains(&"--filename=/a:/b\\:c".to_owned()), "{words:?}");
    }

    #[test]
    fn each_block_once_needs_the_map_and_no_end_but_the_last_block() {
        let timed = job(Engine::Libaio, Rw::RandomRead).words();
        assert!(timed.contains(&"--norandommap".to_owned()) && timed.contains(&"--runtime=400ms".to_owned()));
        let once = Job::new(Engine::Libaio, Rw::RandomRead, vec!["/a".into()], 1 << 20, 16).words();
        for word in ["--norandommap", "--time_based", "--runtime", "--invalidate"] {
            assert!(!once.iter().any(|given| given.starts_with(word)), "{word}: {once:?}");
        }
    }

    #[test]
    fn a_cgroup_is_joined_before_anything_is_done() {
        let confined = job(Engine::Psync, Rw::Write).confined(Some("/cg/a b".into()));
        let command = confined.command();
        assert_eq!(command[..2], ["sh", "-c"]);
        assert_eq!(command[2], r#"echo $$ > '/cg/a b/cgroup.procs' && exec "$0" "$@""#);
        assert_eq!(command[3], "fio");
        assert_eq!(job(Engine::Psync, Rw::Write).command()[0], "fio");
    }

    #[test]
    fn a_library_of_ours_is_in_the_command_and_must_carry_the_requests() {
        let on = |engine, name: &str| job(engine, Rw::RandomRead).on(PathBuf::from("/l").join(name));
        let libaio = on(Engine::Libaio, "libaio.so.1");
        assert_eq!(
            libaio.command()[..4],
            ["env", "LD_LIBRARY_PATH=/l", "BAIO_EXPLAIN=1", "fio"]
        );
        let posix = on(Engine::Posixaio, "libbaio-posix-aio.so");
        assert_eq!(posix.command()[1], "LD_PRELOAD=/l/libbaio-posix-aio.so");
        assert!(libaio.has_carried("noise\nbaio libaio: a context for 16 requests: its reads wait: io_uring\n"));
        let kernel = "baio libaio: a context for 16 requests: the kernel's AIO, and io_uring when its reads wait\n";
        assert!(libaio.has_carried(kernel));
        assert!(!libaio.has_carried("baio libaio: a context for 8 requests: the kernel's own io_* calls; no io_uring"));
        assert!(!libaio.has_carried("") && job(Engine::Libaio, Rw::RandomRead).has_carried(""));
        assert_ne!(libaio.kind(), job(Engine::Libaio, Rw::RandomRead).kind());
    }

    #[test]
    fn the_half_that_was_run_is_read_behind_fios_notes() {
        let points = r#"{"mean":2000.0,"max":9000,"percentile":{"50.000000":1000,"99.000000":3000}}"#;
        let half = |ios: u32| format!(r#"{{"total_ios":{ios},"iops":7.5,"slat_ns":{points},"clat_ns":{points}}}"#);
        let text = format!(
            r#"note: something {{"jobs":[{{"error":0,"read":{},"write":{}}}]}}"#,
            half(0),
            half(30)
        );
        let write = parse(&job(Engine::IoUring, Rw::RandomWrite), &text).unwrap();
        assert_eq!((write.requests, write.iops, write.errors), (30, 7.5, 0));
        assert_eq!(write.latency_us.p99, Some(3.0));
        assert_eq!(write.submit_latency_us.and_then(|at| at.p50), Some(1.0));
        assert!(parse(&job(Engine::IoUring, Rw::RandomRead), &text).is_err());
        let failed = text.replace(r#""error":0"#, r#""error":5"#);
        assert_eq!(
            parse(&job(Engine::IoUring, Rw::RandomWrite), &failed).unwrap().errors,
            1
        );
    }
}
