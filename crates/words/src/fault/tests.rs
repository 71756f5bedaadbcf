use std::error::Error as _;
use std::io::{self, ErrorKind};

use super::*;

fn failed(fault: RequestFault) -> RequestError {
    RequestError {
        offset: Some(4096),
        ..RequestError::new("write", "/tmp/vol#0/pictures", fault)
    }
}

#[test]
fn display_is_a_line_and_debug_has_a_line_for_each_thing_to_know() {
    let error = failed(RequestFault::ReadOnly);
    let what = "write /tmp/vol#0/pictures at 4096: the handle was opened for reading only";
    let (need, cure) = ("needed: a handle opened for writing", "cure: open it with write access");
    assert_eq!(error.to_string(), format!("{what}; {need}; {cure}"));
    assert_eq!(format!("{error:?}"), format!("{what}\n  {need}\n  {cure}"));
    let fields = format!("{error:#?}");
    assert!(
        fields.starts_with("RequestError {") && fields.contains("fault: ReadOnly"),
        "{fields}"
    );
}

#[test]
fn debug_of_what_has_neither_need_nor_cure_is_its_display() {
    let error = failed(RequestFault::Io(IoError::Cancelled));
    assert_eq!(format!("{error:?}"), error.to_string());
}

#[test]
fn inside_an_error_of_std_it_keeps_its_kind_and_can_be_had_back() {
    let kinds = [
        (RequestFault::Io(IoError::System(Errno::ENOENT)), ErrorKind::NotFound),
        (RequestFault::Io(IoError::Indeterminate), ErrorKind::TimedOut),
        (RequestFault::Cache(CacheError::NoFrame), ErrorKind::OutOfMemory),
        (RequestFault::ServiceEnded, ErrorKind::BrokenPipe),
        (RequestFault::NoCache, ErrorKind::Unsupported),
    ];
    for (fault, kind) in kinds {
        let error = failed(fault);
        let told = io::Error::from(error.clone());
        assert_eq!((told.kind(), told.raw_os_error()), (kind, None), "{error}");
        assert_eq!(told.to_string(), error.to_string());
        let back = told.get_ref().and_then(|inner| inner.downcast_ref::<RequestError>());
        assert_eq!(back, Some(&error));
    }
}

#[test]
fn sources_lead_down_to_what_the_system_said() {
    for fault in [
        RequestFault::Io(IoError::Poisoned(Errno::ENOSPC)),
        RequestFault::Cache(CacheError::Unwritable(Errno::ENOSPC)),
    ] {
        let error = failed(fault);
        let inner = error.source().expect("what the engine or the cache said");
        let errno = inner.source().and_then(|said| said.downcast_ref());
        assert_eq!(errno, Some(&Errno::ENOSPC), "{error}");
    }
    assert!(failed(RequestFault::Stale).source().is_none());
}

#[test]
fn an_error_number_becomes_what_std_makes_of_it() {
    let told = io::Error::from(Errno::EACCES);
    assert_eq!(told.raw_os_error(), Some(libc::EACCES));
    assert_eq!(told.kind(), Errno::EACCES.kind());
    for (errno, kind) in [
        (IoError::Full.into(), ErrorKind::WouldBlock),
        (CacheError::Busy.into(), ErrorKind::ResourceBusy),
    ] {
        let told: io::Error = errno;
        assert_eq!(told.kind(), kind);
    }
}

/// A file system may set no space aside, or a device may not give any back; who asked is told what works there.
#[test]
fn who_is_refused_space_is_told_what_works() {
    let refused = RequestFault::Io(IoError::System(Errno::EOPNOTSUPP));
    for (op, word) in [
        (SegmentOp::Allocate { offset: 0, len: 1 }, "truncate"),
        (SegmentOp::Discard { offset: 0, len: 1 }, "write zeros"),
        (SegmentOp::Zero { offset: 0, len: 1 }, "write zeros"),
    ] {
        let failure = Failure::Io(IoError::System(Errno::EOPNOTSUPP));
        let told = RequestError::of(op, "a file", 0, failure).to_string();
        assert!(told.contains(word), "{told}");
        assert!(refused.cure_of(op.name()).is_some_and(|cure| told.contains(&cure)));
    }
    assert_eq!(refused.cure_of("read"), None);
}

/// The space of a device is that of what lies below it, and a device that is gone is not one that has been cut.
#[test]
fn a_device_that_is_full_and_one_that_is_gone_are_told_as_such() {
    let cure = |errno| RequestFault::Io(IoError::System(errno)).cure().unwrap();
    let full = cure(Errno::ENOSPC);
    let unwritten = CacheError::Unwritable(Errno::ENOSPC);
    assert!(unwritten.cure().contains("thin pool") && !unwritten.to_string().contains("repair"));
    assert!(
        full.contains("file system") && full.contains("thin pool") && full.contains("discard"),
        "{full}"
    );
    // A write to a device that is no longer there is told like that, too.
    assert!(full.contains("taken away") && unwritten.cure().contains("taken away"));
    for errno in [Errno::ENXIO, Errno::ENODEV] {
        assert!(cure(errno).contains("the device is gone"));
    }
    // Nor has a stream ever been one.
    let nowhere = RequestFault::Io(IoError::System(Errno::ENODEV));
    for operation in ["allocate", "discard", "zero"] {
        let cure = nowhere.cure_of(operation).unwrap();
        assert!(
            cure.contains("a stream has none") && cure.contains("block device, it is gone"),
            "{cure}"
        );
    }
    assert_eq!(nowhere.cure_of("read"), nowhere.cure());
}
