//! How volumes and segments are shown: their keys in JSON, and tables.

use std::fmt;
use std::io::{self, Write};

use baio::{Account, InUse, NO_GROUP, SegmentInfo, Sight, VolumeInfo, VolumeView};
use baio_console::named;
use baio_console::output::{Align, Answer, Table};
use baio_console::size::format_size;
use serde::Serialize;

/// A segment, as `list`, `stat`, `create` and `delete` show it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Segment {
    name: String,
    owner_uid: u32,
    pub(crate) size_bytes: u64,
    reserve_bytes: u64,
    /// Null behind a broker: where others have their blocks is nobody's affair.
    start_block: Option<u64>,
    /// `live`, `moving` or `quarantined`; `deleted` of one that has just gone.
    state: &'static str,
    /// Null of one that belongs to no group.
    owner_gid: Option<u32>,
    /// In octal, as `create --mode` takes it: JSON has no octal numbers.
    #[serde(serialize_with = "in_octal")]
    mode: u32,
}

fn in_octal<S: serde::Serializer>(mode: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{mode:04o}"))
}

impl Segment {
    /// Of this volume.
    pub(crate) fn of(info: SegmentInfo, volume: &named::Volume) -> Segment {
        Segment {
            name: info.name,
            owner_uid: info.owner_uid,
            size_bytes: info.size_bytes,
            reserve_bytes: info.reserve_bytes,
            start_block: Some(info.start_block).filter(|_| !volume.is_served()),
            state: info.state,
            owner_gid: Some(info.owner_gid).filter(|gid| *gid != NO_GROUP),
            mode: info.mode,
        }
    }

    /// As it was, and is no more.
    pub(crate) fn deleted(self) -> Segment {
        Segment {
            state: "deleted",
            ..self
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
            or_dash(segment.owner_gid.map(|gid| gid.to_string())),
            format!("{:04o}", segment.mode),
            format_size(segment.size_bytes),
            format_size(segment.reserve_bytes),
            or_dash(segment.start_block.map(|block| block.to_string())),
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

/// A volume, as `stat` and `format` show it. What is not for the one who asks is null.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Volume {
    uuid: Option<String>,
    format_version: u32,
    block_size: u32,
    size_bytes: u64,
    free_bytes: Option<u64>,
    largest_free_bytes: Option<u64>,
    segments: Option<u64>,
    segments_max: Option<u64>,
    clean: bool,
    size_bytes_max: u64,
    warnings: Option<Vec<String>>,
    /// There only while somebody has it open to write.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_use: Option<User>,
    /// Bytes in front of the data: what a file has more than its volume can hold.
    #[serde(skip)]
    table_bytes: Option<u64>,
    /// It was a broker that was asked.
    #[serde(skip)]
    is_served: bool,
    /// What the one who asks holds, shown to people where the volume's figures are not: `quota` has it for programs.
    #[serde(skip)]
    own: Option<Account>,
}

/// Who has a volume open to write.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct User {
    /// Null where the kernel does not tell, or it is another user's process.
    pid: Option<u32>,
}

impl From<InUse> for User {
    fn from(InUse { pid }: InUse) -> User {
        User { pid }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "process {pid}"),
            None => f.write_str("another process"),
        }
    }
}

impl From<VolumeInfo> for Volume {
    /// To whoever has just made it.
    fn from(info: VolumeInfo) -> Volume {
        info.seen_with(Sight::Whole, Account::default()).into()
    }
}

impl From<VolumeView> for Volume {
    fn from(view: VolumeView) -> Volume {
        let whole = view.whole.as_ref();
        Volume {
            uuid: whole.map(|info| uuid_text(info.uuid)),
            format_version: view.format_version,
            block_size: view.block_size,
            size_bytes: view.size_bytes,
            free_bytes: whole.map(|info| info.free_bytes),
            largest_free_bytes: whole.map(|info| info.largest_free_bytes),
            segments: whole.map(|info| info.segments),
            segments_max: whole.map(|info| info.segments_max),
            clean: view.clean,
            size_bytes_max: view.size_bytes_max,
            warnings: whole.map(|info| info.warnings.clone()),
            in_use: view.in_use.map(User::from),
            table_bytes: whole.map(|info| info.data_at_bytes),
            is_served: false,
            own: whole.is_none().then_some(view.own),
        }
    }
}

impl Volume {
    /// One more thing that its owner should know.
    pub(crate) fn warn(&mut self, warning: Option<String>) {
        self.warnings.get_or_insert_default().extend(warning);
    }

    /// As its broker tells of it.
    pub(crate) fn served(view: VolumeView) -> Volume {
        Volume {
            is_served: true,
            ..Volume::from(view)
        }
    }
}

/// A dash for what is not for the one who asks.
fn or_dash(shown: Option<String>) -> String {
    shown.unwrap_or_else(|| "-".to_owned())
}

