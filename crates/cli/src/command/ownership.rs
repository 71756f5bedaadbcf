//! `baio chmod` and `baio chown`: who may do what with a segment, and whose it is.

use baio::{Link, OwnershipChange};
use baio_console::failure::Failure;
use baio_console::target::TypedTarget;

use crate::command::reach;
use crate::command::shown::Segment;
use crate::command::volume_args::{ChmodArgs, ChownArgs};

/// Changes the mode, and shows the segment as it is then.
pub(crate) fn chmod(args: ChmodArgs) -> Result<Segment, Failure> {
    change("chmod", &args.target, OwnershipChange::of_mode(args.mode))
}

/// Changes the owner, the group or both, and shows the segment as it is then.
pub(crate) fn chown(args: ChownArgs) -> Result<Segment, Failure> {
    change("chown", &args.target, args.to)
}

fn change(command: &'static str, target: &TypedTarget, change: OwnershipChange) -> Result<Segment, Failure> {
    let segment = target.segment(command)?;
    reach::change(command, &segment, |link, owner| {
        link.change_ownership_of(owner, &segment.name, change)
    })
}
