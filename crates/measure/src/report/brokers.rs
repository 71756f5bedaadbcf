//! Seed 004 §5: what it costs that a volume is served to many processes. The paper rejected one daemon for the costs of its time; here
//! a broker and the same volume in the caller's own process run in turn. The processor time of a side is that of both processes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use baio_console::failure::Failure;
use baio_stress::Measurement;
use rustix::process::{Pid, Signal, kill_process};

use crate::figures::command_line::{CommandLine, Measures};
use crate::figures::interrupt::Running;
use crate::figures::runner::ends_with_this;
use crate::figures::stress::Run;
use crate::report::comparison::{Peer, Side};
use crate::report::findings::Findings;
use crate::report::marks::{Figure, cpu, rate};
use crate::report::places::Site;
use crate::report::setting::Setting;

/// What a path of a socket may have (unix(7)), its end included.
const SOCKET_PATH_MAX: usize = 108;

/// 4 KiB random direct reads of a segment, and reads that the cache answers.
pub(super) fn run(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let (runtime, rounds) = setting.measuring();
    let place = Site::segment(setting, "broker", setting.working_set)?;
    let socket = socket_in(&setting.dir);
    findings.lines.push(format!(
        "one client of a broker beside one process that has the volume open itself; working set {} MiB, {rounds} rounds of {} ms \
         a side, median of the ratios",
        setting.working_set >> 20,
        runtime.as_millis()
    ));
    for depth in setting.either(&[16, 64][..], &[1, 16, 64]) {
        let name = format!("direct, depth {depth}");
        let embedded = Side::by(
            "the volume in the own process",
            Run::new(&place.target, "randread", *depth, runtime),
        );
        let marks = if *depth == 1 {
            vec![]
        } else {
            vec![rate(0.95), cpu(1.3)]
        };
        let peer = Peer::new(embedded, marks).also(&[Figure::ContextSwitches, Figure::P50, Figure::P99]);
        let ours = served(&place, &socket, name, *depth, runtime);
        findings.compare(rounds, ours, vec![peer])?;
    }
    Ok(())
}

/// A place for the socket among the working files, or with the temporary ones where that path is too long.
fn socket_in(dir: &Path) -> PathBuf {
    let near = dir.join("broker.sock");
    if near.as_os_str().len() < SOCKET_PATH_MAX {
        return near;
    }
    std::env::temp_dir().join(format!("baio-report-{}.sock", std::process::id()))
}

/// `stress` by a broker that runs meanwhile.
fn served(place: &Site, socket: &Path, name: String, depth: u32, runtime: Duration) -> Side {
    let segment = place.target.rsplit_once('#').map_or("", |(_, segment)| segment);
    let target = format!("unix:{}#{segment}", socket.display());
    let stress = Run::new(&target, "randread", depth, runtime).with("--mode direct");
    let words = [
        "serve",
        &place.path.display().to_string(),
        "--socket",
        &socket.display().to_string(),
    ]
    .map(str::to_owned);
    let (volume, socket) = (place.path.clone(), socket.to_owned());
    Side {
        name,
        command: format!("{} & {}", CommandLine::own(words), stress.line()),
        run: Box::new(move || {
            let mut broker = Broker::start(&volume, &socket)?;
            let before = broker.processor_time();
            let mut measured = stress.run()?;
            charge(&mut measured, broker.processor_time().saturating_sub(before));
            broker.end()?;
            Ok(measured)
        }),
    }
}

/// What the broker has used for them counts too.
fn charge(measured: &mut Measurement, broker: Duration) {
    let each = broker.as_secs_f64() * 1e6 / measured.requests.max(1) as f64;
    measured.cpu_us_per_request += each;
    if let Some(cpu) = &mut measured.cpu_less_start_us_per_request {
        *cpu += each;
    }
}

/// `baio serve`, which ends with this.
struct Broker {
    child: Child,
    /// It ends with an interrupted report.
    _running: Running,
    /// What it says; were it closed, its last words would be an error.
    said: Option<BufReader<ChildStdout>>,
    socket: PathBuf,
}

impl Broker {
    fn start(volume: &Path, socket: &Path) -> Result<Broker, String> {
        let failed = |error: std::io::Error| format!("start `baio serve`: {error}");
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command
            .args(["serve", "--json", "--socket"])
            .arg(socket)
            .arg(volume)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0);
        let mut child = ends_with_this(&mut command).spawn().map_err(failed)?;
        let mut broker = Broker {
            _running: Running::new(Pid::from_child(&child)),
            said: child.stdout.take().map(BufReader::new),
            child,
            socket: socket.to_owned(),
        };
        let mut line = String::new();
        if let Some(said) = &mut broker.said {
            // It says so when it can be connected to.
            said.read_line(&mut line).map_err(failed)?;
        }
        let said: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        match said["error"]["message"].as_str() {
            None if said["pid"].is_number() => Ok(broker),
            Some(message) => Err(message.to_owned()),
            None => Err(format!("`baio serve` on {} ended before it served", socket.display())),
        }
    }

    /// Of all its threads that live.
    fn processor_time(&self) -> Duration {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id()))
            .into_iter()
            .flatten();
        let on_processor = threads.flatten().filter_map(|thread| {
            let words = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            words.split_whitespace().next()?.parse::<u64>().ok()
        });
        Duration::from_nanos(on_processor.sum())
    }

    /// As it should: everything is written, the volume is closed.
    fn end(&mut self) -> Result<(), String> {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("`baio serve` ended with {status}")),
            Err(error) => Err(format!("wait for `baio serve`: {error}")),
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // Where it has not ended by itself. What it leaves is in the report's own directory.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.socket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_broker_uses_is_charged_to_the_requests() {
        let mut measured = Measurement {
            requests: 100,
            cpu_us_per_request: 2.0,
            cpu_less_start_us_per_request: Some(1.5),
            ..Measurement::default()
        };
        charge(&mut measured, Duration::from_micros(300));
        assert_eq!(measured.cpu_us_per_request, 5.0);
        assert_eq!(measured.cpu_less_start_us_per_request, Some(4.5));
    }
}
