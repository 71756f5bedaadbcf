//! How many operations of each kind were run.

use std::ops::AddAssign;

use serde::Serialize;

use crate::model::Op;

macro_rules! counts {
    ($($(#[$said:meta])* $kind:ident,)*) => {
        /// How many operations of each kind were run.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Counts {
            $($(#[$said])* pub $kind: u64,)*
        }

        impl Counts {
            /// Each kind by its name: whoever asserts that every kind was explored names them all.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($kind), self.$kind)),*].into_iter()
            }
        }

        impl AddAssign for Counts {
            fn add_assign(&mut self, other: Counts) {
                $(self.$kind += other.$kind;)*
            }
        }
    };
}

counts! {
    /// Segments made.
    create,
    /// Plain writes.
    write,
    /// Data-durable writes.
    write_durable,
    /// Syncs.
    sync,
    /// Segments made longer or shorter.
    resize,
    /// Segments renamed.
    rename,
    /// Segments moved.
    moved,
    /// Limits set.
    quota,
    /// Segments deleted.
    delete,
    /// Volumes packed.
    defrag,
    /// Volumes made larger.
    grow,
    /// Clean closes.
    close,
    /// Kills with the power on.
    kill,
    /// Openings.
    open,
    /// Several operations under way at a time.
    together,
    /// The same, and nobody asked what became of them.
    abandoned,
    /// Operations refused as they should be.
    refused,
}

impl Counts {
    pub(crate) fn count(&mut self, op: &Op) {
        // Where all but one were refused, nothing has happened together. Nobody asked the abandoned ones: of these one is enough.
        if let Op::Together { ops, abandoned } = op
            && ops.len() < 2 - usize::from(*abandoned)
        {
            return;
        }
        *match op {
            Op::Create { .. } => &mut self.create,
            Op::Write { durable: false, .. } => &mut self.write,
            Op::Write { durable: true, .. } => &mut self.write_durable,
            Op::Sync { .. } => &mut self.sync,
            Op::Resize { .. } => &mut self.resize,
            Op::Rename { .. } => &mut self.rename,
            Op::Move { .. } => &mut self.moved,
            Op::Quota { .. } => &mut self.quota,
            Op::Delete { .. } => &mut self.delete,
            Op::Defrag => &mut self.defrag,
            Op::Grow { .. } => &mut self.grow,
            Op::Close => &mut self.close,
            Op::Kill => &mut self.kill,
            Op::Open => &mut self.open,
            Op::Together { abandoned: false, .. } => &mut self.together,
            Op::Together { abandoned: true, .. } => &mut self.abandoned,
            Op::Refused => &mut self.refused,
        } += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_that_were_refused_are_not_together() {
        let quota = Op::Quota {
            uid: crate::model::UIDS[0],
            limits: baio_storage::Limits::default(),
        };
        let counted = |times, abandoned| {
            let mut counts = Counts::default();
            counts.count(&Op::Together {
                ops: vec![quota.clone(); times],
                abandoned,
            });
            (counts.together, counts.abandoned)
        };
        assert_eq!([0, 1, 2].map(|times| counted(times, false).0), [0, 0, 1]);
        assert_eq!([0, 1, 2].map(|times| counted(times, true).1), [0, 1, 1]);
    }
}
