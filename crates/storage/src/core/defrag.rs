//! Packing a volume ([`crate::operation::defrag`]): begun, or run to its end.

use super::{Core, OperationId};
use crate::error::{Error, Fault, Result};
use crate::identity::Identity;
use crate::operation::defrag::{DefragProgress, DefragReport, defrag};
use crate::operation::{Answer, Operation, Progress};

impl Core {
    /// Begins to move the segments that `who` may change towards the beginning of the volume. The volume serves meanwhile; segments of
    /// others stay where they are. [`Core::operation_progress`] says how far it is. When the volume is about to be closed, or nobody
    /// waits for the answer any more, it ends with the move under way.
    ///
    /// # Errors
    /// No volume; everything else is told by the answer.
    pub fn begin_defrag(&mut self, who: Identity) -> Result<OperationId> {
        let operation = self.defrag_of(who)?;
        Ok(self.begin(operation))
    }

    /// Moves the segments that `who` may change towards the beginning of the volume; `progress` is told now and then, and at the end. The
    /// volume serves meanwhile. Segments of others stay where they are.
    ///
    /// # Errors
    /// When the core has no volume or the table cannot be read, or a record failed, so that the volume is latched. What
    /// keeps a single segment from being moved is told by the report.
    pub fn defrag(&mut self, who: Identity, progress: &mut dyn FnMut(DefragProgress)) -> Result<DefragReport> {
        let operation = self.defrag_of(who)?;
        let mut told = DefragProgress::default();
        let answer = self.run_telling(operation, &mut |now| {
            let Progress::Defrag(now) = now else { return };
            if now != told {
                told = now;
                progress(now);
            }
        })?;
        match answer {
            Answer::Defragged(report) => Ok(*report),
            _ => Err(Error::new("defragment", self.volume_name(), Fault::NotFound)),
        }
    }

    pub(super) fn defrag_of(&self, who: Identity) -> Result<Operation> {
        let subject = self.whole_subject("defragment", who)?;
        Ok(defrag(subject))
    }
}
