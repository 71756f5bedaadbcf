//! What handles are called in messages.

use baio_words::Handle;

use crate::carrier::Carrier;
use crate::client::Client;

impl<K: Carrier> Client<K> {
    /// What an opened handle is called in messages, until it is closed.
    pub fn remember(&self, handle: Handle, name: String) {
        self.lock().names.push((handle, name));
    }

    /// What a handle is called in messages.
    pub fn name_of(&self, handle: Handle) -> Option<String> {
        let state = self.lock();
        let known = state.names.iter().find(|(known, _)| *known == handle);
        known.map(|(_, name)| name.clone())
    }
}
