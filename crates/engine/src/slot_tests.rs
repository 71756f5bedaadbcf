//! The table: ids, states, room.

use super::*;

fn request() -> Request {
    Request::bare(Op::Timer { at: Time(0) }, None, Policy::direct())
}

#[test]
fn a_stale_id_finds_nothing() {
    let mut slots = Slots::new(1);
    let old = slots.insert(request(), 0).unwrap();
    slots.remove(old);
    let new = slots.insert(request(), 1).unwrap();
    assert_eq!(old.slot, new.slot);
    assert!(slots.get(old).is_none());
    assert!(slots.get(new).is_some());
}

#[test]
fn a_full_table_hands_the_request_back() {
    let mut slots = Slots::new(2);
    slots.insert(request(), 0).unwrap();
    slots.insert(request(), 1).unwrap();
    let back = slots.insert(request().tagged(7), 2).unwrap_err();
    assert_eq!(back.tag, 7);
}

#[test]
#[should_panic(expected = "cannot go from Queued to Abandoned")]
fn an_illegal_move_is_caught() {
    let mut slots = Slots::new(1);
    let id = slots.insert(request(), 0).unwrap();
    slots.transition(id, State::Abandoned);
}

#[test]
fn ids_survive_the_trip_through_the_kernel() {
    let mut slots = Slots::new(1024);
    for generation in [0, u64::from(u32::MAX), 1 << 32, 0x1234_5678_9abc] {
        slots.slots[0].generation = generation;
        let id = slots.insert(request(), 0).unwrap();
        assert_eq!(slots.named(id.to_bits()), id);
        slots.remove(id);
        assert!(slots.get(slots.named(id.to_bits())).is_none(), "it has ended");
    }
    assert!(slots.get(slots.named(u64::MAX)).is_none());
}

/// A slot that is always the first to be taken is used 2^32 times within an hour or so.
#[test]
fn a_stale_id_finds_nothing_however_often_its_slot_was_used_since() {
    let mut slots = Slots::new(1);
    let old = slots.insert(request(), 0).unwrap();
    slots.remove(old);
    slots.slots[0].generation = slots.slots[0].generation.wrapping_add(u32::MAX.into());
    slots.insert(request(), 1).unwrap();
    assert!(slots.get(old).is_none());
}

#[test]
fn timers_that_end_together_end_in_their_order() {
    let mut slots = Slots::new(8);
    let mut ended: Vec<(RequestId, i32)> = [5, 3, 9, 3]
        .into_iter()
        .enumerate()
        .map(|(sequence, at)| {
            let timer = Request::bare(Op::Timer { at: Time(at) }, None, Policy::direct());
            (slots.insert(timer, sequence as u64).unwrap(), -libc::ETIME)
        })
        .collect();
    let cancelled = slots.insert(request(), 9).unwrap();
    ended.insert(1, (cancelled, -libc::ECANCELED));
    let [five, _, three, nine, also_three] = ended[..] else {
        panic!()
    };
    let expected = [three, ended[1], also_three, five, nine];
    slots.in_the_order_of_time(&mut ended, &mut Vec::new());
    assert_eq!(ended, expected);
}
