//! A worker in a process of its own, and what it has said so far.

use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::place::Place;
use super::worker::{Failure, PANIC};

/// Killed, it ends within so long, or the kernel holds it.
const KILLED_SECONDS: u64 = 60;

#[derive(Debug, Default)]
struct Heard {
    lines: Mutex<(Vec<String>, bool)>,
    changed: Condvar,
}

impl Heard {
    fn listen(&self, output: ChildStdout) {
        let take = |line: Option<String>| {
            let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            match line {
                Some(line) => lines.0.push(line),
                None => lines.1 = true,
            }
            self.changed.notify_all();
        };
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            take(Some(line));
        }
        take(None);
    }
}

/// A worker under way. It is killed when this is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    heard: Arc<Heard>,
    listener: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts one on this place; numbers from `first` on are free.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(place: &dyn Place, story: &str, seed: u64, first: u64) -> Result<Running, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["powercut-worker", story])
            .args([place.device(), place.beside("")])
            .args([seed.to_string(), first.to_string()])
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let output = child.stdout.take().ok_or("a worker without an output")?;
        let heard = Arc::new(Heard::default());
        let theirs = Arc::clone(&heard);
        let listener = thread::Builder::new()
            .name("listener".into())
            .spawn(move || theirs.listen(output))?;
        Ok(Running {
            child,
            heard,
            listener: Some(listener),
        })
    }

    /// Waits until it has said so many lines, or has ended, but not longer than this.
    pub fn wait_for_lines(&self, count: usize, patience: Duration) {
        let lines = self.heard.lines.lock().unwrap_or_else(PoisonError::into_inner);
        drop(
            self.heard
                .changed
                .wait_timeout_while(lines, patience, |(lines, ended)| lines.len() < count && !*ended),
        );
    }

    /// How it has ended, if it has.
    ///
    /// # Errors
    /// The system does not say.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, Failure> {
        Ok(self.child.try_wait()?)
    }

    /// Kills it, and whoever it has started; all that it has said.
    ///
    /// # Errors
    /// It does not end; or it has panicked, or was ended by a signal of its own, which nothing that its device does may bring about.
    pub fn kill(mut self) -> Result<Vec<String>, Failure> {
        self.strike();
        let deadline = Instant::now() + Duration::from_secs(KILLED_SECONDS);
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                return Err(format!("the worker was killed, and has not ended after {KILLED_SECONDS} s").into());
            }
            thread::sleep(Duration::from_millis(2));
        };
        if let Some(listener) = self.listener.take() {
            listener.join().map_err(|_| "the listener's panic")?;
        }
        let mut heard = self.heard.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = std::mem::take(&mut heard.0);
        match fell(&lines, status) {
            Some(why) => Err(why.into()),
            None => Ok(lines),
        }
    }

    fn strike(&self) {
        // It may have ended by itself.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.strike();
    }
}

/// Why it fell, if nobody killed it: an error ends a worker with a status, and the power with nothing.
fn fell(lines: &[String], status: ExitStatus) -> Option<String> {
    let panic = lines.iter().find(|line| line.starts_with(PANIC));
    let of_its_own = status.signal().filter(|signal| *signal != Signal::KILL.as_raw());
    panic
        .cloned()
        .or_else(|| of_its_own.map(|signal| format!("the worker was ended by signal {signal}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(said: &[&str]) -> Vec<String> {
        said.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn an_error_and_a_kill_are_no_fall() {
        let said = lines(&["w 0 1 1 7", "! the device is gone"]);
        for status in [0, 1 << 8, Signal::KILL.as_raw()] {
            assert_eq!(fell(&said, ExitStatus::from_raw(status)), None, "{status}");
        }
    }

    #[test]
    fn a_panic_is_a_fall_whatever_came_of_it() {
        let said = lines(&["w 0 1 1 7", "PANIC panicked at core.rs:1:1: oh", "! a panic"]);
        let told = fell(&said, ExitStatus::from_raw(Signal::KILL.as_raw()));
        assert_eq!(told, Some("PANIC panicked at core.rs:1:1: oh".into()));
    }

    #[test]
    fn a_signal_of_its_own_is_a_fall() {
        for signal in [Signal::ABORT, Signal::BUS, Signal::SEGV] {
            assert!(fell(&[], ExitStatus::from_raw(signal.as_raw())).is_some(), "{signal:?}");
        }
    }

    /// The hook is the process's, so the panic is one of a process of its own: this test once more.
    #[test]
    fn a_panic_of_any_thread_is_said() {
        const INNER: &str = "BAIO_TEST_PANICS";
        if std::env::var_os(INNER).is_some() {
            super::super::worker::say_panics();
            let fallen: thread::Result<()> = thread::spawn(|| panic!("two\nlines")).join();
            assert!(fallen.is_err());
            return;
        }
        let name = "powercut::running::tests::a_panic_of_any_thread_is_said";
        let output = Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(INNER, "1")
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = output.lines().find_map(|line| line.find(PANIC).map(|at| &line[at..]));
        assert!(said.is_some_and(|said| said.ends_with("two lines")), "{output}");
    }
}
