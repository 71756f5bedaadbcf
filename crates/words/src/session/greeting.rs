//! How a session begins: the client says what it wants, the broker what it gives.

use crate::codec::{Field, Malformed, NAME_MAX, Reader, Writer, malformed, record};

/// The first bytes of a Hello's body.
pub const MAGIC: [u8; 4] = *b"baio";
pub(super) const HELLO: u16 = 0x0001;
pub(super) const WELCOME: u16 = 0x0002;

/// The client's first message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The oldest version that it speaks.
    pub version_min: u16,
    /// The newest one.
    pub version_max: u16,
    /// What it would use, a bit each (`FEATURE_*`, `GOES_ON`). A broker ignores those that it does not know.
    pub features: u64,
    /// Requests that it wants under way at a time; 0 for as many as the broker gives.
    pub places: u32,
    /// Size of the arena that it wants in bytes; 0 for what the broker gives.
    pub arena_bytes: u64,
    /// The volume, by the name under which it is served; empty for the only one.
    pub volume: String,
}

/// The broker's answer, with which the memory comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version that both speak from here on.
    pub version: u16,
    /// Those of the client's features that this session has.
    pub features: u64,
    /// Requests that may be under way at a time.
    pub places: u32,
    /// Questions that may wait for an answer at a time.
    pub questions_max: u32,
    /// Who the broker takes the client for.
    pub uid: u32,
    /// Size of the memory in bytes.
    pub memory_bytes: u64,
    /// The client's requests.
    pub submissions: RingAt,
    /// Their ends.
    pub completions: RingAt,
    /// First byte of the arena in the memory.
    pub arena_at: u64,
    /// Its size in bytes.
    pub arena_bytes: u64,
    /// The volume's name, as it is served.
    pub volume: String,
    /// Is there a page cache?
    pub cached: bool,
    /// The volume's unit of allocation in bytes.
    pub block_size: u32,
}

/// Where a ring lies in the memory. A client checks all of it against the memory before it uses any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingAt {
    /// Offset of the consumer's counter, a word of 32 bits.
    pub head: u64,
    /// Offset of the producer's counter, a word of 32 bits.
    pub tail: u64,
    /// Offset of the flag of a consumer that sleeps, a word of 32 bits.
    pub sleeping: u64,
    /// Offset of the first entry, a multiple of 8.
    pub cells: u64,
    /// Entries, a power of two.
    pub entries: u32,
}

record!(RingAt {
    head,
    tail,
    sleeping,
    cells,
    entries
});

impl Hello {
    /// The message. A volume's name is cut to 255 bytes: none is served under a longer one.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(HELLO, 0);
        writer.raw(&MAGIC);
        self.version_min.put(&mut writer);
        self.version_max.put(&mut writer);
        self.features.put(&mut writer);
        self.places.put(&mut writer);
        self.arena_bytes.put(&mut writer);
        writer.cut(&self.volume, NAME_MAX);
        writer.into_bytes()
    }

    pub(super) fn take(reader: &mut Reader<'_>) -> Result<Hello, Malformed> {
        let at = reader.at();
        if reader.raw(MAGIC.len())? != MAGIC {
            return Err(malformed(at, "another magic than `baio`"));
        }
        Ok(Hello {
            version_min: Field::take(reader)?,
            version_max: Field::take(reader)?,
            features: Field::take(reader)?,
            places: Field::take(reader)?,
            arena_bytes: Field::take(reader)?,
            volume: Field::take(reader)?,
        })
    }
}

impl Welcome {
    /// The message. The volume's name is cut to 255 bytes: a broker serves none under a longer one.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(WELCOME, 0);
        let to = &mut writer;
        self.version.put(to);
        self.features.put(to);
        self.places.put(to);
        self.questions_max.put(to);
        self.uid.put(to);
        self.memory_bytes.put(to);
        self.submissions.put(to);
        self.completions.put(to);
        self.arena_at.put(to);
        self.arena_bytes.put(to);
        to.cut(&self.volume, NAME_MAX);
        self.cached.put(to);
        self.block_size.put(to);
        writer.into_bytes()
    }

    pub(super) fn take(reader: &mut Reader<'_>) -> Result<Welcome, Malformed> {
        Ok(Welcome {
            version: Field::take(reader)?,
            features: Field::take(reader)?,
            places: Field::take(reader)?,
            questions_max: Field::take(reader)?,
            uid: Field::take(reader)?,
            memory_bytes: Field::take(reader)?,
            submissions: Field::take(reader)?,
            completions: Field::take(reader)?,
            arena_at: Field::take(reader)?,
            arena_bytes: Field::take(reader)?,
            volume: Field::take(reader)?,
            cached: Field::take(reader)?,
            block_size: Field::take(reader)?,
        })
    }
}
