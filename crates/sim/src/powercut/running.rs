//! A worker in a process of its own, and what it has said so far.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::place::Place;
use super::worker::Failure;

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
    /// It does not end.
    pub fn kill(mut self) -> Result<Vec<String>, Failure> {
        self.strike();
        let deadline = Instant::now() + Duration::from_secs(KILLED_SECONDS);
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                return Err(format!("the worker was killed, and has not ended after {KILLED_SECONDS} s").into());
            }
            thread::sleep(Duration::from_millis(2));
        }
        if let Some(listener) = self.listener.take() {
            listener.join().map_err(|_| "the listener's panic")?;
        }
        let mut lines = self.heard.lines.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::take(&mut lines.0))
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
