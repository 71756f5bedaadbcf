//! An event that an operation does not wait for ends it: the token goes to the next one, and the table is left alone. And what
//! operations leave behind: their places, and memory.

use baio_engine::sim::{Disk, Sim};
use baio_engine::{Engine, EngineOptions, File};

use super::*;
use crate::cache::CacheOptions;
use crate::identity::{Access, Identity};
use crate::object::WALKS;
use crate::operation::create::{CreateOptions, create};
use crate::operation::defrag::defrag;
use crate::operation::delete::delete;
use crate::operation::list::list;
use crate::operation::moving::{Which, move_segment};
use crate::operation::open::open;
use crate::operation::repeat::OperationName;
use crate::operation::resize::{ResizeOptions, resize};
use crate::request::{Handle, Mode, SegmentOp, SegmentRequest};
use crate::segment::free_set::WALKS as BITMAP_WALKS;
use crate::segment::layout::BUCKET_BYTES;
use crate::segment::name::{Key, SegmentName};
use crate::volume::accounts::Limits;
use crate::volume::format::{FormatOptions, format_on};

pub(super) const ME: Identity = Identity::new(7, 7);

pub(super) fn core() -> Core {
    let disk = Disk::new(8 << 20);
    let file = File::simulated(&disk, "disk");
    let config = EngineOptions {
        slots: 64,
        arena_bytes: 4 << 20,
        ..EngineOptions::default()
    };
    let mut engine = Engine::simulated(Sim::new(3).unwrap(), &config).unwrap();
    let options = FormatOptions {
        size_bytes: Some(8 << 20),
        ..FormatOptions::default()
    };
    format_on(&mut engine, &file, &options).unwrap();
    let mut core = Core::open_on(engine, &file, &config).unwrap();
    for name in ["data", "other"] {
        core.create(ME, ME.uid, name, &CreateOptions::of_size(8192)).unwrap();
    }
    core
}

type Make = fn(&Core) -> Operation;

