//! An opened segment or file, as its requests and operations keep it open.

use baio_storage::Handle;
use baio_storage::cache::Borrower;

use crate::trace;
use crate::transport::{Notice, Transport};

/// Bytes of pages that one opened segment or file may have lent at a time.
const LENT_BYTES_MAX: usize = 16 << 20;

/// What was opened: closed when nobody has it any more.
pub(crate) struct Object<L: Transport> {
    pub(crate) link: L,
    pub(crate) handle: Handle,
    /// What it is called in messages.
    pub(crate) name: String,
    pub(crate) borrower: Borrower,
}

impl<L: Transport> Object<L> {
    pub(crate) fn new(link: &L, handle: Handle, name: String) -> Object<L> {
        Object {
            link: link.clone(),
            handle,
            name,
            borrower: Borrower::new(LENT_BYTES_MAX),
        }
    }
}

impl<L: Transport> Drop for Object<L> {
    fn drop(&mut self) {
        self.link.tell_link(Notice::Close(self.handle));
        trace::object_closed(&self.name);
    }
}
