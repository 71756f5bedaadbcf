//! Memory of other owners than the engine's arena: it goes to the device by its own address, and its owner comes back with it.

#![allow(unsafe_code)]

use std::sync::Arc;

use baio_engine::{Argument, Caching, Error, Foreign, Memory, Notice, Region, Request, Vectored, Wait};

use crate::backends::{Bench, Case, blank, buffer, direct, finish, next, pattern, policies};
use crate::lifetime::Endless;

/// As aligned as any device asks for.
#[derive(Clone)]
#[repr(align(4096))]
struct Page(#[allow(dead_code, reason = "reached by its address")] [u8; PAGE]);

const PAGE: usize = 4096;

/// Pages of another library: bytes behind a pointer, and who still has them.
struct Pages {
    pages: Vec<Page>,
    _held: Arc<()>,
}

/// These bytes in pages, from byte `skip` of the first one on; `held` is counted until their owner is dropped.
fn pages_at(skip: usize, bytes: &[u8], held: &Arc<()>) -> Foreign {
    let mut owner = Box::new(Pages {
        pages: vec![Page([0; PAGE]); (skip + bytes.len()).div_ceil(PAGE)],
        _held: Arc::clone(held),
    });
    let pointer = owner.pages.as_mut_ptr().cast::<u8>().wrapping_add(skip);
    // SAFETY: there are so many bytes behind `skip`, in the vector's allocation, and the vector is handed over here.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer, bytes.len());
        Foreign::new(owner, pointer, bytes.len(), true)
    }
}

fn pages(bytes: &[u8], held: &Arc<()>) -> Memory {
    pages_at(0, bytes, held).into()
}

fn copied(memory: &Memory) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    memory.copy_out_at(0, &mut bytes);
    bytes
}

/// The owner, who is the one that was handed over, is dropped.
fn drop_owner(memory: Memory) {
    let Memory::Foreign(foreign) = memory else {
        panic!("it was foreign: {memory:?}");
    };
    assert!(foreign.is::<Pages>());
    drop(foreign.into_owner().downcast::<Pages>().expect("what it was made of"));
}

pub(crate) fn pages_of_any_owner_make_the_round_trip(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(1, 65536));
    let held = Arc::new(());
    for (seed, policy) in policies(&file).enumerate() {
        let bytes = pattern(2 + seed as u64, 2 * PAGE);
        let write = finish(&mut engine, Request::write(&file, 4096, pages(&bytes, &held), policy));
        assert_eq!(write.result, Ok(2 * PAGE as u32));
        assert_eq!(Arc::strong_count(&held), 2, "the owner has come back with its bytes");
        drop_owner(write.memory);
        assert_eq!(Arc::strong_count(&held), 1);
        let blank = pages(&[0xa5; 2 * PAGE], &held);
        let read = finish(&mut engine, Request::read(&file, 4096, blank, policy));
        assert_eq!(read.result, Ok(2 * PAGE as u32));
        assert!(copied(&read.memory) == bytes, "{policy:?}");
        drop_owner(read.memory);
    }
    Ok(())
}

pub(crate) fn vectors_and_boxes_lie_where_they_like(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(1, 65536));
    for policy in policies(&file).filter(|policy| policy.caching == Caching::Kernel) {
        let bytes = pattern(5, 10_000);
        let vec = Foreign::of_vec(bytes.clone());
        let write = finish(&mut engine, Request::write(&file, 777, vec, policy));
        assert_eq!(write.result, Ok(10_000));
        let boxed = Foreign::of_box(vec![0; 9_999].into());
        let read = finish(&mut engine, Request::read(&file, 778, boxed, policy));
        assert_eq!(read.result, Ok(9_999));
        let Memory::Foreign(foreign) = read.memory else {
            panic!("it was foreign");
        };
        let back: Box<[u8]> = foreign.into_owner_of().expect("a box");
        assert!(back[..] == bytes[1..]);
    }
    Ok(())
}

