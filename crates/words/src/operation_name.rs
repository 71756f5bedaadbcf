//! What tells a repeated operation from a new one.

use crate::codec::record;

/// The name that a caller gives an operation, and whether the caller has asked for it before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationName {
    /// Its own id, random bytes for example; all zero for none.
    pub id: [u8; 16],
    /// It was asked for before and may have been done, so it is not done again. If the volume shows that it was done, it succeeds; else it fails
    /// with `EINDETERMINATE` ([`IoError::Indeterminate`](crate::IoError::Indeterminate)).
    pub is_repeat: bool,
}

impl OperationName {
    /// An operation that cannot be recognised.
    pub const NONE: OperationName = OperationName {
        id: [0; 16],
        is_repeat: false,
    };

    /// One that is asked for the first time.
    #[must_use]
    pub const fn first(id: [u8; 16]) -> OperationName {
        OperationName { id, is_repeat: false }
    }

    /// One that may have been done before.
    #[must_use]
    pub const fn again(id: [u8; 16]) -> OperationName {
        OperationName { id, is_repeat: true }
    }
}

record!(OperationName { id, is_repeat });