impl Answer for Volume {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut table = Table::without_headings(&[Align::Left, Align::Left]);
        table.row(["uuid", &or_dash(self.uuid.clone())]);
        table.row(["format version", &self.format_version.to_string()]);
        table.row(["block size", &format_size(self.block_size.into())]);
        table.row(["size", &format_size(self.size_bytes)]);
        if self.size_bytes_max > self.size_bytes {
            table.row(["can grow to", &format_size(self.size_bytes_max)]);
        }
        if let Some(bytes) = self.table_bytes {
            table.row(["its own tables", &format!("{} beside that", format_size(bytes))]);
        }
        table.row(["free", &or_dash(self.free_bytes.map(format_size))]);
        table.row(["largest free run", &or_dash(self.largest_free_bytes.map(format_size))]);
        let segments = self.segments.zip(self.segments_max);
        table.row([
            "segments",
            &or_dash(segments.map(|(there, max)| format!("{there} of {max}"))),
        ]);
        if let Some(Account { used, limits }) = self.own {
            let bytes = |blocks: u64| format_size(blocks.saturating_mul(self.block_size.into()));
            let limit = |limit: Option<String>| limit.map_or_else(String::new, |limit| format!(" of {limit}"));
            table.row([
                "yours",
                &format!("{}{}", bytes(used.blocks), limit(limits.blocks.map(bytes))),
            ]);
            let most = limit(limits.segments.map(|most| most.to_string()));
            table.row(["your segments", &format!("{}{most}", used.segments)]);
        }
        if let Some(user) = self.in_use {
            table.row(["in use", &format!("by {user}")]);
        }
        table.row([
            "closed cleanly",
            match (self.clean, self.in_use) {
                (true, _) => "yes",
                (false, Some(_)) => "not while it is in use",
                (false, None) if self.is_served => "not while it is served",
                (false, None) => "no: the next open heals it",
            },
        ]);
        for warning in self.warnings.iter().flatten() {
            table.row(["warning", warning]);
        }
        table.write(out)
    }
}

/// What commands show that work on either: the object's keys tell which of the two it is.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Shown {
    /// Of `PATH`
    Volume(Volume),
    /// Of `PATH#NAME`
    Segment(Segment),
}

impl Answer for Shown {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Shown::Volume(volume) => volume.write_text(out),
            Shown::Segment(segment) => segment.write_text(out),
        }
    }
}

/// The same as a look found it, which may have been at a volume in use.
#[derive(Serialize)]
pub(crate) struct Looked {
    #[serde(flatten)]
    shown: Shown,
    /// There only if so.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    torn: bool,
}

impl Looked {
    pub(crate) fn new(shown: Shown, torn: bool) -> Looked {
        Looked { shown, torn }
    }
}

impl Answer for Looked {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        self.shown.write_text(out)?;
        tell_torn(self.torn, out)
    }
}

/// Says so where what is shown may be of several moments.
pub(crate) fn tell_torn(torn: bool, out: &mut dyn Write) -> io::Result<()> {
    match torn {
        true => writeln!(out, "possibly torn: it was changing while it was read"),
        false => Ok(()),
    }
}

/// `8-4-4-4-12` hexadecimal digits, as everybody writes a uuid.
pub(crate) fn uuid_text(uuid: [u8; 16]) -> String {
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

    /// All keys are there, whoever asks.
    #[test]
    fn what_is_not_for_the_one_who_asks_is_null() {
        let view = VolumeView {
            format_version: 1,
            block_size: 4096,
            size_bytes: 1 << 20,
            size_bytes_max: 1 << 20,
            clean: true,
            in_use: None,
            own: Account::default(),
            whole: None,
        };
        let volume = Volume::from(view);
        let json = serde_json::to_value(&volume).unwrap();
        let nulls = json.as_object().unwrap().iter().filter(|(_, value)| value.is_null());
        let nulls: Vec<&str> = nulls.map(|(key, _)| key.as_str()).collect();
        let mut hidden = [
            "uuid",
            "free_bytes",
            "largest_free_bytes",
            "segments",
            "segments_max",
            "warnings",
        ];
        hidden.sort_unstable();
        assert_eq!(nulls, hidden);
        assert_eq!(json.as_object().unwrap().len(), 11);
        let mut text = Vec::new();
        volume.write_text(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().filter(|line| line.ends_with(" -")).count(), 4, "{text}");
    }

    #[test]
    fn what_may_be_torn_says_so_and_else_nothing_of_it() {
        let segment = || Segment {
            name: "a".into(),
            owner_uid: 0,
            size_bytes: 4096,
            reserve_bytes: 4096,
            start_block: Some(0),
            state: "live",
            owner_gid: Some(0),
            mode: 0o600,
        };
        for torn in [true, false] {
            let looked = Looked::new(Shown::Segment(segment()), torn);
            let mut text = Vec::new();
            looked.write_text(&mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            let says = text.ends_with("\npossibly torn: it was changing while it was read\n");
            assert_eq!(says, torn, "{text}");
            let json = serde_json::to_value(&looked).unwrap();
            assert_eq!(json.get("torn"), torn.then_some(&true.into()));
            assert_eq!(json["name"], "a");
        }
    }

    #[test]
    fn a_uuid_is_written_as_everywhere() {
        let uuid = std::array::from_fn(|index| index as u8);
        assert_eq!(uuid_text(uuid), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
