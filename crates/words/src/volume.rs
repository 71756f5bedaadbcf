//! A volume, as it is shown.

use crate::account::Account;
use crate::codec::{Field, Malformed, Reader, WARNINGS_MAX, Writer};
use crate::identity::Sight;

/// The process that has a volume open for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InUse {
    /// Its id, if the kernel says it, and the caller is root or the process is the caller's own.
    pub pid: Option<u32>,
}

/// A volume, as `stat` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Its identity.
    pub uuid: [u8; 16],
    /// Version of the format.
    pub format_version: u32,
    /// Unit of allocation in bytes.
    pub block_size: u32,
    /// Bytes of data that it can hold.
    pub size_bytes: u64,
    /// Bytes of data that it can hold when it has grown as far as it was formatted for.
    pub size_bytes_max: u64,
    /// Bytes of the file or device, metadata included: more than the volume takes if it has grown since.
    pub device_bytes: u64,
    /// Bytes that no segment holds.
    pub free_bytes: u64,
    /// Bytes of the longest run that no segment holds: the largest segment that can be made.
    pub largest_free_bytes: u64,
    /// Segments that exist.
    pub segments: u64,
    /// Segments that can exist.
    pub segments_max: u64,
    /// Was it closed properly? Not while it is in use.
    pub clean: bool,
    /// Who had it open to write when it was looked at from outside (`Core::inspect_beside`).
    pub in_use: Option<InUse>,
    /// Where block 0 of the data begins in the file or device, in bytes.
    pub data_at_bytes: u64,
    /// What whoever owns the volume should know: segments that are not served, inodes that cannot be decoded. A message carries the first
    /// [`WARNINGS_MAX`](crate::session::WARNINGS_MAX), each cut to [`TEXT_MAX`](crate::session::TEXT_MAX) bytes.
    pub warnings: Vec<String>,
}

/// A volume as one user may see it: figures that reveal nothing about other users, and the rest for users who may see all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeView {
    /// Version of the format.
    pub format_version: u32,
    /// Unit of allocation in bytes.
    pub block_size: u32,
    /// Bytes of data that it can hold.
    pub size_bytes: u64,
    /// Bytes of data that it can hold when it has grown as far as it was formatted for.
    pub size_bytes_max: u64,
    /// Was it closed properly? Not while it is in use.
    pub clean: bool,
    /// Who had it open to write when it was looked at from outside (`Core::inspect_beside`). A broker does not tell it.
    pub in_use: Option<InUse>,
    /// What the asking user holds and may hold.
    pub own: Account,
    /// All figures: only for uid 0 and the owner of the volume's file.
    pub whole: Option<VolumeInfo>,
}

impl VolumeInfo {
    /// As somebody sees it who holds that much.
    #[must_use]
    pub fn seen_with(self, sight: Sight, own: Account) -> VolumeView {
        VolumeView {
            format_version: self.format_version,
            block_size: self.block_size,
            size_bytes: self.size_bytes,
            size_bytes_max: self.size_bytes_max,
            clean: self.clean,
            in_use: self.in_use,
            own,
            whole: (sight == Sight::Whole).then_some(self),
        }
    }
}

/// What both have is said once.
impl Field for VolumeView {
    fn put(&self, writer: &mut Writer) {
        self.format_version.put(writer);
        self.block_size.put(writer);
        self.size_bytes.put(writer);
        self.size_bytes_max.put(writer);
        self.clean.put(writer);
        self.own.put(writer);
        self.whole.is_some().put(writer);
        let Some(whole) = &self.whole else { return };
        whole.uuid.put(writer);
        whole.device_bytes.put(writer);
        whole.data_at_bytes.put(writer);
        whole.free_bytes.put(writer);
        whole.largest_free_bytes.put(writer);
        whole.segments.put(writer);
        whole.segments_max.put(writer);
        let warnings = &whole.warnings[..whole.warnings.len().min(WARNINGS_MAX)];
        (warnings.len() as u32).put(writer);
        for warning in warnings {
            writer.text(warning);
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<VolumeView, Malformed> {
        let seen = VolumeView {
            format_version: Field::take(reader)?,
            block_size: Field::take(reader)?,
            size_bytes: Field::take(reader)?,
            size_bytes_max: Field::take(reader)?,
            clean: Field::take(reader)?,
            in_use: None,
            own: Field::take(reader)?,
            whole: None,
        };
        let whole = match bool::take(reader)? {
            true => Some(whole(&seen, reader)?),
            false => None,
        };
        Ok(VolumeView { whole, ..seen })
    }
}

fn whole(seen: &VolumeView, reader: &mut Reader<'_>) -> Result<VolumeInfo, Malformed> {
    Ok(VolumeInfo {
        format_version: seen.format_version,
        block_size: seen.block_size,
        size_bytes: seen.size_bytes,
        size_bytes_max: seen.size_bytes_max,
        clean: seen.clean,
        in_use: None,
        uuid: Field::take(reader)?,
        device_bytes: Field::take(reader)?,
        data_at_bytes: Field::take(reader)?,
        free_bytes: Field::take(reader)?,
        largest_free_bytes: Field::take(reader)?,
        segments: Field::take(reader)?,
        segments_max: Field::take(reader)?,
        warnings: {
            let count = reader.count(WARNINGS_MAX, "more than 8 warnings")?;
            let warnings: Result<_, _> = (0..count).map(|_| reader.text()).collect();
            warnings?
        },
    })
}
