//! What a subscriber hears.

use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use baio_storage::Fault;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

use super::*;

/// Writes down what it hears, a line each, from a level on.
#[derive(Clone)]
struct Listener {
    lines: Arc<Mutex<Vec<String>>>,
    spans: Arc<AtomicU64>,
    most: Level,
}

impl Listener {
    fn up_to(most: Level) -> Listener {
        Listener {
            lines: Arc::default(),
            spans: Arc::default(),
            most,
        }
    }

    fn say(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "baio" && *metadata.level() <= self.most
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields(String::new());
        span.record(&mut fields);
        let (level, name) = (span.metadata().level(), span.metadata().name());
        self.say(format!("{level} {name}{}", fields.0));
        Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let mut fields = Fields(String::new());
        values.record(&mut fields);
        self.say(format!("{}:{}", id.into_u64(), fields.0));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        self.say(format!("{}{}", event.metadata().level(), fields.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// While there is one subscriber alone, what a thread that has none meets first is turned off for all (`Rebuilder::JustOne` in
/// `callsite.rs` of tracing-core): the other tests of this process are such threads.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Listener::up_to(Level::ERROR)));

/// What is heard of `told` by one who listens up to a level.
fn heard(most: Level, told: impl FnOnce()) -> Vec<String> {
    LazyLock::force(&SECOND);
    let listener = Listener::up_to(most);
    tracing::subscriber::with_default(listener.clone(), told);
    let lines = listener.lines.lock().unwrap();
    lines.clone()
}

fn error(fault: impl Into<Fault>) -> Error {
    Error::new("write", "vol#0/a", fault).at(4096)
}

fn write() -> Trace {
    request_begins(SegmentOp::Write { offset: 4096 }, 512, Mode::Cached, "vol#0/a")
}

const WRITE: &str = r#"TRACE request op="write" object="vol#0/a" offset=4096 bytes=512 mode="cached""#;

#[test]
fn a_request_is_a_span_with_its_outcome() {
    let lines = heard(Level::TRACE, || request_ended(write(), Ok(512)));
    assert_eq!(lines, [WRITE, "1: bytes_done=512", r#"1: outcome="ok""#]);
}

#[test]
fn a_failure_is_a_warning() {
    let failed = error(Fault::Latched);
    let lines = heard(Level::TRACE, || request_ended(write(), Err((&failed, 0))));
    let code = failed.code();
    let warning = format!(
        r#"WARN message=failed operation="write" object="vol#0/a" offset=4096 code="{code}" error={}"#,
        failed.fault
    );
    let outcome = format!(r#"1: outcome="{code}""#);
    assert_eq!(lines, [WRITE, "1: bytes_done=0", &outcome, &warning]);
    // Also to whoever hears no spans, and complete.
    let lines = heard(Level::WARN, || request_ended(write(), Err((&failed, 0))));
    assert_eq!(lines, [warning]);
}

#[test]
fn a_cancel_is_no_failure() {
    let cancelled = error(baio_engine::Error::Cancelled);
    let lines = heard(Level::TRACE, || request_ended(write(), Err((&cancelled, 0))));
    assert_eq!(lines, [WRITE, "1: bytes_done=0", r#"1: outcome="cancelled""#]);
}

#[test]
fn one_that_is_given_up_says_so() {
    let lines = heard(Level::TRACE, || drop(write()));
    assert_eq!(lines, [WRITE, r#"1: outcome="dropped""#]);
}

#[test]
fn a_sync_has_no_place() {
    let told = || request_ended(request_begins(SegmentOp::Sync, 0, Mode::Direct, "a"), Ok(0));
    let lines = heard(Level::TRACE, told);
    assert_eq!(lines[0], r#"TRACE request op="sync" object="a" bytes=0 mode="direct""#);
}

#[test]
fn operations_links_and_objects_are_heard() {
    let failed = error(Fault::NotFound);
    let told = || {
        link_opened(|| "vol", Ok(()));
        operation_ended(operation_begins("create segment", || "vol#0/a"), Ok(()));
        operation_ended(operation_begins("delete segment", || "vol#0/a"), Err(&failed));
        object_closed("vol#0/a");
        link_closed(|| "vol", Ok(()));
    };
    let warning = r#"WARN message=failed operation="write" object="vol#0/a" offset=4096 code="ENOENT""#;
    let lines = heard(Level::DEBUG, told);
    let expected = [
        "INFO message=link opened object=vol",
        r#"DEBUG operation what="create segment" object=vol#0/a"#,
        r#"1: outcome="ok""#,
        r#"DEBUG operation what="delete segment" object=vol#0/a"#,
        r#"2: outcome="ENOENT""#,
        warning,
        r#"DEBUG message=object closed object="vol#0/a""#,
        r#"INFO message=link closed object=vol outcome="ok""#,
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}, not {expected}");
    }
}

#[test]
fn a_log_is_heard_with_its_lsns() {
    use crate::{File, Local, LogOptions};

    let place = tempfile::NamedTempFile::new().unwrap();
    place.as_file().set_len(4 << 20).unwrap();
    let link = Local::new().unwrap();
    let lines = heard(Level::INFO, || {
        let file = File::options().write().open(&link, place.path()).wait().unwrap();
        let log = file.create_log(&LogOptions::default()).wait().unwrap();
        log.append_durable(b"a").wait().unwrap();
        log.close().wait().unwrap();
        log.append(b"b").unwrap_err();
        drop(log);
    });
    let name = place.path().display();
    let head = 8192;
    let expected = [
        format!(
            "INFO message=log opened object=\"{name}\" head_lsn={head} end_lsn={head} next_lsn={head} epoch=1 clean=true holes=0"
        ),
        format!("WARN message=failed operation=\"append to\" object=\"{name}\" code=\"ESTALE\""),
        format!("INFO message=log closed object=\"{name}\" head_lsn={head} durable_lsn="),
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(&expected), "{line}, not {expected}");
    }
    for room in [
        baio_storage::log::LogError::WouldBlock,
        baio_storage::log::LogError::Full,
    ] {
        let error = Error::of_log("append to", "a", room);
        assert_eq!(heard(Level::TRACE, || log_failed(&error)), [""; 0], "want of room");
    }
}

#[test]
fn what_another_thread_met_first_is_heard() {
    let lines = heard(Level::INFO, || {
        let event = || tracing::info!(target: "baio", "first met");
        std::thread::scope(|scope| scope.spawn(event).join()).unwrap();
        event();
    });
    assert_eq!(lines, ["INFO message=first met"]);
}

/// A name costs something: nobody makes one that nobody reads.
#[test]
fn nothing_is_named_for_nobody() {
    let lines = heard(Level::WARN, || {
        let unasked = || -> String { panic!("nobody listens") };
        operation_ended(operation_begins("list", unasked), Ok(()));
        link_opened(unasked, Ok(()));
    });
    assert_eq!(lines, [""; 0]);
}
