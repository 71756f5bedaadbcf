//! The volume format, without any I/O: what every metadata byte means and which copy of it to believe.
//!
//! A volume is a device or file that many owners share, each with its own *segments*: named, contiguous runs of blocks
//! (the BAIO paper, section 5, is the origin: superblock, free bitmap with a hint, inodes hashed by name). Everything in
//! this folder is a pure function from bytes to values and back, or a small state machine that says which bytes it wants
//! next. Callers bring the I/O, the clock and the randomness; so the volume, the offline checker, the simulator and a
//! fuzzer all run exactly this code.
//!
//! | file | what it knows |
//! |---|---|
//! | [`page`] | a 4 KiB metadata page and its checksum |
//! | [`name`] | which names a segment may have, and how a name becomes a hash |
//! | [`layout`] | where everything lies on the device |
//! | [`superblock`] | the four copies and which of them is current |
//! | [`inode`] | the 1008 bytes that describe one segment |
//! | [`bucket`] | four images of four inodes; which one is served, which are healed |
//! | [`probe`] | looking up a name, one bucket at a time |
//! | [`salvage`] | what an inode that cannot be decoded still says about its blocks |
//! | [`tombstones`] | when a slot that is given up may be free again |
//! | [`free_set`] | which blocks are free, in memory |
//!
//! Three promises hold throughout. Bytes from a device never cause a panic: they become a value or a typed error. A value
//! that was decoded is safe to calculate with: offsets were checked once, against the whole geometry. And encoding is
//! canonical: equal values give equal bytes, so copies are compared as bytes.
//!
//! `docs/inside/disk-format.md` is the same format for readers who want to write another implementation.

pub mod bucket;
pub mod free_set;
pub mod inode;
pub mod layout;
pub mod name;
pub mod page;
pub mod probe;
pub mod salvage;
pub mod superblock;
pub mod tombstones;
