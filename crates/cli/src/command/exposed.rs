//! Who else may open a volume's file. Such a one needs no broker and no permission of a segment.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

/// That others may open it, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Exposed {
    pub(crate) found: String,
    pub(crate) cure: String,
}

/// May others than its owner open this file; or this device, others than its owner and its group? What cannot be looked at is nobody's.
pub(crate) fn exposed(path: &Path, typed: &str) -> Option<Exposed> {
    let metadata = std::fs::metadata(path).ok()?;
    let who = others(&metadata)?;
    let mode = metadata.mode() & 0o777;
    let is_device = metadata.file_type().is_block_device();
    let cure = match is_device {
        true => format!("`chmod o-rw {typed}` now, and a udev rule for later boots"),
        false => format!("`chmod 0600 {typed}`"),
    };
    Some(Exposed {
        found: format!("its mode is {mode:04o}: {who} may open it, whatever the permissions of its segments"),
        cure,
    })
}

/// Who they are.
fn others(metadata: &Metadata) -> Option<String> {
    let kind = metadata.file_type();
    let group = format!("gid {}", metadata.gid());
    let (group_may, all_may) = (metadata.mode() & 0o060 != 0, metadata.mode() & 0o006 != 0);
    match (kind.is_file(), kind.is_block_device()) {
        (true, _) if group_may && all_may => Some(format!("{group} and every user")),
        (true, _) if group_may => Some(group),
        (true, _) | (_, true) if all_may => Some("every user".to_owned()),
        _ => None,
    }
}

impl Exposed {
    /// In one line.
    pub(crate) fn line(&self) -> String {
        format!("{}; cure: {}", self.found, self.cure)
    }
}
