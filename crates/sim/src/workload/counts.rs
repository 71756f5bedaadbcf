//! How many operations of each kind were run.

use std::ops::AddAssign;

use serde::Serialize;

use crate::model::Op;

/// How many operations of each kind were run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Segments made.
    pub create: u64,
    /// Plain writes.
    pub write: u64,
    /// Data-durable writes.
    pub write_durable: u64,
    /// Syncs.
    pub sync: u64,
    /// Segments made longer or shorter.
    pub resize: u64,
    /// Segments renamed.
    pub rename: u64,
    /// Segments moved.
    pub moved: u64,
    /// Limits set.
    pub quota: u64,
    /// Segments deleted.
    pub delete: u64,
    /// Volumes packed.
    pub defrag: u64,
    /// Volumes made larger.
    pub grow: u64,
    /// Clean closes.
    pub close: u64,
    /// Kills with the power on.
    pub kill: u64,
    /// Openings.
    pub open: u64,
    /// Several operations under way at a time.
    pub together: u64,
    /// The same, and nobody asked what became of them.
    pub abandoned: u64,
    /// Operations refused as they should be.
    pub refused: u64,
}

impl Counts {
    pub(crate) fn count(&mut self, op: &Op) {
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

impl Counts {
    /// Each kind by its name: whoever asserts that every kind was explored names them all.
    #[must_use]
    pub fn all(&self) -> [(&'static str, u64); 17] {
        // Taken apart, so that a new kind does not go unnoticed.
        let Counts {
            create,
            write,
            write_durable,
            sync,
            resize,
            rename,
            moved,
            quota,
            delete,
            defrag,
            grow,
            close,
            kill,
            open,
            together,
            abandoned,
            refused,
        } = *self;
        [
            ("create", create),
            ("write", write),
            ("write_durable", write_durable),
            ("sync", sync),
            ("resize", resize),
            ("rename", rename),
            ("moved", moved),
            ("quota", quota),
            ("delete", delete),
            ("defrag", defrag),
            ("grow", grow),
            ("close", close),
            ("kill", kill),
            ("open", open),
            ("together", together),
            ("abandoned", abandoned),
            ("refused", refused),
        ]
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.create += other.create;
        self.write += other.write;
        self.write_durable += other.write_durable;
        self.sync += other.sync;
        self.resize += other.resize;
        self.rename += other.rename;
        self.moved += other.moved;
        self.quota += other.quota;
        self.delete += other.delete;
        self.defrag += other.defrag;
        self.grow += other.grow;
        self.close += other.close;
        self.kill += other.kill;
        self.open += other.open;
        self.together += other.together;
        self.abandoned += other.abandoned;
        self.refused += other.refused;
    }
}
