//! What a ring knows by a number: files and an arena.
//!
//! An entry names a registered file by its place in a table, and the kernel looks there when it takes the entry. So a place
//! is not emptied, let alone given to another file, while an entry that may name it is still queued: an enter that the kernel
//! refuses (`EAGAIN`, `EBUSY`) leaves entries queued for as long as it likes.
//!
//! Before Linux 6.13 the kernel closes what has left the table in that order, and only when the requests have ended that had begun before
//! (`io_rsrc_node_ref_zero`, io_uring/rsrc.c): one that waits on a registered file keeps every file open, with its lock, that leaves after it.
//! So does one whose memory is registered. A disk ends its requests; a stream may let one wait for ever. So streams are not registered, and
//! take no registered memory. (A poll of an attached file in /proc or /sys may wait for ever as well.)

use super::*;
use crate::device::Kind;
use crate::file::File;
use crate::policy::Caching;
use entries::Pieces;

impl Uring {
    pub(super) fn attach_file(&mut self, file: &File) -> Result<(), Errno> {
        if file.attached().place(self.mark).is_some() {
            // A second place in the table would outlive the one detach, and with it the lock.
            return Ok(());
        }
        if file.kind() == Kind::Stream {
            return Err(Errno::EOPNOTSUPP);
        }
        let table = self.registered_files.as_mut().ok_or(Errno::EOPNOTSUPP)?;
        let index = table.iter().position(|used| !used).ok_or(Errno::ENFILE)?;
        let fds = [Caching::Kernel, Caching::Direct].map(|mode| file.raw_fd(mode).unwrap_or(-1));
        let first = index as u32 * 2;
        self.ring
            .submitter()
            .register_files_update(first, &fds)
            .map_err(|error| Errno::of(&error))?;
        self.system_calls += 1;
        table[index] = true;
        file.attached().set(self.mark, first);
        Ok(())
    }

    pub(super) fn attach_arena(&mut self, arena: &Arc<Arena>) -> Result<(), Errno> {
        // Registering touches and pins every page: as few as there can be.
        arena.wish_huge();
        self.attach_pieces(Pieces::of(arena, Pieces::BITS))
    }

    pub(super) fn attach_pieces(&mut self, pieces: Pieces) -> Result<(), Errno> {
        // SAFETY: the arena is kept alive by this backend until the buffers are unregistered or the ring is closed; its
        // bytes are only touched by requests, which the slots account for.
        let registered = unsafe { self.ring.submitter().register_buffers(&pieces.ranges()) }.map_err(|e| Errno::of(&e));
        self.system_calls += 1;
        self.arena_refused = registered.err();
        registered?;
        self.entries.arena = Some(pieces);
        let told = self.knows.feature_of(Feature::RegisteredLists, self.knows.lists);
        self.entries.lists = told.1.is_ok();
        self.features.push(told);
        Ok(())
    }

    pub(super) fn detach_file(&mut self, file: &File) {
        let Some(first) = file.attached().place(self.mark) else {
            return;
        };
        file.attached().clear(self.mark, first);
        self.leaving.push(first);
        if self.ring.submission().is_empty() {
            self.let_go();
        } else {
            // Lets go if the kernel takes the entries; what it makes of an error is told by the next turn.
            let _ = self.enter(0, None);
        }
    }

    /// Empties the places of detached files, unless an entry may still name them.
    pub(super) fn let_go(&mut self) {
        if !self.ring.submission().is_empty() {
            return;
        }
        while let Some(first) = self.leaving.pop() {
            let _ = self.ring.submitter().register_files_update(first, &[-1, -1]);
            self.system_calls += 1;
            if let Some(table) = &mut self.registered_files {
                table[first as usize / 2] = false;
            }
        }
    }
}
