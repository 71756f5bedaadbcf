//! What is wrong with whatever is asked of a core, wherever it is found.

use crate::error::{Error, Fault};

pub(super) fn stale(operation: &'static str) -> Error {
    Error::new(operation, "a closed handle", Fault::Stale)
}

pub(super) fn no_volume(operation: &'static str) -> Error {
    Error::new(
        operation,
        "this core",
        Fault::NotVolume("it was started without a volume".into()),
    )
}
