//! `baio metrics`: the counters of a process that has opened a metrics socket.
//!
//! What answers there is any process: its answer is bounded in time and size, and what is shown of it is safe to show.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use baio_console::duration::parse_duration;
use baio_console::failure::Failure;
use baio_console::output::Answer;
use baio_console::printable::{Printable, readable};
use clap::Args;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::Serialize;
use serde_json::{Number, Value};

/// No answer is longer.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// `baio metrics`
#[derive(Debug, Args)]
#[command(after_help = "\
SOCKET is where a program that uses the library has opened its metrics socket (baio::metrics::serve).
Without --json the text is that of Prometheus, as it came.

Examples:
  baio format vol --size 64M
  baio serve vol --socket vol.sock --metrics metrics.sock &
  baio metrics metrics.sock
  baio metrics metrics.sock --json
  kill $!

Elsewhere:
  curl --unix-socket /run/mail/metrics.sock http://localhost/metrics")]
pub(crate) struct MetricsArgs {
    /// The socket
    #[arg(value_name = "SOCKET")]
    socket: PathBuf,
    /// How long to wait for the answer; the process may have to answer others first
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    timeout: Duration,
}

/// What `metrics` shows.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    samples: Vec<Sample>,
    #[serde(skip)]
    text: String,
}

/// One value.
#[derive(Debug, PartialEq, Serialize)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    /// Null where it is no finite number.
    value: Value,
}

/// Asks.
pub(crate) fn run(args: MetricsArgs) -> Result<Shown, Failure> {
    let socket = readable(&args.socket);
    if socket.starts_with("unix:") {
        return Err(Failure::new(
            "metrics",
            "EOPNOTSUPP",
            "a broker does not show its counters this way yet",
        )
        .on(socket)
        .needing("the PATH of a metrics socket (baio::metrics::serve)")
        .cured_by("name the metrics socket of a program; for a file of this name write ./unix:..."));
    }
    let answer = ask(&args.socket, args.timeout).map_err(|error| failed(&socket, &error))?;
    let text = body_of(&answer).map_err(|said| strange(&socket, said))?;
    let samples = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let samples: Option<Vec<Sample>> = samples.map(Sample::read).collect();
    let samples =
        samples.ok_or_else(|| strange(&socket, "the answer is not in the text format of Prometheus".to_owned()))?;
    Ok(Shown {
        samples,
        text: text.to_owned(),
    })
}

fn failed(socket: &str, error: &io::Error) -> Failure {
    let cure = match error.kind() {
        ErrorKind::PermissionDenied => "ask as the user whose process it is",
        ErrorKind::TimedOut => "ask again, with a longer --timeout, or look at what keeps the process busy",
        _ => "start the process, or name its socket",
    };
    needing(Failure::from_io("metrics", error), socket).cured_by(cure)
}

fn strange(socket: &str, said: String) -> Failure {
    needing(Failure::new("metrics", "EPROTO", said), socket).cured_by("name the socket of such a process")
}

fn needing(failure: Failure, socket: &str) -> Failure {
    let need = "a process that has opened a metrics socket there (baio::metrics::serve)";
    failure.on(socket).needing(need)
}

