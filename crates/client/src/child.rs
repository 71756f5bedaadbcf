//! What a forked child has in the place of its parent's state.
//!
//! A thread that only the parent has may hold the lock of that state, for ever. So a child has a state of its own, in which nothing is under
//! way; and a child of that child has one again, for the same reason.

use std::sync::Arc;

use baio_process::fork::{Life, Once};

use crate::carrier::{Between, Carrier};
use crate::state::State;
use crate::sync::Mutex;

/// A child's state, once it has been asked for.
pub(crate) struct Child<K: Carrier>(Once<OfChild<K>>);

struct OfChild<K: Carrier> {
    /// The child that it is of.
    life: Life,
    state: Mutex<State<K>>,
    /// And what a child of that one has.
    next: Child<K>,
}

impl<K: Carrier> Child<K> {
    pub(crate) fn none() -> Child<K> {
        Child(Once::new())
    }

    /// That of the process that asks, a forked one.
    pub(crate) fn state(&self, shared: &Arc<Between<K>>) -> &Mutex<State<K>> {
        let mut at = self;
        loop {
            let child = at.0.get_or_make(|| OfChild {
                life: Life::now(),
                state: Mutex::new(State::of_a_child(shared)),
                next: Child::none(),
            });
            if !child.life.is_over() {
                return &child.state;
            }
            at = &child.next;
        }
    }
}
