//! Errors: each function gives a negative number, and the thread keeps the text of the last one, with need and cure
//! (docs/inside/decisions/0031-errors-in-c.md).

use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_char, c_int};

use baio::{Errno, Error};

/// Why a call failed.
pub(crate) struct Failure {
    /// The error number, positive.
    errno: c_int,
    /// The word that stands for it.
    name: String,
    /// One line: operation, object, offset, what the system said, need, cure.
    text: String,
    cure: Option<String>,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// One that is known here and not by the library below: the call was wrong.
    pub(crate) fn new(errno: Errno, text: impl Into<String>, cure: &str) -> Failure {
        let text = format!("{}; {cure}", text.into());
        Failure {
            errno: errno.raw(),
            name: errno.name().into(),
            text,
            cure: Some(cure.into()),
        }
    }

    pub(crate) fn code(&self) -> c_int {
        -self.errno
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure {
            errno: error.errno().unwrap_or(Errno::EIO).raw(),
            name: error.code().into(),
            text: error.to_string(),
            cure: error.cure(),
        }
    }
}

/// A text as C has it: it ends at its first zero byte.
pub(crate) fn c_text(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

#[derive(Default)]
struct Last {
    text: CString,
    name: CString,
    cure: CString,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
    /// The same once that one has gone with its thread: a handler of atexit(3) may call still. It stays to the end, and its texts are never freed.
    static LATE: Cell<Option<&'static Last>> = const { Cell::new(None) };
}

/// Keeps it as the thread's last, and gives its code.
pub(crate) fn keep(failure: &Failure) -> c_int {
    let mut last = Some(Last {
        text: c_text(&failure.text),
        name: c_text(&failure.name),
        cure: c_text(failure.cure.as_deref().unwrap_or("")),
    });
    let kept = LAST.try_with(|kept| kept.replace(last.take().unwrap_or_default()));
    if kept.is_err() {
        LATE.set(last.map(|last| &*Box::leak(Box::new(last))));
    }
    failure.code()
}

/// Which text of the last failure.
pub(crate) enum Text {
    Message,
    Name,
    Cure,
}

/// It stays at its place until the thread's next failure.
pub(crate) fn last(which: &Text) -> *const c_char {
    let text = |kept: &Last| match which {
        Text::Message => kept.text.as_ptr(),
        Text::Name => kept.name.as_ptr(),
        Text::Cure => kept.cure.as_ptr(),
    };
    let found = LAST.try_with(|kept| text(&kept.borrow()));
    found.unwrap_or_else(|_| LATE.get().map_or(c"".as_ptr(), text))
}
