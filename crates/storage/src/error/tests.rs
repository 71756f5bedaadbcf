use baio_engine::{Argument, Error as Io, SetupError};
use baio_words::{Lost, ProblemPlace, Repair, SegmentOp};

use super::*;
use crate::cache::CacheError;
use crate::log::LogError;
use crate::segment::layout::LayoutError;

/// One of each; the match below tells whoever adds a variant to add it here.
fn all_faults() -> Vec<Fault> {
    let word = String::new;
    let misaligned = Io::Misaligned {
        argument: Argument::Offset,
        value: 1,
        need: 512,
    };
    let unsupported = Io::Unsupported {
        operation: "poll",
        backend: "sync",
    };
    vec![
        Fault::Io(Io::System(Errno::ENOSPC)),
        Fault::Io(misaligned),
        Fault::Io(unsupported),
        Fault::Io(Io::NoDescription { mode: "direct" }),
        Fault::Io(Io::ReadOnlyMemory),
        Fault::Io(Io::Poisoned(Errno::EIO)),
        Fault::Io(Io::Indeterminate),
        Fault::Io(Io::Cancelled),
        Fault::Io(Io::Full),
        Fault::Setup(Box::new(SetupError::new("open", word(), Errno::ENOENT))),
        Fault::NotVolume(word()),
        Fault::Version(word()),
        Fault::Corrupt(word()),
        Fault::Busy { holder: Some(1) },
        Fault::Busy { holder: None },
        Fault::Overtaken { found: 2, ours: 1 },
        Fault::Occupied(word()),
        Fault::NoSpace {
            asked: 3,
            free: Some(2),
            largest: Some(1),
        },
        Fault::TableFull { segments_max: Some(16) },
        Fault::TableFull { segments_max: None },
        Fault::OverQuota {
            uid: 1,
            what: "bytes",
            asked: 3,
            used: 2,
            limit: 1,
        },
        Fault::Exists,
        Fault::NotFound,
        Fault::Access { uid: 1 },
        Fault::Group { gid: 1 },
        Fault::Name(NameError::Empty),
        Fault::Name(NameError::TooLong { bytes: 256 }),
        Fault::Layout(LayoutError::Overflow),
        Fault::Beyond {
            len: 2,
            size: 1,
            write: true,
        },
        Fault::Beyond {
            len: 2,
            size: 1,
            write: false,
        },
        Fault::BadSize(word()),
        Fault::WouldCut { has: 2, asked: 1 },
        Fault::NotYet("mode `cached` on a segment"),
        Fault::NoCache,
        Fault::Cache(CacheError::NoFrame),
        Fault::Latched,
        Fault::Moving,
        Fault::LostWrite { page: word(), at: 1 },
        Fault::Unreadable { what: word(), at: 1 },
        Fault::RepairCut {
            error: Error::new("write", "/tmp/vol", Fault::LostWrite { page: word(), at: 1 }),
            lost: vec![Problem {
                kind: "bucket-lost",
                place: ProblemPlace {
                    object: "bucket 7".into(),
                    offset: 8192,
                },
                what: "four segments are gone".into(),
                repair: Repair::Lost,
            }],
        },
        Fault::Shrunk { ends: 1, needs: 2 },
        Fault::Shrunk { ends: 0, needs: 2 },
        Fault::Unexpected("the table token"),
        Fault::MoveStopped { mark: 4096 },
        Fault::ReadOnlyVolume,
        Fault::NotAFile,
        Fault::HasLog,
        Fault::ReadOnly,
        Fault::Stale,
        Fault::NobodyDrives,
        Fault::ServiceEnded,
        Fault::ServiceFailed(Errno::EPERM),
        Fault::Lost(Lost::CachedWrites),
        Fault::Lost(Lost::Segment),
        Fault::NoMemory { asked: 1 },
        Fault::Told(Box::default()),
        Fault::NotFar("a check"),
        Fault::OlderBroker("a log"),
        Fault::Log(Box::new(LogError::WouldBlock)),
        Fault::Log(Box::new(LogError::Full)),
        Fault::Log(Box::new(LogError::NotLog)),
        Fault::Log(Box::new(LogError::Version(2))),
        Fault::Log(Box::new(LogError::HeaderLost)),
        Fault::Log(Box::new(LogError::Closed)),
    ]
}

