//! `baio create`: makes a segment.
//!
//! What can be refused is refused by looking only: opening a volume to write raises its epoch, and a create that
//! cannot be shall not change a byte. Whoever gets in between is caught by the volume itself.

use std::path::Path;

use baio::{Core, CreateOptions, Error, Fault, Identity, Link, Zeroing};
use baio_console::failure::Failure;
use baio_console::named::{NamedSegment, Volume};
use baio_console::progress::Unit;

use crate::command::reach::{ask, tell_rounded};
use crate::command::shown::Segment;
use crate::command::volume_args::{CreateArgs, ZeroArg};

/// Creates, and shows the new segment.
pub(crate) fn run(args: CreateArgs) -> Result<Segment, Failure> {
    let mut segment = args.target.segment("create")?;
    segment.owner = one_owner(&segment, args.owner)?;
    if let Volume::Here(path) = &segment.volume {
        segment.told("create", look_first(path, &segment, &args))?;
    }
    let options = options(&args);
    let created = ask("create", (&segment.volume, &segment.typed), |reach| {
        let owner_uid = segment.owner_uid(reach.link.identity());
        let create = reach.link.create_segment_of(owner_uid, &segment.name, &options);
        reach.run(Unit::Bytes, create)
    })?;
    tell_rounded("create", &segment.typed, options.size_bytes, created.size_bytes);
    Ok(Segment::of(created, &segment.volume))
}

fn options(args: &CreateArgs) -> CreateOptions {
    CreateOptions {
        mode: args.mode,
        group: args.group,
        reserve_bytes: args.reserve.map_or(0, |size| size.bytes()),
        zero: match args.zero {
            ZeroArg::Written => Zeroing::Written,
            ZeroArg::Lazy => Zeroing::Lazy,
        },
        ..CreateOptions::of_size(args.size.bytes())
    }
}

/// The owner may be named in the target or by `--owner`, but not as two.
fn one_owner(segment: &NamedSegment, option: Option<u32>) -> Result<Option<u32>, Failure> {
    match (segment.owner, option) {
        (Some(typed), Some(option)) if typed != option => Err(Failure::usage(
            "create",
            format!("the target names the owner {typed}, and --owner names {option}"),
        )
        .on(segment.typed.clone())
        .needing("one owner")
        .cured_by("leave out one of them")),
        (typed, option) => Ok(typed.or(option)),
    }
}

fn look_first(volume: &Path, segment: &NamedSegment, args: &CreateArgs) -> baio::Result<()> {
    let who = Identity::effective();
    let owner_uid = segment.owner_uid(who);
    let size = args.size.bytes();
    let refused = |fault| Err(Error::new("create", segment.typed.clone(), fault));
    if !who.acts_for(owner_uid) {
        return refused(Fault::Access { uid: who.uid });
    }
    if let Some(gid) = args.group.filter(|gid| !who.may_give_to(*gid)) {
        return refused(Fault::Group { gid });
    }
    if size == 0 {
        return refused(Fault::BadSize("a segment has at least one byte".into()));
    }
    let asked = args.reserve.map_or(size, |reserve| reserve.bytes());
    if asked < size {
        return refused(Fault::BadSize(format!(
            "a reserve of {asked} bytes is less than the size of {size}"
        )));
    }
    match Core::inspect_segment(volume, who, owner_uid, &segment.name) {
        Ok(_) => return refused(Fault::Exists),
        Err(error) if matches!(error.fault, Fault::NotFound) => {}
        Err(error) => return Err(error),
    }
    let volume = Core::inspect_volume(volume)?;
    if volume.segments >= volume.segments_max {
        let segments_max = Some(volume.segments_max);
        return refused(Fault::TableFull { segments_max });
    }
    let blocks = asked.div_ceil(volume.block_size.into());
    let asked = blocks.saturating_mul(volume.block_size.into());
    if asked > volume.largest_free_bytes {
        return refused(Fault::NoSpace {
            asked,
            free: Some(volume.free_bytes),
            largest: Some(volume.largest_free_bytes),
        });
    }
    Ok(())
}