pub(crate) fn a_list_mixes_them_with_other_memory(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(1, 65536));
    let region = Region::create(PAGE).expect("shared memory");
    let held = Arc::new(());
    for policy in policies(&file) {
        let bytes = pattern(6, 4 * PAGE);
        let span = region.span(0, PAGE as u32).expect("inside");
        span.copy_in(&bytes[3 * PAGE..]);
        let mut list = Vectored::with_capacity(4);
        let middle = pages(&bytes[PAGE..2 * PAGE], &held);
        for part in [
            buffer(&engine, &bytes[..PAGE]).into(),
            middle,
            buffer(&engine, &bytes[2 * PAGE..3 * PAGE]).freeze().into(),
            Memory::Span(span),
        ] {
            list.push(part).expect("a part");
        }
        let write = finish(&mut engine, Request::write(&file, 0, Memory::Many(list), policy));
        assert_eq!(write.result, Ok(4 * PAGE as u32));
        let mut list = Vectored::with_capacity(2);
        list.push(pages(&[0; 3 * PAGE], &held)).expect("a part");
        list.push(blank(&engine, PAGE).into()).expect("a part");
        let read = finish(&mut engine, Request::read(&file, 0, Memory::Many(list), policy));
        assert_eq!(read.result, Ok(4 * PAGE as u32));
        assert!(copied(&read.memory) == bytes, "{policy:?}");
    }
    assert_eq!(Arc::strong_count(&held), 1);
    Ok(())
}

pub(crate) fn a_misaligned_owner_is_named_by_its_address(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(1, 65536));
    let (policy, need) = (direct(&file)?, file.direct_limits().memory);
    let held = Arc::new(());
    let crooked = pages_at(1, &[7; PAGE], &held);
    let done = finish(&mut engine, Request::write(&file, 0, crooked, policy));
    let Err(Error::Misaligned {
        argument: Argument::Memory,
        value,
        need: told,
    }) = done.result
    else {
        panic!("{:?}", done.result);
    };
    assert_eq!((value % PAGE as u64, told, done.iterations), (1, need, 0));
    drop_owner(done.memory);
    Ok(())
}

pub(crate) fn an_owner_that_only_shows_its_bytes_takes_none(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(1, 65536));
    let shared: Arc<[u8]> = pattern(8, 3000).into();
    for policy in policies(&file).filter(|policy| policy.caching == Caching::Kernel) {
        let read = Request::read(&file, 0, Foreign::of_arc(Arc::clone(&shared)), policy);
        let read = finish(&mut engine, read);
        assert_eq!((read.result, read.iterations), (Err(Error::ReadOnlyMemory), 0));
        let write = finish(&mut engine, Request::write(&file, 100, read.memory, policy));
        assert_eq!(write.result, Ok(3000));
        let target = Foreign::of_vec(vec![0; 3000]);
        let read = finish(&mut engine, Request::read(&file, 100, target, policy));
        assert!(copied(&read.memory) == *shared, "{policy:?}");
    }
    assert_eq!(Arc::strong_count(&shared), 1);
    Ok(())
}

/// Nobody waits for the request any more, and the kernel still has its memory: so its owner stays.
pub(crate) fn an_owner_stays_until_the_kernel_has_let_go(bench: &Bench) -> Case {
    let mut endless = Endless::new(bench)?;
    let held = Arc::new(());
    let request = Request {
        memory: pages(&[0; PAGE], &held),
        ..endless.read(PAGE)
    };
    let id = endless.engine.submit(request).expect("a slot");
    endless.engine.turn(Wait::No).expect("a turn");
    endless.engine.abandon(id);
    endless.engine.turn(Wait::No).expect("a turn");
    assert_eq!(Arc::strong_count(&held), 2, "the kernel may still write there");
    endless.let_end(PAGE);
    let done = next(&mut endless.engine);
    assert_eq!((done.id, done.notice), (id, Notice::Released));
    drop_owner(done.memory);
    assert_eq!(Arc::strong_count(&held), 1);
    Ok(())
}