/// A number for every variant, without gaps, so that the list above can be checked for completeness.
fn number(fault: &Fault) -> usize {
    match fault {
        Fault::Io(_) => 0,
        Fault::Setup(_) => 1,
        Fault::NotVolume(_) => 2,
        Fault::Version(_) => 3,
        Fault::Corrupt(_) => 4,
        Fault::Busy { .. } => 5,
        Fault::Occupied(_) => 6,
        Fault::NoSpace { .. } => 7,
        Fault::TableFull { .. } => 8,
        Fault::Exists => 9,
        Fault::NotFound => 10,
        Fault::Access { .. } => 11,
        Fault::Name(_) => 12,
        Fault::Layout(_) => 13,
        Fault::Beyond { .. } => 14,
        Fault::BadSize(_) => 15,
        Fault::NotYet(_) => 16,
        Fault::Latched => 17,
        Fault::ReadOnly => 18,
        Fault::Stale => 19,
        Fault::NobodyDrives => 20,
        Fault::NoMemory { .. } => 21,
        Fault::ServiceEnded => 22,
        Fault::OverQuota { .. } => 23,
        Fault::LostWrite { .. } => 24,
        Fault::MoveStopped { .. } => 25,
        Fault::Moving => 26,
        Fault::Group { .. } => 27,
        Fault::NoCache => 28,
        Fault::Cache(_) => 29,
        Fault::Unreadable { .. } => 30,
        Fault::Overtaken { .. } => 31,
        Fault::Shrunk { .. } => 32,
        Fault::Unexpected(_) => 33,
        Fault::ReadOnlyVolume => 34,
        Fault::NotAFile => 35,
        Fault::HasLog => 36,
        Fault::Log(_) => 37,
        Fault::Told(_) => 38,
        Fault::NotFar(_) => 39,
        Fault::Lost(_) => 40,
        Fault::ServiceFailed(_) => 41,
        Fault::WouldCut { .. } => 42,
        Fault::OlderBroker(_) => 43,
        Fault::RepairCut { .. } => 44,
    }
}

#[test]
fn the_number_of_an_error_agrees_with_its_code() {
    let faults = all_faults();
    let seen: std::collections::BTreeSet<_> = faults.iter().map(number).collect();
    assert!(seen.into_iter().eq(0..45), "a variant is missing in all_faults");
    for fault in faults {
        let error = Error::new("test", "it", fault);
        let expected = match error.code() {
            "ENOTVOLUME" | "ENOTLOG" | "EVERSION" => "EINVAL",
            "ECORRUPT" | "EPOISONED" => "EIO",
            "EINDETERMINATE" => "ETIMEDOUT",
            code => code,
        };
        assert_eq!(error.errno().unwrap().name(), expected, "{error}");
    }
}

/// What the engine advises to its own users cannot always be done through a segment.
#[test]
fn cures_can_be_followed_through_a_segment() {
    for fault in all_faults() {
        let error = Error::new("write", "volume#0/a", fault);
        let cure = error.cure().unwrap_or_default();
        for impossible in ["cached mode", "acknowledge", "choose another backend"] {
            assert!(!cure.contains(impossible), "{error}");
        }
    }
}

/// What a service tells in a few words, its client shows as the volume does.
#[test]
fn what_crosses_a_ring_is_told_as_it_is_here() {
    let mut told = 0;
    for fault in all_faults() {
        let Some(of_request) = fault.of_request() else { continue };
        told += 1;
        let here = Error::new("write", "volume#0/a", fault).at(512);
        let op = SegmentOp::Write { offset: 512 };
        let len = 2;
        let there = RequestError::of(op, "volume#0/a", len, of_request.into());
        let text = there.to_string();
        assert_eq!(Error::from(there.clone()).to_string(), text);
        let changed = match of_request {
            // Whoever asked knows that, and words outside of the tables are not sent.
            RequestFault::Beyond { write: false, .. } | RequestFault::NotYet(_) | RequestFault::NobodyDrives => true,
            // Found out by the client, and never sent.
            RequestFault::Lost(_) | RequestFault::ServiceFailed(_) => true,
            RequestFault::Io(Io::Unsupported { .. }) => true,
            _ => false,
        };
        if !changed {
            assert_eq!(text, here.to_string());
            assert_eq!(
                (there.fault.code(), Some(there.fault.errno())),
                (here.code(), here.errno())
            );
        }
    }
    assert!(told > 15);
}

