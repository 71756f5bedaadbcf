//! The command lines over the loop: each has what is typed, what it means, and how it is shown.

pub(crate) mod aio_stress;
pub(crate) mod stress;
