//! How a log begins: it is opened, made, either of both, or only looked at.

use std::collections::VecDeque;
use std::sync::Arc;

use baio_engine::{Arena, Time};

use super::flights::Flights;
use super::format::Head;
use super::front::Front;
use super::headers::Headers;
use super::index::Index;
use super::read::Reads;
use super::recent::Recent;
use super::shared::Shared;
use super::{LogError, LogOptions, LogPart, PartCounts, Recovered, Salt};
use crate::slot_map::SlotMap;

/// What a new log is given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Maker {
    pub(super) uuid: [u8; 16],
    pub(super) salt: Salt,
}

/// How a log begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStart {
    /// The one that is there is recovered.
    Open,
    /// A new one is made; what is there is lost.
    Create,
    /// The one that is there, or a new one where none was ever made.
    OpenOrCreate,
}

impl LogStart {
    /// What is being done, for messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LogStart::Open => "open the log in",
            LogStart::Create => "create the log in",
            LogStart::OpenOrCreate => "open or create the log in",
        }
    }
}

impl LogPart {
    /// A new log in an area of so many bytes, in which nothing is kept. It is made by the I/Os of `next_io`, and the request
    /// `LogRequest::Open` ends when it is. The salt is random, and nobody's but this log's.
    ///
    /// # Errors
    /// `BadOptions`, `BadSize` with what is needed, `NoMemory`.
    pub fn create(
        arena: &Arc<Arena>,
        size_bytes: u64,
        uuid: [u8; 16],
        salt: Salt,
        options: &LogOptions,
    ) -> Result<LogPart, LogError> {
        let mut part = LogPart::of(arena, size_bytes, options);
        let first = part.first_step(Maker { uuid, salt })?;
        part.run_opening(first);
        Ok(part)
    }

    /// A log that begins like this, in an area of so many bytes. The bytes are random, and are a new one's uuid and salt.
    ///
    /// # Errors
    /// As [`LogPart::create`].
    pub fn begin_as(
        arena: &Arc<Arena>,
        start: LogStart,
        size_bytes: u64,
        (uuid, salt): ([u8; 16], Salt),
        options: &LogOptions,
    ) -> Result<LogPart, LogError> {
        match start {
            LogStart::Open => LogPart::open(arena, size_bytes, options),
            LogStart::Create => LogPart::create(arena, size_bytes, uuid, salt, options),
            LogStart::OpenOrCreate => LogPart::open_or_create(arena, size_bytes, uuid, salt, options),
        }
    }

    /// The log that is in an area of so many bytes. It is recovered by the I/Os of `next_io`, and the request
    /// `LogRequest::Open` ends when it is, or could not be.
    ///
    /// # Errors
    /// `BadOptions`; `NoMemory`.
    pub fn open(arena: &Arc<Arena>, size_bytes: u64, options: &LogOptions) -> Result<LogPart, LogError> {
        options.check()?;
        let mut part = LogPart::of(arena, size_bytes, options);
        part.open_by();
        Ok(part)
    }

    /// The log that is in an area of so many bytes; where none was ever made it is made, as [`LogPart::create`] makes one. None was
    /// made where there are zeroes and nothing else, or where a making was cut off. Anything else is not written over.
    ///
    /// # Errors
    /// As [`LogPart::open`]. That the area is too small for a new log is told by the request.
    pub fn open_or_create(
        arena: &Arc<Arena>,
        size_bytes: u64,
        uuid: [u8; 16],
        salt: Salt,
        options: &LogOptions,
    ) -> Result<LogPart, LogError> {
        let mut part = LogPart::open(arena, size_bytes, options)?;
        part.maker = Some(Maker { uuid, salt });
        Ok(part)
    }

    /// The log that is in an area of so many bytes, to be read only: nothing is written, no epoch raised, nothing appended.
    /// `LogRequest::Open` tells what an opening would find. Beside another who writes it, what is read may be gone already.
    ///
    /// # Errors
    /// As [`LogPart::open`].
    pub fn look(arena: &Arc<Arena>, size_bytes: u64, options: &LogOptions) -> Result<LogPart, LogError> {
        let mut part = LogPart::open(arena, size_bytes, options)?;
        part.only_looks = true;
        Ok(part)
    }

    /// Whoever carries out its I/Os can write blocks that are smaller than [`LogOptions::block_bytes`], which an older log may have.
    pub fn take_smaller_blocks(&mut self) {
        self.takes_smaller = true;
    }

    /// One of its I/Os went through the kernel's page cache, and so may all others: what is read there may be on no device, if its write-back
    /// has failed.
    pub fn goes_through_a_cache(&mut self) {
        self.is_cached = true;
    }

    /// The blocks of the log that it has found, or is making.
    #[must_use]
    pub fn block_bytes(&self) -> Option<u32> {
        self.header.map(|header| header.block_bytes)
    }

    fn of(arena: &Arc<Arena>, size_bytes: u64, options: &LogOptions) -> LogPart {
        LogPart {
            shared: Arc::new(Shared::new(Front::new(arena), Recent::new(options.recent_bytes))),
            arena: Arc::clone(arena),
            options: *options,
            size_bytes,
            headers: Headers::default(),
            header: None,
            ios: SlotMap::default(),
            outgoing: VecDeque::new(),
            flights: Flights::default(),
            jobs: VecDeque::new(),
            running: None,
            reads: Reads::default(),
            index: Index::default(),
            recovered: Recovered::default(),
            head: Head::default(),
            truncated_for: 0,
            block_buffer: None,
            only_looks: false,
            takes_smaller: false,
            is_cached: false,
            maker: None,
            gather_since: None,
            now: Time(0),
            next_request: 0,
            done: VecDeque::new(),
            counts: PartCounts::default(),
        }
    }
}
