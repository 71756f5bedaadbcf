//! The client's bell, as futex(2) behaves: a ring before the sleep ends it too, one ring wakes one, a sleep may end early.

use std::time::Duration;

use shuttle::sync::{Condvar, Mutex};

#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
}

#[allow(missing_docs)]
impl Bell {
    pub fn ring(&self) {
        let mut rung = self.rung.lock().unwrap();
        if !std::mem::replace(&mut rung, true) {
            self.heard.notify_one();
        }
    }

    pub fn sleep(&self, limit: Option<Duration>) {
        if let Some(limit) = limit {
            // Early, if not late.
            crate::sync::time_passes(limit);
            *self.rung.lock().unwrap() = false;
            return;
        }
        let mut rung = self.rung.lock().unwrap();
        if !*rung {
            rung = self.heard.wait(rung).unwrap();
        }
        *rung = false;
    }
}
