//! How commands reach a volume: over a link, to a thread of this process that opens it, or to the broker that serves it.

use baio::{Core, Error, Fault, Identity, Link, Operation, Progress as Reached, Remote, SegmentInfo};
use baio_console::diagnostics;
use baio_console::failure::Failure;
use baio_console::named::{NamedSegment, Volume};
use baio_console::progress::{Progress, Unit};
use baio_console::size::format_size;

use crate::command::shown::Segment;

/// A volume that a command has reached.
pub(crate) struct Reach {
    pub(crate) link: Remote,
    /// What the terminal calls what is done.
    what: String,
    is_served: bool,
}

impl Reach {
    /// Runs an operation to its end, and shows how far it is.
    pub(crate) fn run<T>(&self, unit: Unit, operation: Operation<Remote, T>) -> baio::Result<T> {
        if self.is_served {
            // A broker does not tell how far it is.
            let _shown = Progress::waiting(&self.what);
            return operation.wait();
        }
        let (operation, watch) = operation.watched();
        let what = self.what.clone();
        let _shown = Progress::asked(&self.what, unit, move |line| match watch.get() {
            Some(Reached::Bytes { done, of }) => line.reach(done, of),
            Some(Reached::Defrag(progress)) => {
                // How many passes there will be is not known before.
                let moved = format_size(progress.moved_bytes);
                line.say(&format!("{what}, pass {}, {moved} moved", progress.pass));
                line.reach(progress.segments_done, progress.segments);
            }
            _ => {}
        });
        operation.wait()
    }
}

/// Reaches a volume for the command that was given it as `typed`, asks it something, and leaves.
pub(crate) fn ask<T>(
    command: &'static str,
    (volume, typed): (&Volume, &str),
    question: impl FnOnce(&Reach) -> baio::Result<T>,
) -> Result<T, Failure> {
    let told = |error: Error| Failure::from_storage(command, typed, &error);
    let link = match volume {
        Volume::Here(path) => Remote::open(path),
        Volume::Served(socket) => Remote::connect(socket),
    };
    let reach = Reach {
        link: link.map_err(told)?,
        what: format!("{command} {typed}"),
        is_served: volume.is_served(),
    };
    let answer = question(&reach);
    let closed = match reach.link.close() {
        // What was asked is done; a broker that ends now took nothing back.
        Err(_) if reach.is_served => Ok(()),
        closed => closed,
    };
    answer.and_then(|answer| closed.map(|()| answer)).map_err(told)
}

/// Changes a segment, and shows it as it is then. What looking refuses is refused before the volume is opened to write, which raises its epoch.
pub(crate) fn change(
    command: &'static str,
    segment: &NamedSegment,
    operation: impl FnOnce(&Remote, u32) -> Operation<Remote, SegmentInfo>,
) -> Result<Segment, Failure> {
    if let Volume::Here(path) = &segment.volume {
        let who = Identity::effective();
        let seen = Core::inspect_segment(path, who, segment.owner_uid(who), &segment.name);
        segment.told(command, seen)?;
    }
    let changed = ask(command, (&segment.volume, &segment.typed), |reach| {
        let owner_uid = segment.owner_uid(reach.link.identity());
        reach.run(Unit::Bytes, operation(&reach.link, owner_uid))
    })?;
    Ok(Segment::of(changed, &segment.volume))
}

/// A segment as it is: a broker has no call for one, so it is looked for in the list of those that the caller may see. Another
/// user's is refused whether it is there or not, as it is wherever it is opened.
pub(crate) fn look(link: &Remote, segment: &NamedSegment) -> baio::Result<SegmentInfo> {
    let who = link.identity();
    let (owner_uid, name) = (segment.owner_uid(who), &segment.name);
    let refused = |fault| Error::new("stat", format!("{owner_uid}/{name}"), fault);
    if !who.acts_for(owner_uid) {
        return Err(refused(Fault::Access { uid: who.uid }));
    }
    let is_it = |info: &SegmentInfo| info.owner_uid == owner_uid && info.name == *name;
    let found = link.list().wait()?.into_iter().find(is_it);
    found.ok_or_else(|| refused(Fault::NotFound))
}

/// Says that a segment has more than was asked for, where it has: it is made of whole blocks.
pub(crate) fn tell_rounded(command: &str, typed: &str, asked: u64, got: u64) {
    if got > asked {
        diagnostics::say(format_args!(
            "baio: {command}: {typed}: {asked} bytes are rounded up to {got}, to whole blocks"
        ));
    }
}
