//! The caller's memory, whatever kind it is: bytes are copied in and out at an offset.
//!
//! A buffer is used where it lies. Memory that a peer may change meanwhile (a span) is copied exactly once, as a whole: for a
//! write when the request comes, so that what was checked is what is written; for a read when the request ends. Between
//! that the request works on a copy of its own.

use baio_engine::{Memory, Vectored};

use super::request::CacheError;

/// What a request reads into or writes from.
#[derive(Debug, Default)]
pub(super) struct Caller {
    parts: Parts,
    /// The private copy, when a part is shared with a peer.
    copy: Option<Vec<u8>>,
    len: usize,
}

#[derive(Debug, Default)]
enum Parts {
    #[default]
    None,
    One(Memory),
    /// The parts of a list and the empty list that they go back into.
    Many(Vec<Memory>, Vectored),
}

impl Caller {
    /// Takes the memory of a request.
    ///
    /// # Errors
    /// The memory, with the reason why a request of this direction cannot use it.
    pub(super) fn new(memory: Memory, writes: bool) -> Result<Caller, (Memory, CacheError)> {
        let len = memory.len();
        let parts = match &memory {
            Memory::Many(list) => list.parts(),
            one => std::slice::from_ref(one),
        };
        if parts.iter().any(|part| matches!(part, Memory::Lent(_))) {
            return Err((memory, CacheError::MemoryKind));
        }
        if !writes && parts.iter().any(|part| matches!(part, Memory::Shared(_))) {
            return Err((memory, CacheError::ReadOnlyMemory));
        }
        let mut copy = None;
        if parts.iter().any(|part| matches!(part, Memory::Span(_))) {
            let mut bytes = Vec::new();
            if bytes.try_reserve_exact(len).is_err() {
                return Err((memory, CacheError::NoMemory));
            }
            bytes.resize(len, 0);
            if writes {
                gather(parts, &mut bytes);
            }
            copy = Some(bytes);
        }
        let parts = match memory {
            Memory::None => Parts::None,
            Memory::Many(mut list) => Parts::Many(list.drain().collect(), list),
            one => Parts::One(one),
        };
        Ok(Caller { parts, copy, len })
    }

    /// Memory that is only to be given back.
    pub(super) fn unused(memory: Memory) -> Caller {
        let len = memory.len();
        Caller {
            parts: Parts::One(memory),
            copy: None,
            len,
        }
    }

    /// Length in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Copies `from` into the caller's memory behind `skip`.
    pub(super) fn put(&mut self, skip: usize, from: &[u8]) {
        if let Some(copy) = &mut self.copy {
            return put_flat(copy, skip, from);
        }
        match &mut self.parts {
            Parts::None => {}
            Parts::One(one) => put_part(one, skip, from),
            Parts::Many(parts, _) => scatter(parts, skip, from),
        }
    }

    /// Copies the caller's bytes from behind `skip` until `to` is full.
    pub(super) fn get(&self, skip: usize, to: &mut [u8]) {
        if let Some(copy) = &self.copy {
            return get_flat(copy, skip, to);
        }
        match &self.parts {
            Parts::None => {}
            Parts::One(one) => get_part(one, skip, to),
            Parts::Many(parts, _) => {
                let (mut skip, mut to) = (skip, to);
                for part in parts {
                    let len = part.len();
                    if skip < len {
                        let take = (len - skip).min(to.len());
                        let (now, later) = to.split_at_mut(take);
                        get_part(part, skip, now);
                        to = later;
                        skip = 0;
                    } else {
                        skip -= len;
                    }
                }
            }
        }
    }

    /// Gives the memory back; the first `read` bytes of a private copy are shown to the peer first.
    pub(super) fn give_back(self, read: usize) -> Memory {
        let mut parts = self.parts;
        if let Some(copy) = self.copy {
            let bytes = copy.get(..read).unwrap_or(&[]);
            match &mut parts {
                Parts::None => {}
                Parts::One(one) => put_part(one, 0, bytes),
                Parts::Many(parts, _) => scatter(parts, 0, bytes),
            }
        }
        match parts {
            Parts::None => Memory::None,
            Parts::One(one) => one,
            Parts::Many(parts, mut list) => {
                for part in parts {
                    // The parts came out of a list, so none of them is one.
                    let _ = list.push(part);
                }
                Memory::Many(list)
            }
        }
    }
}

fn gather(parts: &[Memory], mut to: &mut [u8]) {
    for part in parts {
        let (now, later) = to.split_at_mut(part.len().min(to.len()));
        get_part(part, 0, now);
        to = later;
    }
}

fn scatter(parts: &mut [Memory], mut skip: usize, mut from: &[u8]) {
    for part in parts {
        let len = part.len();
        if skip < len {
            let take = (len - skip).min(from.len());
            put_part(part, skip, &from[..take]);
            from = &from[take..];
            skip = 0;
        } else {
            skip -= len;
        }
    }
}

fn put_part(part: &mut Memory, skip: usize, from: &[u8]) {
    match part {
        Memory::Own(buffer) => put_flat(buffer, skip, from),
        // Spans are filled once, from their beginning: see `give_back`.
        Memory::Span(span) if skip == 0 => {
            span.copy_in(from);
        }
        _ => {}
    }
}

fn get_part(part: &Memory, skip: usize, to: &mut [u8]) {
    match part {
        Memory::Own(buffer) => get_flat(buffer, skip, to),
        Memory::Shared(frozen) => get_flat(frozen, skip, to),
        Memory::Span(span) if skip == 0 => {
            span.copy_out(to);
        }
        _ => {}
    }
}

fn put_flat(flat: &mut [u8], skip: usize, from: &[u8]) {
    let rest = flat.get_mut(skip..).unwrap_or(&mut []);
    let len = rest.len().min(from.len());
    rest[..len].copy_from_slice(&from[..len]);
}

fn get_flat(flat: &[u8], skip: usize, to: &mut [u8]) {
    let rest = flat.get(skip..).unwrap_or(&[]);
    let len = rest.len().min(to.len());
    to[..len].copy_from_slice(&rest[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use baio_engine::{Arena, Region};

    #[test]
    fn a_list_with_a_span_is_copied_once_and_given_back() {
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
        let caller = Caller::new(Memory::Many(list), true).unwrap();
        region.span(10, 3).unwrap().copy_in(b"XXX");
        let mut seen = [0; 7];
        caller.get(1, &mut seen);
        assert_eq!(&seen, b"bcdefgh");

        let mut caller = Caller::new(caller.give_back(0), false).unwrap();
        caller.put(2, b"12345");
        let memory = caller.give_back(7);
        region.span(10, 3).unwrap().copy_out(&mut seen[..3]);
        assert_eq!((&seen[..3], memory.len()), (&b"234"[..], 9));
    }

    #[test]
    fn a_read_refuses_shared_memory() {
        let arena = Arena::new(1 << 20).unwrap();
        let frozen = arena.buffer(8).unwrap().freeze();
        let (memory, error) = Caller::new(Memory::Shared(frozen), false).unwrap_err();
        assert_eq!((memory.len(), error), (8, CacheError::ReadOnlyMemory));
    }
}
