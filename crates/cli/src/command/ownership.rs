//! `baio chmod` and `baio chown`: who may do what with a segment, and whose it is.

use baio::{Identity, Link, OwnershipChange};
use baio_console::failure::Failure;
use baio_console::target::TypedTarget;

use crate::command::served::SegmentTarget;
use crate::command::shown::Segment;
use crate::command::volume_args::{ChmodArgs, ChownArgs};

/// Changes the mode, and shows the segment as it is then.
pub(crate) fn chmod(args: ChmodArgs) -> Result<Segment, Failure> {
    change("chmod", &args.target, OwnershipChange::of_mode(args.mode))
}

/// Changes the owner, the group or both, and shows the segment as it is then.
pub(crate) fn chown(args: ChownArgs) -> Result<Segment, Failure> {
    let becomes = OwnershipChange {
        owner_uid: args.to.owner_uid,
        owner_gid: args.to.owner_gid,
        mode: None,
    };
    change("chown", &args.target, becomes)
}

fn change(command: &'static str, target: &TypedTarget, change: OwnershipChange) -> Result<Segment, Failure> {
    let named = match SegmentTarget::resolve(command, target)? {
        SegmentTarget::Here(named) => named,
        SegmentTarget::Served(segment) => {
            let changed = segment.ask(command, |link| {
                link.change_ownership_of(segment.owner_uid(link), &segment.name, change)
                    .wait()
            })?;
            return Ok(Segment::served(changed));
        }
    };
    let who = Identity::effective();
    named.look_first(command, who)?;
    let changed = named.with_volume(command, |core| {
        core.change_ownership(who, named.owner_uid(who), &named.name, change)
    })?;
    Ok(changed.into())
}
