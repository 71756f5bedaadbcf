//! An opened segment.

use std::fmt;
use std::ops::Deref;

use baio_storage::{Handle, Mode, SegmentInfo};

use crate::opened::Opened;
use crate::transport::Transport;

/// An open segment: a named part of a volume, with an owner, a mode and a size of its own. Its requests are those of [`Opened`]. They are
/// direct unless they say otherwise, so offset, length and memory must be multiples of 4 KiB; [`Opened::buffer`] gives such memory.
///
/// It stays valid until it is dropped or the segment is deleted. Renaming the segment or changing its rights does not affect it.
///
/// ```
/// use baio::{Access, CreateOptions, Durability, FormatOptions, Link, Remote};
/// # fn main() -> baio::Result<()> {
/// # let path = std::env::temp_dir().join(format!("baio-segment-doc-{}", std::process::id()));
/// baio::format(&path, &FormatOptions::of_size(16 << 20))?;
/// let volume = Remote::open(&path)?;
/// volume.create_segment("journal", &CreateOptions::of_size(1 << 20)).wait()?;
/// let segment = volume.open_segment("journal", Access::Write).wait()?;
/// let mut page = segment.buffer(4096)?;
/// page.fill(7);
/// let written = segment.write_at(8192, page).durable(Durability::Data).wait()?;
/// let read = segment.read_at(8192, written.buffer).wait()?;
/// assert_eq!(read.buffer[0], 7);
/// assert_eq!(segment.info().size_bytes, 1 << 20);
/// # volume.close()?;
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(()) }
/// ```
pub struct Segment<L: Transport> {
    opened: Opened<L>,
    info: SegmentInfo,
}

impl<L: Transport> Clone for Segment<L> {
    fn clone(&self) -> Segment<L> {
        Segment {
            opened: self.opened.clone(),
            info: self.info.clone(),
        }
    }
}

impl<L: Transport> fmt::Debug for Segment<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segment({}/{})", self.info.owner_uid, self.info.name)
    }
}

impl<L: Transport> Deref for Segment<L> {
    type Target = Opened<L>;

    fn deref(&self) -> &Opened<L> {
        &self.opened
    }
}

impl<L: Transport> Segment<L> {
    pub(crate) fn new(link: &L, handle: Handle, info: SegmentInfo) -> Segment<L> {
        let name = format!("{}#{}/{}", link.link_facts().name, info.owner_uid, info.name);
        Segment {
            opened: Opened::new(link, handle, name, Mode::Direct),
            info,
        }
    }

    /// What the segment was when it was opened.
    #[must_use]
    pub fn info(&self) -> &SegmentInfo {
        &self.info
    }

    /// The same segment, with another mode for requests that do not say one.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Segment<L> {
        self.opened.set_mode(mode);
        self
    }
}
