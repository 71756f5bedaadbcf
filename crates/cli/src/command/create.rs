//! `baio create`: makes a segment.
//!
//! What can be refused is refused by looking only: opening a volume to write raises its epoch, and a create that
//! cannot be shall not change a byte. Whoever gets in between is caught by the volume itself.

use baio::{Core, CreateOptions, Error, Fault, Identity, Link, Zeroing};
use baio_console::failure::Failure;
use baio_console::named::NamedSegment;

use crate::command::making;
use crate::command::served::SegmentTarget;
use crate::command::shown::Segment;
use crate::command::volume_args::{CreateArgs, ZeroArg};

/// Creates, and shows the new segment.
pub(crate) fn run(args: CreateArgs) -> Result<Segment, Failure> {
    let options = options(&args);
    let named = match SegmentTarget::resolve("create", &args.target)? {
        SegmentTarget::Here(named) => named,
        SegmentTarget::Served(segment) => {
            let owner = one_owner(segment.typed(), segment.owner(), args.owner)?;
            let created = segment.ask("create", |link| {
                let owner_uid = owner.unwrap_or(link.identity().uid);
                link.create_segment_of(owner_uid, &segment.name, &options).wait()
            })?;
            making::tell_rounded("create", segment.typed(), options.size_bytes, &created);
            return Ok(Segment::served(created));
        }
    };
    let who = Identity::effective();
    let owner_uid = one_owner(&named.typed, named.owner, args.owner)?.unwrap_or(who.uid);
    named.told("create", look_first(&named, owner_uid, who, &args))?;
    let created = named.with_volume("create", |core| {
        let begun = core.begin_create(who, owner_uid, &named.name, &options)?;
        making::ended(core, begun, &format!("create {}", named.typed))
    })?;
    making::tell_rounded("create", &named.typed, options.size_bytes, &created);
    Ok(created.into())
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
fn one_owner(target: &str, typed: Option<u32>, option: Option<u32>) -> Result<Option<u32>, Failure> {
    match (typed, option) {
        (Some(typed), Some(option)) if typed != option => Err(Failure::usage(
            "create",
            format!("the target names the owner {typed}, and --owner names {option}"),
        )
        .on(target)
        .needing("one owner")
        .cured_by("leave out one of them")),
        (typed, option) => Ok(typed.or(option)),
    }
}

fn look_first(named: &NamedSegment, owner_uid: u32, who: Identity, args: &CreateArgs) -> baio::Result<()> {
    let size = args.size.bytes();
    let refused = |fault| Err(Error::new("create", named.typed.clone(), fault));
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
    match Core::inspect_segment(&named.volume, who, owner_uid, &named.name) {
        Ok(_) => return refused(Fault::Exists),
        Err(error) if matches!(error.fault, Fault::NotFound) => {}
        Err(error) => return Err(error),
    }
    let volume = Core::inspect_volume(&named.volume)?;
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