fn one_of_each() -> [(&'static str, Make); 9] {
    [
        ("create", |core| {
            let subject = core.subject("create", ME, ME.uid, "new").unwrap();
            create(subject, CreateOptions::of_size(4096), OperationName::NONE)
        }),
        ("delete", |core| {
            delete(core.subject("delete", ME, ME.uid, "data").unwrap(), OperationName::NONE)
        }),
        ("open", |core| {
            let subject = core.subject("open", ME, ME.uid, "data").unwrap();
            open(subject, Access::Read)
        }),
        ("rename", |core| {
            core.rename_of(ME, ME.uid, "data", "new", OperationName::NONE).unwrap()
        }),
        ("resize", |core| {
            let subject = core.subject("resize", ME, ME.uid, "data").unwrap();
            resize(subject, ResizeOptions::to_size(4096), OperationName::NONE)
        }),
        ("quota", |core| {
            let root = Identity::new(0, 0);
            core.quota_of(
                root,
                9,
                Limits {
                    blocks: Some(1),
                    segments: None,
                },
            )
            .unwrap()
        }),
        ("move", |core| {
            let subject = core.subject("move", ME, ME.uid, "data").unwrap();
            move_segment(subject, Which::Named(Some(100)))
        }),
        ("list", |core| list(core.whole_subject("list", ME).unwrap())),
        ("defragment", |core| {
            let subject = core.whole_subject("defragment", ME).unwrap();
            defrag(subject)
        }),
    ]
}

#[test]
fn an_unexpected_event_ends_the_operation_and_frees_the_token() {
    for (name, make) in one_of_each() {
        let mut core = core();
        let operation = make(&core);
        let id = core.begin(operation);
        assert!(core.table.token.is_with(id.0.index), "{name} looks something up");
        core.table.step(&mut core.lane, id.0.index, Event::Uncached(Ok(())));
        let error = core.take_answer(&id).expect(name).unwrap_err();
        assert!(matches!(error.fault, Fault::Unexpected(_)), "{name}: {error}");
        assert!(!core.table.token.is_with(id.0.index), "{name}");
        // Others go on, but nobody changes the table.
        core.open_segment(ME, ME.uid, "other", Access::Write).unwrap();
        let refused = core.delete(ME, ME.uid, "other").unwrap_err();
        assert!(matches!(refused.fault, Fault::Latched), "{name}: {refused}");
    }
}

/// There may be thousands. What a future keeps twice, because it lies in another, shows here.
#[test]
fn an_operation_takes_a_box_of_three_kilobytes_at_most() {
    let core = core();
    for (name, make) in one_of_each() {
        let bytes = std::mem::size_of_val(&*make(&core).story);
        assert!(bytes <= 3 << 10, "{name}: {bytes} bytes");
    }
}

/// Turns the core until the operation has ended.
fn ended(core: &mut Core, id: &OperationId) -> Result<Answer> {
    loop {
        match core.take_answer(id) {
            Some(answer) => return answer,
            None => core.turn(Wait::one()).unwrap(),
        };
    }
}

#[test]
fn what_comes_late_is_not_for_the_next_operation_in_the_place() {
    let mut core = core();
    let first = core.begin_open(ME, ME.uid, "data", Access::Read).unwrap();
    let beside = core.begin_delete(ME, ME.uid, "other").unwrap();
    core.table.step(&mut core.lane, first.0.index, Event::Uncached(Ok(())));
    core.take_answer(&first).unwrap().unwrap_err();
    // The token is the other's now, so nothing of this one is under way when the first one's read ends.
    let next = core.begin_open(ME, ME.uid, "data", Access::Read).unwrap();
    assert_eq!(next.0.index, first.0.index);
    assert!(core.table.token.is_with(beside.0.index) && !core.table.token.is_with(next.0.index));
    ended(&mut core, &next).unwrap();
}

/// The same for word from the page cache: of a range that the first one wanted out of it.
#[test]
fn what_the_cache_says_late_is_not_for_the_next_operation_either() {
    let mut core = core();
    let cache = CacheOptions {
        bytes: 64 << 10,
        ..CacheOptions::default()
    };
    core.use_cache(&cache).unwrap();
    let (data, _) = core.open_segment(ME, ME.uid, "data", Access::Write).unwrap();
    let write = SegmentRequest {
        mode: Mode::Cached,
        ..SegmentRequest::new(data, SegmentOp::Write { offset: 4096 }, core.buffer(4096).unwrap())
    };
    let write = core.start(write).unwrap();
    core.wait(write).unwrap().unwrap().result.unwrap();
    let smaller = ResizeOptions::to_size(4096);
    let shrink = core.begin_resize(ME, ME.uid, "data", &smaller).unwrap();
    while core.lane.in_cache().0 == 0 {
        core.turn(Wait::No).unwrap();
    }
    core.table.step(&mut core.lane, shrink.0.index, Event::Drained);
    core.take_answer(&shrink).expect("an accident").unwrap_err();
    let next = core.begin_open(ME, ME.uid, "other", Access::Read).unwrap();
    assert_eq!(next.0.index, shrink.0.index);
    assert!(
        core.take_answer(&shrink).is_none(),
        "nor is its answer for who asked for the first"
    );
    ended(&mut core, &next).unwrap();
}

#[test]
fn an_operation_that_nobody_waits_for_leaves_its_place() {
    let mut core = core();
    for to in [100, 200] {
        let subject = core.subject("move", ME, ME.uid, "data").unwrap();
        core.table
            .begin_alone(&mut core.lane, move_segment(subject, Which::Named(Some(to))));
        while core.in_flight() > 0 {
            core.turn(Wait::one()).unwrap();
        }
    }
    assert!(core.table.running.iter().next().is_none());
}

#[test]
fn a_look_up_through_many_buckets_needs_memory_for_one() {
    let mut core = core();
    let superblock = &core.table.volume.as_ref().unwrap().superblock;
    let (seed, buckets) = (superblock.hash_seed, superblock.layout().buckets());
    let is_home = |name: &String| {
        Key::segment(ME.uid, SegmentName::new(name).unwrap())
            .hash(&seed)
            .is_multiple_of(buckets)
    };
    let mut names = (0..).map(|nth| format!("segment {nth}")).filter(is_home);
    // Four fill a bucket.
    for name in names.by_ref().take(4) {
        core.create(ME, ME.uid, &name, &CreateOptions::of_size(4096)).unwrap();
    }
    let one = core.buffer(BUCKET_BYTES as usize).unwrap();
    let mut all = Vec::new();
    for size in [1 << 20, 64 << 10, 4096] {
        all.extend(std::iter::from_fn(|| core.buffer(size).ok()));
    }
    drop(one);
    let missing = names.next().unwrap();
    let error = core.open_segment(ME, ME.uid, &missing, Access::Read).unwrap_err();
    assert!(matches!(error.fault, Fault::NotFound), "{error}");
}

#[test]
fn who_waits_for_a_segment_is_not_asked_when_a_request_on_another_one_ends() {
    let mut core = core();
    let [data, other] = ["data", "other"].map(|name| core.open_segment(ME, ME.uid, name, Access::Read).unwrap().0);
    core.lane.objects.begin(data);
    let subject = core.subject("delete", ME, ME.uid, "data").unwrap();
    let delete = core.begin(delete(subject, OperationName::NONE));
    while core.lane.awaited.is_empty() {
        core.turn(Wait::one()).unwrap();
    }
    core.lane.objects.begin(other);
    let walks = WALKS.get();
    core.lane.handle_idle(other);
    assert_eq!(WALKS.get(), walks);
    core.lane.handle_idle(data);
    ended(&mut core, &delete).unwrap();
}

/// Begins to move a segment of many chunks, with a handle on it on which something is under way; gives the move when it has begun to copy.
fn move_a_busy_segment(core: &mut Core) -> (OperationId, Handle) {
    core.create(ME, ME.uid, "large", &CreateOptions::of_size(2 << 20))
        .unwrap();
    let (handle, _) = core.open_segment(ME, ME.uid, "large", Access::Read).unwrap();
    core.lane.objects.begin(handle);
    let moving = core.begin_move(ME, ME.uid, "large", Some(1000)).unwrap();
    while !matches!(core.operation_progress(&moving), Some(Progress::Bytes { done, .. }) if done > 0) {
        core.turn(Wait::one()).unwrap();
    }
    (moving, handle)
}

fn is_called_off(answer: Result<Answer>) -> bool {
    matches!(answer, Err(error) if matches!(error.fault, Fault::Io(baio_engine::Error::Cancelled)))
}

fn where_it_lives(core: &mut Core, name: &str) -> (u64, &'static str) {
    let list = core.list(ME).unwrap();
    let info = list.into_iter().find(|info| info.name == name).unwrap();
    (info.start_block, info.state)
}

#[test]
fn a_delete_that_is_called_off_stops_no_move() {
    let mut core = core();
    let (moving, _) = move_a_busy_segment(&mut core);
    let delete = core.begin_delete(ME, ME.uid, "large").unwrap();
    while core.table.waiting_for_claim.is_empty() {
        core.turn(Wait::one()).unwrap();
    }
    core.call_off_operation(&delete);
    assert!(is_called_off(ended(&mut core, &delete)));
    ended(&mut core, &moving).expect("it goes on to its end");
    assert_eq!(where_it_lives(&mut core, "large"), (1000, "live"));
}

#[test]
fn a_move_that_was_stopped_for_a_delete_that_is_called_off_goes_on() {
    let mut core = core();
    let (moving, handle) = move_a_busy_segment(&mut core);
    let delete = core.begin_delete(ME, ME.uid, "large").unwrap();
    while core.lane.awaited.is_empty() {
        core.turn(Wait::one()).unwrap();
    }
    let stopped = core.take_answer(&moving).expect("it has ended").unwrap_err();
    assert!(matches!(stopped.fault, Fault::MoveStopped { .. }), "{stopped}");
    core.call_off_operation(&delete);
    core.lane.handle_idle(handle);
    assert!(is_called_off(ended(&mut core, &delete)));
    while core.in_flight() > 0 {
        core.turn(Wait::one()).unwrap();
    }
    assert_eq!(where_it_lives(&mut core, "large"), (1000, "live"));
}

/// What is not shown to whoever asks is not looked for: a walk through the bitmap takes 10 ms of everybody's time for 4 TiB.
#[test]
fn who_is_not_shown_the_longest_free_run_begins_no_walk_for_it() {
    let mut core = core();
    let too_much = CreateOptions::of_size(1 << 40);
    let before = BITMAP_WALKS.get();
    let refused = core.create(ME, ME.uid, "new", &too_much).unwrap_err();
    assert!(
        matches!(refused.fault, Fault::NoSpace { largest: None, .. }),
        "{refused}"
    );
    assert_eq!(BITMAP_WALKS.get(), before);
    let refused = core.create(Identity::new(0, 0), 0, "new", &too_much).unwrap_err();
    assert!(
        matches!(refused.fault, Fault::NoSpace { largest: Some(_), .. }),
        "{refused}"
    );
    assert_eq!(BITMAP_WALKS.get(), before + 1);
}

#[test]
fn a_core_with_operations_moves_to_another_thread() {
    fn moves<T: Send>() {}
    moves::<Core>();
}