fn ask(path: &Path, patience: Duration) -> io::Result<String> {
    let begun = Instant::now();
    // No time is left when it is zero, which a socket takes for all the time there is.
    let left = || match patience.saturating_sub(begun.elapsed()) {
        Duration::ZERO => Err(slow(ErrorKind::WouldBlock.into())),
        left => Ok(left),
    };
    let socket = baio_process::descriptor::socket(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // A process that is stopped has a full queue one day: connecting waits for it as well.
    set_socket_timeout(&socket, Timeout::Send, Some(left()?))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?).map_err(|errno| slow(errno.into()))?;
    let mut peer = UnixStream::from(socket);
    peer.set_write_timeout(Some(left()?))?;
    peer.write_all(REQUEST).map_err(slow)?;
    let mut answer = Vec::new();
    let mut part = [0; 16 << 10];
    loop {
        peer.set_read_timeout(Some(left()?))?;
        match peer.read(&mut part) {
            Ok(0) => break,
            Ok(got) => answer.extend_from_slice(part.get(..got).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(slow(error)),
        }
        if answer.len() as u64 > ANSWER_BYTES_MAX {
            return Err(rustix::io::Errno::MSGSIZE.into());
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// A timeout of a socket is EAGAIN (socket(7)), which is not what it means here.
fn slow(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => rustix::io::Errno::TIMEDOUT.into(),
        _ => error,
    }
}

/// What stands behind the head of an answer of HTTP; else what is wrong.
fn body_of(answer: &str) -> Result<&str, String> {
    let parts = answer.split_once("\r\n\r\n").filter(|_| answer.starts_with("HTTP/1."));
    let Some((head, body)) = parts else {
        return Err("what answers there is not a metrics socket".into());
    };
    let status = head.lines().next().unwrap_or_default();
    match status.split(' ').nth(1) {
        Some("200") => Ok(body),
        _ => Err(format!("the process said {}", Printable(status))),
    }
}

impl Sample {
    /// `name 7` or `name{key="value",...} 7`
    fn read(line: &str) -> Option<Sample> {
        let name_ends = line.find(['{', ' '])?;
        let (name, rest) = line.split_at(name_ends);
        let mut labels = BTreeMap::new();
        let rest = match rest.strip_prefix('{') {
            Some(rest) => read_labels(rest, &mut labels)?,
            None => rest,
        };
        // A time or an exemplar may follow.
        let value = rest.split_whitespace().next()?;
        Some(Sample {
            name: name.to_owned(),
            labels,
            value: read_number(value)?,
        })
    }
}

/// Reads `key="value",...}`; gives what follows.
fn read_labels<'a>(mut rest: &'a str, labels: &mut BTreeMap<String, String>) -> Option<&'a str> {
    loop {
        rest = rest.trim_start_matches(',');
        if let Some(behind) = rest.strip_prefix('}') {
            return Some(behind);
        }
        let (key, quoted) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = quoted.char_indices();
        loop {
            match characters.next()? {
                (at, '"') => {
                    rest = quoted.get(at + 1..)?;
                    break;
                }
                (_, '\\') => value.push(match characters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        }
        labels.insert(key.to_owned(), value);
    }
}

fn read_number(text: &str) -> Option<Value> {
    if let Ok(whole) = text.parse::<u64>() {
        return Some(whole.into());
    }
    let number: f64 = text.parse().ok()?;
    Some(Number::from_f64(number).map_or(Value::Null, Value::Number))
}

impl Answer for Shown {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        self.text
            .lines()
            .try_for_each(|line| writeln!(out, "{}", Printable(line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(name: &str, labels: &[(&str, &str)], value: impl Into<Value>) -> Sample {
        Sample {
            name: name.to_owned(),
            labels: labels
                .iter()
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect(),
            value: value.into(),
        }
    }

    #[test]
    fn samples_are_read() {
        for (line, expected) in [
            ("a_total 7", sample("a_total", &[], 7)),
            ("a 18446744073709551615", sample("a", &[], u64::MAX)),
            ("a 0.5 1700000000", sample("a", &[], 0.5)),
            ("a NaN", sample("a", &[], Value::Null)),
            (
                r#"a{le="+Inf",op="read"} 1"#,
                sample("a", &[("le", "+Inf"), ("op", "read")], 1),
            ),
            (r#"a{k="x\"}\\\n"} 2"#, sample("a", &[("k", "x\"}\\\n")], 2)),
            ("a{} 2", sample("a", &[], 2)),
        ] {
            assert_eq!(Sample::read(line), Some(expected), "{line}");
        }
        for line in [
            "a",
            "a{",
            "a{k=\"",
            "a{k=\"v\"",
            "a{k=\"v\"}",
            "a x",
            r#"a{k="\"#,
            "a{k} 1",
        ] {
            assert_eq!(Sample::read(line), None, "{line}");
        }
    }

    #[test]
    fn only_a_good_answer_has_a_body() {
        assert_eq!(body_of("HTTP/1.1 200 OK\r\nA: b\r\n\r\na 1\n"), Ok("a 1\n"));
        let said = body_of("HTTP/1.1 500 Internal Server Error\r\n\r\n").unwrap_err();
        assert_eq!(said, "the process said HTTP/1.1 500 Internal Server Error");
        for other in ["", "HTTP/1.1 200 OK\r\n", "SSH-2.0-x\r\n\r\n"] {
            assert!(body_of(other).unwrap_err().contains("not a metrics socket"), "{other}");
        }
    }
}
