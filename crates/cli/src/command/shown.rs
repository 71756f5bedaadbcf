//! How volumes and segments are shown: the keys of DESIGN section 9, and tables.

use std::io::{self, Write};

use baio_storage::{SegmentInfo, VolumeInfo};
use serde::Serialize;

use crate::output::{Align, Answer, Table};
use crate::size::format_size;

/// A segment, as `list`, `stat`, `create` and `delete` show it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Segment {
    name: String,
    owner_uid: u32,
    size_bytes: u64,
    reserve_bytes: u64,
    start_block: u64,
    state: &'static str,
    /// Shown to people only: the keys of the object are fixed.
    #[serde(skip)]
    group: u32,
    #[serde(skip)]
    mode: u32,
}

impl From<SegmentInfo> for Segment {
    fn from(info: SegmentInfo) -> Segment {
        Segment {
            name: info.name,
            owner_uid: info.owner_uid,
            size_bytes: info.size_bytes,
            reserve_bytes: info.reserve_bytes,
            start_block: info.start_block,
            state: info.state,
            group: info.owner_gid,
            mode: info.mode,
        }
    }
}

/// A row for every segment.
pub(crate) fn segment_table(segments: &[Segment]) -> Table {
    let mut table = Table::with_headings(&[
        ("NAME", Align::Left),
        ("UID", Align::Right),
        ("GID", Align::Right),
        ("MODE", Align::Right),
        ("SIZE", Align::Right),
        ("RESERVE", Align::Right),
        ("START", Align::Right),
        ("STATE", Align::Left),
    ]);
    for segment in segments {
        table.row([
            segment.name.clone(),
            segment.owner_uid.to_string(),
            segment.group.to_string(),
            format!("{:04o}", segment.mode),
            format_size(segment.size_bytes),
            format_size(segment.reserve_bytes),
            segment.start_block.to_string(),
            segment.state.to_owned(),
        ]);
    }
    table
}

impl Answer for Segment {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        segment_table(std::slice::from_ref(self)).write(out)
    }
}

/// A volume, as `stat` and `format` show it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Volume {
    uuid: String,
    format_version: u32,
    block_size: u32,
    size_bytes: u64,
    free_bytes: u64,
    largest_free_bytes: u64,
    segments: u64,
    segments_max: u64,
    clean: bool,
    size_bytes_max: u64,
    warnings: Vec<String>,
}

impl From<VolumeInfo> for Volume {
    fn from(info: VolumeInfo) -> Volume {
        Volume {
            uuid: uuid_text(info.uuid),
            format_version: info.format_version,
            block_size: info.block_size,
            size_bytes: info.size_bytes,
            free_bytes: info.free_bytes,
            largest_free_bytes: info.largest_free_bytes,
            segments: info.segments,
            segments_max: info.segments_max,
            clean: info.clean,
            size_bytes_max: info.size_bytes_max,
            warnings: info.warnings,
        }
    }
}

impl Answer for Volume {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut table = Table::without_headings(&[Align::Left, Align::Left]);
        table.row(["uuid", &self.uuid]);
        table.row(["format version", &self.format_version.to_string()]);
        table.row(["block size", &format_size(self.block_size.into())]);
        table.row(["size", &format_size(self.size_bytes)]);
        if self.size_bytes_max > self.size_bytes {
            table.row(["can grow to", &format_size(self.size_bytes_max)]);
        }
        table.row(["free", &format_size(self.free_bytes)]);
        table.row(["largest free run", &format_size(self.largest_free_bytes)]);
        table.row(["segments", &format!("{} of {}", self.segments, self.segments_max)]);
        table.row([
            "closed cleanly",
            if self.clean {
                "yes"
            } else {
                "no: the next open heals it"
            },
        ]);
        for warning in &self.warnings {
            table.row(["warning", warning]);
        }
        table.write(out)
    }
}

/// `8-4-4-4-12` hexadecimal digits, as everybody writes a uuid.
fn uuid_text(uuid: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_everywhere() {
        let uuid = std::array::from_fn(|index| index as u8);
        assert_eq!(uuid_text(uuid), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
