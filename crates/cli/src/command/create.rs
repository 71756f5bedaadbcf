//! `baio create`: makes a segment.
//!
//! What can be refused is refused by looking only: opening a volume to write raises its epoch, and a create that
//! cannot be shall not change a byte. Whoever gets in between is caught by the volume itself.

use baio_console::failure::Failure;
use baio_console::named::NamedSegment;
use baio_storage::{Core, CreateOptions, Error, Fault, Identity, Zeroing};

use crate::command::shown::Segment;
use crate::command::volume_args::{CreateArgs, ZeroArg};

/// Creates, and shows the new segment.
pub(crate) fn run(args: CreateArgs) -> Result<Segment, Failure> {
    let named = NamedSegment::resolve("create", &args.target)?;
    let who = Identity::effective();
    let owner_uid = owner_uid(&named, args.owner, who)?;
    named.told("create", look_first(&named, owner_uid, who, &args))?;
    let options = CreateOptions {
        mode: args.mode,
        group: args.group,
        reserve_bytes: args.reserve.map_or(0, |size| size.bytes()),
        zero: match args.zero {
            ZeroArg::Written => Zeroing::Written,
            ZeroArg::Lazy => Zeroing::Lazy,
        },
        ..CreateOptions::of_size(args.size.bytes())
    };
    let created = named.with_volume("create", |core| core.create(who, owner_uid, &named.name, &options))?;
    Ok(created.into())
}

/// The owner may be named in the target or by `--owner`, but not as two.
fn owner_uid(named: &NamedSegment, option: Option<u32>, who: Identity) -> Result<u32, Failure> {
    match (named.owner, option) {
        (Some(typed), Some(option)) if typed != option => Err(Failure::usage(
            "create",
            format!("the target names the owner {typed}, and --owner names {option}"),
        )
        .on(named.typed.clone())
        .needing("one owner")
        .cured_by("leave out one of them")),
        (typed, option) => Ok(typed.or(option).unwrap_or(who.uid)),
    }
}

fn look_first(named: &NamedSegment, owner_uid: u32, who: Identity, args: &CreateArgs) -> baio_storage::Result<()> {
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
