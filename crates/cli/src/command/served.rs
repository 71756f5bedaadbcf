//! What commands do on a volume that a broker serves: the same calls, on a link to it.
//!
//! Nothing is looked at first, as it is with a volume of this machine: the broker refuses without a change.

use baio::{Error, Fault, Link, Remote, SegmentInfo};
use baio_console::failure::Failure;
use baio_console::named::NamedSegment;
use baio_console::progress::Progress;
use baio_console::target::{Served, Target, TypedTarget};

/// A segment, here or behind a broker.
pub(crate) enum SegmentTarget {
    /// Of a volume that this process opens itself.
    Here(NamedSegment),
    /// Of one that a broker serves.
    Served(ServedSegment),
}

/// A segment behind a broker.
pub(crate) struct ServedSegment {
    served: Served,
    /// Its name.
    pub(crate) name: String,
}

impl SegmentTarget {
    /// A target that must be a segment.
    pub(crate) fn resolve(command: &'static str, typed: &TypedTarget) -> Result<SegmentTarget, Failure> {
        match typed.meant(command)? {
            Target::Segment(named) => Ok(SegmentTarget::Here(named)),
            Target::Served(mut served) => match served.name.take() {
                Some(name) => Ok(SegmentTarget::Served(ServedSegment { served, name })),
                None => Err(typed.segment_expected(command)),
            },
            Target::File(_) => Err(typed.segment_expected(command)),
        }
    }
}

impl ServedSegment {
    /// Asks its broker something.
    pub(crate) fn ask<T>(
        &self,
        command: &'static str,
        question: impl FnOnce(&Remote) -> baio::Result<T>,
    ) -> Result<T, Failure> {
        ask(command, &self.served, question)
    }

    /// The owner: the one typed, else who the broker takes the caller for.
    pub(crate) fn owner_uid(&self, link: &Remote) -> u32 {
        self.served.owner.unwrap_or(link.identity().uid)
    }

    /// The owner, where one was typed.
    pub(crate) fn owner(&self) -> Option<u32> {
        self.served.owner
    }

    /// As it was typed.
    pub(crate) fn typed(&self) -> &str {
        &self.served.typed
    }
}

/// A segment as it is: a broker has no call for one, so it is looked for in the list of those that the caller may see. Another
/// user's is refused whether it is there or not, as it is wherever it is opened.
pub(crate) fn look(link: &Remote, owner: Option<u32>, name: &str) -> baio::Result<SegmentInfo> {
    let who = link.identity();
    let owner_uid = owner.unwrap_or(who.uid);
    let refused = |fault| Error::new("stat", format!("{owner_uid}/{name}"), fault);
    if !who.acts_for(owner_uid) {
        return Err(refused(Fault::Access { uid: who.uid }));
    }
    let is_it = |info: &SegmentInfo| info.owner_uid == owner_uid && info.name == name;
    let found = link.list().wait()?.into_iter().find(is_it);
    found.ok_or_else(|| refused(Fault::NotFound))
}

/// Connects to a broker, asks it something, and leaves.
pub(crate) fn ask<T>(
    command: &'static str,
    served: &Served,
    question: impl FnOnce(&Remote) -> baio::Result<T>,
) -> Result<T, Failure> {
    let told = |error: baio::Error| Failure::from_storage(command, served.typed.clone(), &error);
    let link = Remote::connect(&served.socket).map_err(told)?;
    let shown = Progress::waiting(command);
    let answer = question(&link).map_err(told)?;
    drop(shown);
    // What was asked is done; a broker that ends now took nothing back.
    let _ = link.close();
    Ok(answer)
}
