//! `baio format`: makes a volume of a file or a device.

use std::path::Path;

use baio_console::failure::Failure;
use baio_storage::{Core, Format};

use crate::command::shown::Volume;
use crate::command::volume_args::FormatArgs;

/// Formats, and shows the new volume.
pub(crate) fn run(args: FormatArgs) -> Result<Volume, Failure> {
    let path = args.path.path("format")?;
    let options = options(&args, &path)?;
    let formatted = Core::format(&path, &options);
    let info = formatted.map_err(|error| Failure::from_storage("format", args.path.to_string(), &error))?;
    Ok(info.into())
}

fn options(args: &FormatArgs, path: &Path) -> Result<Format, Failure> {
    let typed = args.path.to_string();
    if args.size.is_none() && !path.exists() {
        return Err(Failure::usage("format", "there is no such file")
            .on(typed)
            .needing("a size, to make the file")
            .cured_by("pass --size, or check the path"));
    }
    let block_size = u32::try_from(args.block_size.bytes()).map_err(|_| {
        Failure::usage("format", "the block size is too large")
            .on(typed)
            .needing("--block-size below 4G")
            .cured_by("leave it out: 4K fits nearly everything")
    })?;
    Ok(Format {
        size_bytes: args.size.map(|size| size.bytes()),
        max_size_bytes: args.max_size.map(|size| size.bytes()),
        block_size,
        segments: args.segments,
        force: args.force,
    })
}
