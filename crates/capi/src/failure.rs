//! Errors: each function gives a negative number, and the thread keeps the text of the last one, with need and cure
//! (docs/inside/decisions/0031-errors-in-c.md).

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};

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
}

/// Keeps it as the thread's last, and gives its code.
pub(crate) fn keep(failure: &Failure) -> c_int {
    let last = Last {
        text: c_text(&failure.text),
        name: c_text(&failure.name),
        cure: c_text(failure.cure.as_deref().unwrap_or("")),
    };
    // Fails only when the thread has ended ([`GONE`]).
    let _ = LAST.try_with(|kept| kept.replace(last));
    failure.code()
}

/// What a handler of atexit(3) reads, once the texts of the main thread have gone.
const GONE: &CStr = c"the thread has ended, and its links of kind BAIO_LINK_THREAD with it; close them before";

/// Which text of the last failure.
pub(crate) enum Text {
    Message,
    Name,
    Cure,
}

/// It stays at its place until the thread's next failure.
pub(crate) fn last(which: &Text) -> *const c_char {
    let found = LAST.try_with(|kept| {
        let kept = kept.borrow();
        match which {
            Text::Message => kept.text.as_ptr(),
            Text::Name => kept.name.as_ptr(),
            Text::Cure => kept.cure.as_ptr(),
        }
    });
    found.unwrap_or(match which {
        Text::Message => GONE.as_ptr(),
        Text::Name | Text::Cure => c"".as_ptr(),
    })
}
