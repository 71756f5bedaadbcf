//! What is asked besides requests, and what waits in the exchange, in the words of the volume.
//!
//! Within one process commands travel as values through the exchange, announced by a control entry in the ring. Between
//! processes they will be messages on the socket, where names and identities can be checked at leisure.

use baio_engine::{Memory, Stats};
use baio_storage::{Access, CreateOptions, Handle, ResizeOptions, Result, SegmentInfo, VolumeView};

/// What is asked.
#[derive(Debug)]
pub enum Command {
    /// Make a segment.
    Create {
        /// Whose.
        owner_uid: u32,
        /// Its name.
        name: String,
        /// What it is to be like.
        options: CreateOptions,
    },
    /// Delete a segment.
    Delete {
        /// Whose.
        owner_uid: u32,
        /// Its name.
        name: String,
    },
    /// Give a segment another size.
    Resize {
        /// Whose.
        owner_uid: u32,
        /// Its name.
        name: String,
        /// What it is to be like.
        options: ResizeOptions,
    },
    /// Give a segment another name.
    Rename {
        /// Whose.
        owner_uid: u32,
        /// Its name.
        old: String,
        /// Its new name.
        new: String,
    },
    /// Open a segment.
    Open {
        /// Whose.
        owner_uid: u32,
        /// Its name.
        name: String,
        /// To do what.
        access: Access,
    },
    /// The segments that the client may see.
    List,
    /// The volume as it is now.
    Info,
    /// The engine's counters and name.
    Counters,
    /// Bytes behind a handle.
    Size(Handle),
    /// End what is under way, close the volume, end.
    Close,
}

/// What is answered.
#[derive(Debug)]
pub enum Reply {
    /// A segment as it is now.
    Segment(SegmentInfo),
    /// A handle on it.
    Opened(Handle, SegmentInfo),
    /// The segments.
    Segments(Vec<SegmentInfo>),
    /// The volume.
    Volume(VolumeView),
    /// The engine's counters, and the backend's name.
    Counters(Stats, &'static str),
    /// Bytes.
    Size(u64),
    /// It is done.
    Done,
}

/// What waits in the exchange.
pub type Parcel = baio_ring::exchange::Parcel<Memory, Command, Result<Reply>>;
