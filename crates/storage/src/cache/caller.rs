//! The caller's memory, of any kind: bytes are copied in and out at an offset, each exactly once.
//!
//! Because no byte is read twice, memory that a peer may change meanwhile (a span) needs no private copy: the bytes that were copied
//! into a page are those that are written. Requests go through their memory from the front. So the place in a list where the last copy
//! ended is remembered, and a list of thousands of parts is not walked for each page.

use baio_engine::{Frozen, Memory};

use super::frames::PAGE_BYTES;
use baio_words::CacheError;

/// What a request reads into or writes from.
#[derive(Debug, Default)]
pub(super) struct Caller {
    memory: Memory,
    len: usize,
    /// Of a list: a part, and how many bytes lie before it.
    part: usize,
    before: usize,
    /// It was a buffer that could be changed, and the device may have it.
    is_lent: bool,
}

impl Caller {
    /// Takes the memory of a request.
    ///
    /// # Errors
    /// The memory, with the reason why a request of this direction cannot use it.
    pub(super) fn new(memory: Memory, writes: bool) -> Result<Caller, (Memory, CacheError)> {
        let parts = match &memory {
            Memory::Many(list) => list.parts(),
            one => std::slice::from_ref(one),
        };
        if parts.iter().any(|part| matches!(part, Memory::Lent(_))) {
            return Err((memory, CacheError::MemoryKind));
        }
        if !writes && !memory.is_writable() {
            return Err((memory, CacheError::ReadOnlyMemory));
        }
        Ok(Caller::unused(memory))
    }

    /// Memory that is only to be given back.
    pub(super) fn unused(memory: Memory) -> Caller {
        Caller {
            len: memory.len(),
            memory,
            part: 0,
            before: 0,
            is_lent: false,
        }
    }

    /// Length in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Copies `from` into the caller's memory behind `skip`.
    pub(super) fn put(&mut self, skip: usize, mut from: &[u8]) {
        let mut skip = self.seek(skip);
        let Memory::Many(list) = &mut self.memory else {
            return self.memory.copy_in_at(skip, from);
        };
        let mut at = self.part;
        while let Some(len) = list.parts().get(at).map(Memory::len).filter(|_| !from.is_empty()) {
            let take = (len - skip).min(from.len());
            list.copy_in_part(at, skip, &from[..take]);
            from = &from[take..];
            (at, skip) = (at + 1, 0);
        }
    }

    /// Copies the caller's bytes from behind `skip` until `to` is full.
    pub(super) fn get(&mut self, skip: usize, mut to: &mut [u8]) {
        let mut skip = self.seek(skip);
        let Memory::Many(list) = &self.memory else {
            return self.memory.copy_out_at(skip, to);
        };
        for part in list.parts().iter().skip(self.part) {
            let take = (part.len() - skip).min(to.len());
            let (now, later) = to.split_at_mut(take);
            part.copy_out_at(skip, now);
            to = later;
            skip = 0;
            if to.is_empty() {
                break;
            }
        }
    }

    /// Moves to the part in which byte `skip` lies; how many bytes of that part lie before it.
    fn seek(&mut self, skip: usize) -> usize {
        let Memory::Many(list) = &self.memory else {
            return skip;
        };
        if skip < self.before {
            (self.part, self.before) = (0, 0);
        }
        while let Some(part) = list.parts().get(self.part) {
            if skip - self.before < part.len() {
                break;
            }
            self.before += part.len();
            self.part += 1;
        }
        skip - self.before
    }

    /// Is it whole pages in one piece, which the device could take as they are? Buffers lie on page boundaries, another owner's
    /// memory may.
    pub(super) fn is_pages(&self) -> bool {
        let begins_well = match &self.memory {
            Memory::Own(_) | Memory::Shared(_) => true,
            Memory::Foreign(foreign) => foreign.address() % PAGE_BYTES == 0,
            _ => false,
        };
        begins_well && self.len % PAGE_BYTES == 0
    }