#[test]
fn debug_says_what_display_says_on_lines_of_its_own() {
    for fault in all_faults() {
        let error = Error::new("read", "/tmp/vol", fault).at(7);
        let shown = format!("{error:?}");
        assert_eq!(
            shown
                .replace("\n  needed: ", "; needed: ")
                .replace("\n  cure: ", "; cure: "),
            error.to_string()
        );
        let lines = 1 + usize::from(error.need().is_some()) + usize::from(error.cure().is_some());
        assert_eq!(shown.lines().count(), lines, "{shown}");
        assert_eq!(error.to_string().lines().count(), 1);
        assert!(format!("{error:#?}").starts_with("ErrorContext {"));
    }
}

#[test]
fn of_what_a_repair_has_lost_the_line_names_the_first_and_counts_the_others() {
    let bucket_lost = |number: usize| Problem {
        kind: "bucket-lost",
        place: ProblemPlace {
            object: format!("bucket <{number}>"),
            offset: 0,
        },
        what: "gone".into(),
        repair: Repair::Lost,
    };
    let line_of = |count: usize| {
        let error = Error::new("write", "/tmp/vol", Errno::EIO);
        let error = error.of_a_repair((0..count).map(bucket_lost).collect());
        error.fault.to_string()
    };
    let line = line_of(16);
    assert!(line.ends_with("bucket <15> (gone)"), "{line}");
    let line = line_of(100_000);
    assert!(line.ends_with("bucket <15> (gone); and 99984 more"), "{line}");
}

#[test]
fn every_error_goes_through_an_error_of_std_and_back() {
    for fault in all_faults() {
        let error = Error::new("read", "/tmp/vol", fault);
        let (code, line) = (error.code(), error.to_string());
        let kind = error.errno().map(Errno::kind);
        let told = std::io::Error::from(error);
        assert_eq!((Some(told.kind()), told.raw_os_error()), (kind, None), "{line}");
        assert_eq!(told.to_string(), line);
        let back = told.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        assert_eq!(back.map(Error::code), Some(code));
    }
}

#[test]
fn what_was_being_done_is_said_once() {
    let said = |operation, object: &str| {
        let setup = SetupError::new("open", "/tmp/vol".into(), Errno::EMFILE);
        Error::new(operation, object, setup).to_string()
    };
    assert!(said("open", "/tmp/vol").starts_with("open /tmp/vol: EMFILE"));
    for (operation, object) in [("open", "/tmp/other"), ("create", "/tmp/vol")] {
        let said = said(operation, object);
        assert!(
            said.starts_with(&format!("{operation} {object}: cannot open /tmp/vol: EMFILE")),
            "{said}"
        );
    }
}

#[test]
fn what_is_below_an_error_is_its_source() {
    let source_of = |fault: Fault| {
        let error = Error::new("create", "/tmp/vol", fault);
        std::error::Error::source(&error).map(ToString::to_string)
    };
    let setup = SetupError::new("open", "/tmp/vol".into(), Errno::ENOENT);
    let below = [
        (Fault::Io(Io::Full), Io::Full.to_string()),
        (Fault::Cache(CacheError::Busy), CacheError::Busy.to_string()),
        (Fault::Name(NameError::Empty), NameError::Empty.to_string()),
        (Fault::Setup(Box::new(setup.clone())), setup.to_string()),
    ];
    for (fault, told) in below {
        assert_eq!(source_of(fault), Some(told));
    }
    assert_eq!(source_of(Fault::Exists), None);
}
