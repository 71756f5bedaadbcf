//! `baio format`: makes a volume of a file or a device.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use baio::{Core, FormatOptions};
use baio_console::failure::Failure;
use baio_console::size::format_size;

use crate::command::exposed::exposed;
use crate::command::shown::Volume;
use crate::command::volume_args::FormatArgs;

/// Formats, and shows the new volume.
pub(crate) fn run(args: FormatArgs) -> Result<Volume, Failure> {
    let path = args.path.path("format")?;
    let options = options(&args, &path)?;
    let formatted = Core::format(&path, &options);
    let info = formatted.map_err(|error| Failure::from_storage("format", args.path.to_string(), &error))?;
    let mut volume = Volume::from(info);
    volume.warn(exposed(&path, &args.path.to_string()).map(|exposed| exposed.line()));
    volume.warn(more_than_is_free(&path));
    Ok(volume)
}

/// A file without its blocks is made in no time, and meant so where the host is to grow later. Elsewhere the creates fail one day.
fn more_than_is_free(path: &Path) -> Option<String> {
    let file = std::fs::metadata(path).ok().filter(Metadata::is_file)?;
    let host = rustix::fs::statvfs(path).ok()?;
    let (free, has) = (
        host.f_bavail.saturating_mul(host.f_frsize),
        file.blocks().saturating_mul(512),
    );
    let missing = file
        .len()
        .saturating_sub(has)
        .checked_sub(free)
        .filter(|missing| *missing > 0)?;
    Some(format!(
        "its file system has {} free, {} less than the volume may come to need: segments are refused when it is full",
        format_size(free),
        format_size(missing)
    ))
}

fn options(args: &FormatArgs, path: &Path) -> Result<FormatOptions, Failure> {
    let typed = args.path.to_string();
    // What cannot be looked at (EACCES, ENOTDIR) is not missing: the opening says why.
    let is_missing = std::fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    if args.size.is_none() && is_missing {
        return Err(Failure::usage("format", "there is no such file")
            .on(typed)
            .needing("a size, to make the file")
            .cured_by("pass --size, or check the path"));
    }
    let is_no_file = std::fs::metadata(path).is_ok_and(|there| !there.is_file());
    if args.mode.is_some() && is_no_file {
        return Err(Failure::usage("format", "--mode is for a file")
            .on(typed)
            .needing("a file: the permissions of a device are the system's (udev)")
            .cured_by("leave --mode out"));
    }
    let block_size = u32::try_from(args.block_size.bytes()).map_err(|_| {
        Failure::usage("format", "the block size is too large")
            .on(typed)
            .needing("--block-size below 4G")
            .cured_by("leave it out: 4K suits nearly everything")
    })?;
    Ok(FormatOptions {
        size_bytes: args.size.map(|size| size.bytes()),
        max_size_bytes: args.max_size.map(|size| size.bytes()),
        block_size,
        segments: args.segments,
        force: args.force,
        mode: args.mode,
    })
}
