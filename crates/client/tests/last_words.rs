//! The promise: what a far service has answered before it went is told, also when another thread reads the answer and the end of the
//! socket at an awkward moment.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use baio_client::{Between, Carrier, Client, Ended};
use baio_ring::{Bell, FarBell, SessionMemory, Shared};
use baio_words::entry::{Place, Tag};
use baio_words::{Handle, Payload};

#[derive(Default)]
struct Nothing;

impl Payload for Nothing {
    fn payload_bytes(&self) -> usize {
        0
    }
}

/// A service that answers what it is sent, and goes. Both are heard by somebody else, just behind a look for answers that found none.
#[derive(Default)]
struct Goes {
    sent: Mutex<Option<Tag>>,
    inbox: Mutex<Option<Tag>>,
    has_gone: AtomicBool,
}

impl Carrier for Goes {
    type Memory = Nothing;
    type Command = ();
    type Reply = u32;
    type Kept = ();

    fn place(&self, (): &(), _: &Nothing) -> Place {
        Place::Nowhere
    }

    fn ring(&self) {}

    fn opened(_: &u32) -> Option<Handle> {
        None
    }

    fn is_far(&self) -> bool {
        true
    }

    fn send(&self, (): &mut (), tag: Tag, (): &()) {
        *self.sent.lock().unwrap() = Some(tag);
    }

    fn next_reply(&self, (): &mut ()) -> Option<(Tag, u32)> {
        let heard = self.inbox.lock().unwrap().take();
        if let Some(tag) = self.sent.lock().unwrap().take() {
            *self.inbox.lock().unwrap() = Some(tag);
            self.has_gone.store(true, Ordering::Release);
        }
        heard.map(|tag| (tag, 7))
    }

    fn has_ended(&self) -> bool {
        self.has_gone.load(Ordering::Acquire)
    }
}

struct Silent;

impl FarBell for Silent {
    fn ring(&self) {}

    fn sleep(&self, _: Option<std::time::Duration>) {}
}

#[test]
fn an_answer_that_came_before_the_end_is_told() {
    let memory = SessionMemory::create(4, 4096).unwrap();
    let shared: Between<Goes> = Shared::far(&memory, 4, Bell::far(Arc::new(Silent))).unwrap();
    let client = Client::new(Goes::default(), (), Arc::new(shared), 3, "a peer".into());
    let Ok(asked) = client.command(Box::new(())) else {
        panic!("there is room")
    };
    assert!(matches!(client.wait(asked), Some(Ended::Command(Ok(7)))));
}
