//! Who asks, and what they may: words that a client says too.

pub(crate) use baio_words::{Access, Identity, Ownership, OwnershipChange, Sight};