    /// Shares the memory, one buffer, with the device for a write, until it is given back. Another owner's cannot be shared.
    pub(super) fn share(&mut self) -> Option<Frozen> {
        match std::mem::take(&mut self.memory) {
            Memory::Own(buffer) => {
                let frozen = buffer.freeze();
                self.memory = Memory::Shared(frozen.clone());
                self.is_lent = true;
                Some(frozen)
            }
            Memory::Shared(frozen) => {
                self.memory = Memory::Shared(frozen.clone());
                Some(frozen)
            }
            other => {
                self.memory = other;
                None
            }
        }
    }

    /// The bytes that the device has as well.
    pub(super) fn shared(&self) -> Option<&Frozen> {
        match &self.memory {
            Memory::Shared(frozen) => Some(frozen),
            _ => None,
        }
    }

    /// Lends the memory itself to the device, to be read into.
    pub(super) fn lend(&mut self) -> Memory {
        std::mem::take(&mut self.memory)
    }

    /// It is back.
    pub(super) fn take_back(&mut self, memory: Memory) {
        self.memory = memory;
    }

    /// Gives the memory back; `None` if the device still has it.
    pub(super) fn give_back(self) -> Memory {
        match self.memory {
            Memory::Shared(frozen) if self.is_lent => frozen.thaw().map_or(Memory::None, Memory::Own),
            memory => memory,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baio_engine::{Arena, Foreign, Region, Vectored};

    #[test]
    fn a_list_with_a_span_is_copied_piece_by_piece_and_given_back() {
        let arena = Arena::new(1 << 20).unwrap();
        let region = Region::create(4096).unwrap();
        let mut list = Vectored::with_capacity(3);
        for bytes in [b"abc", b"ghi"] {
            let mut buffer = arena.buffer(3).unwrap();
            buffer.copy_from_slice(bytes);
            list.push(buffer.into()).unwrap();
            if list.parts().len() == 1 {
                let span = region.span(10, 3).unwrap();
                span.copy_in(b"def");
                list.push(Memory::Span(span)).unwrap();
            }
        }
        let mut caller = Caller::new(Memory::Many(list), true).unwrap();
        let mut seen = [0; 7];
        caller.get(1, &mut seen);
        assert_eq!(&seen, b"bcdefgh");
        caller.get(8, &mut seen[..1]);
        caller.get(2, &mut seen[1..3]); // Backwards.
        assert_eq!(&seen[..3], b"icd");

        let mut caller = Caller::new(caller.give_back(), false).unwrap();
        caller.put(2, b"12345");
        caller.put(7, b"6789");
        let mut memory = caller.give_back();
        region.span(10, 3).unwrap().copy_out(&mut seen[..3]);
        assert_eq!((&seen[..3], memory.len()), (&b"234"[..], 9));
        let mut all = [0; 9];
        memory.copy_out_at(0, &mut all);
        assert_eq!(&all, b"ab1234567");
        memory.copy_in_at(8, b"89");
        memory.copy_out_at(0, &mut all);
        assert_eq!(&all, b"ab1234568");
    }

    #[test]
    fn a_read_refuses_shared_memory() {
        let arena = Arena::new(1 << 20).unwrap();
        let frozen = arena.buffer(8).unwrap().freeze();
        for shared in [Memory::Shared(frozen), Foreign::of_static(b"read me!").into()] {
            let (memory, error) = Caller::new(shared, false).unwrap_err();
            assert_eq!((memory.len(), error), (8, CacheError::ReadOnlyMemory));
            assert!(Caller::new(memory, true).is_ok());
        }
    }

    #[test]
    fn another_owners_memory_is_copied_and_given_back() {
        let mut caller = Caller::new(Foreign::of_vec(vec![1; 6]).into(), false).unwrap();
        caller.put(2, b"abc");
        let mut seen = [0; 4];
        caller.get(1, &mut seen);
        assert_eq!((&seen, caller.share().is_none()), (b"\x01abc", true));
        let Memory::Foreign(foreign) = caller.give_back() else {
            panic!("it was foreign");
        };
        assert_eq!(foreign.into_owner_of::<Vec<u8>>().unwrap(), *b"\x01\x01abc\x01");
    }
}
