//! The real program on a device that loses power: kernel, engine and all, over [`crate::nbd`].
//!
//! | file | what it has |
//! |---|---|
//! | [`mod@bench`] | a folder with the device in it, served and mounted |
//! | [`place`] | the device and the folder beside it, as a story sees them |
//! | [`running`] | a worker in a process of its own |
//! | [`rounds`] | somebody works, the power is cut, what is there is judged |
//! | [`stories`] | who works on what, and what must be there |
//! | [`worker`] | what every worker has |
//! | [`registers`] | what was said of bytes and pairs, and what may be there because of it |
//! | [`kept`] | devices that one kernel leaves, and another opens |
//! | [`real`] | stories on devices of the kernel: device-mapper, scsi_debug, null_blk, nbd, ublk |
//! | [`marks`] | marks in the record of dm-log-writes |
//! | [`read_errors`] | log and volume are opened while reads fail |

pub mod bench;
pub mod kept;
pub mod marks;
pub mod place;
pub mod read_errors;
pub mod real;
pub mod registers;
pub mod rounds;
pub mod running;
pub mod stories;
pub mod worker;
