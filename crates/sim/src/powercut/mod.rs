//! The real program on a device that loses power: kernel, engine and all, over [`crate::nbd`].
//!
//! | file | what it has |
//! |---|---|
//! | [`bench`] | a folder with the device in it, served and mounted |
//! | [`read_errors`] | log and volume are opened while reads fail |

pub mod bench;
pub mod read_errors;
