//! The attacks, each with what it gets. An assertion here says what Linux does, also where that is not what one would wish.
//!
//! | file | the question |
//! |---|---|
//! | `revoking.rs` | does taking a page back take it? |
//! | `pins.rs` | and from who holds it by a reference of the kernel's? |
//! | `writing.rs` | can a client make more of a descriptor that can only read? |
//! | `table.rs` | what does the table promise, and what does it tell? |

mod pins;
mod revoking;
mod table;
mod writing;

use std::os::fd::OwnedFd;

use baio_mapped::{Map, Memory, PAGE};

/// What the client may read, and what only another user may.
pub const OWN: u8 = b'a';
pub const SECRET: u8 = b'S';

/// A page of one byte.
pub fn full_of(byte: u8) -> [u8; PAGE] {
    [byte; PAGE]
}

/// A broker's memory with frame 0 full of what the client may read, and that client: its descriptor, and its mapping with the
/// page touched.
pub struct Scene {
    pub memory: Memory,
    pub broker: Map,
    pub descriptor: OwnedFd,
    pub client: Map,
}

pub fn scene() -> Scene {
    let memory = Memory::new(4).expect("a memfd");
    let broker = memory.map().expect("a mapping");
    broker.write(0, &full_of(OWN));
    let descriptor = memory.for_a_client().expect("a descriptor to read");
    let client = Map::to_read(&descriptor, 4).expect("a client's mapping");
    assert_eq!(client.peek(0), OWN);
    Scene {
        memory,
        broker,
        descriptor,
        client,
    }
}
