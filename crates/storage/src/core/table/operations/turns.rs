//! Whose turn it is with the table, and how whoever waits for one is called off. What is counted is turns and answers, never time.

use std::collections::VecDeque;

use super::tests::{ME, core};
use super::*;
use crate::identity::{Access, Identity};
use crate::operation::create::CreateOptions;
use crate::operation::resize::ResizeOptions;
use crate::volume::accounts::Limits;

const OTHER: Identity = Identity::new(8, 8);
const ROOT: Identity = Identity::new(0, 0);

fn create(core: &mut Core, who: Identity, name: &str, bytes: u64) -> OperationId {
    let options = CreateOptions::of_size(bytes);
    core.begin_create(who, who.uid, name, &options).unwrap()
}

/// Turns until this one has its answer; how many of the others had theirs before.
fn ended_before(core: &mut Core, id: &OperationId, others: &mut VecDeque<OperationId>) -> usize {
    let mut ended = 0;
    loop {
        let before = others.len();
        others.retain(|other| core.take_answer(other).is_none());
        ended += before - others.len();
        if core.take_answer(id).map(|answer| answer.unwrap()).is_some() {
            return ended;
        }
        core.turn(Wait::one()).unwrap();
    }
}

fn is_cancelled(answer: Option<Result<Answer>>) -> bool {
    matches!(answer, Some(Err(error)) if matches!(error.fault, Fault::Io(baio_engine::Error::Cancelled)))
}

#[test]
fn a_change_waits_for_one_of_each_other_user_and_not_for_all() {
    let mut core = core();
    let mut flood = (0..40)
        .map(|nth| create(&mut core, ME, &format!("f{nth}"), 4096))
        .collect();
    let own = create(&mut core, OTHER, "own", 4096);
    let before = ended_before(&mut core, &own, &mut flood);
    // It takes two turns of the table, so it waits for two of the other's.
    assert!(before <= 4, "{before} of another user's came first");
}

#[test]
fn an_open_waits_for_no_list() {
    let mut core = core();
    create(&mut core, OTHER, "own", 4096);
    while core.in_flight() > 0 {
        core.turn(Wait::one()).unwrap();
    }
    let mut lists = (0..30).map(|_| core.begin_list(ME).unwrap()).collect();
    let own = core.begin_open(OTHER, OTHER.uid, "own", Access::Read).unwrap();
    let before = ended_before(&mut core, &own, &mut lists);
    assert!(before <= 1, "{before} lists came first");
}

#[test]
fn whatever_waits_for_a_turn_ends_at_once_when_it_is_called_off() {
    type Begin = fn(&mut Core) -> Result<OperationId>;
    let begins: [(&str, Begin); 8] = [
        ("create", |core| {
            core.begin_create(ME, ME.uid, "new", &CreateOptions::of_size(4096))
        }),
        ("delete", |core| core.begin_delete(ME, ME.uid, "data")),
        ("open", |core| core.begin_open(ME, ME.uid, "data", Access::Read)),
        ("rename", |core| core.begin_rename(ME, ME.uid, "data", "new")),
        ("resize", |core| {
            core.begin_resize(ME, ME.uid, "data", &ResizeOptions::to_size(4096))
        }),
        ("set quota", |core| core.begin_set_quota(ROOT, 9, Limits::default())),
        ("list", |core| core.begin_list(ME)),
        ("check", |core| core.begin_check(ROOT)),
    ];
    for (name, begin) in begins {
        let mut core = core();
        let free = core.volume_info().unwrap().free_bytes;
        // It has the token.
        let first = core.begin_delete(ME, ME.uid, "other").unwrap();
        let waits = begin(&mut core).unwrap();
        core.call_off_operation(&waits);
        if name == "check" {
            core.turn(Wait::No).unwrap(); // It may have a thread, so it is asked first.
        }
        assert!(is_cancelled(core.take_answer(&waits)), "{name} goes on");
        let mut none = VecDeque::new();
        ended_before(&mut core, &first, &mut none);
        assert_eq!(
            core.volume_info().unwrap().free_bytes,
            free + 8192,
            "{name} has left nothing"
        );
        // The token goes round, and the volume changes as ever.
        let again = create(&mut core, ME, "again", 4096);
        ended_before(&mut core, &again, &mut none);
    }
}

#[test]
fn zeroes_end_when_they_are_called_off_and_their_blocks_are_free() {
    let mut core = core();
    let free = core.volume_info().unwrap().free_bytes;
    let id = create(&mut core, ME, "large", 5 << 20);
    while core
        .operation_progress(&id)
        .is_none_or(|progress| matches!(progress, Progress::Bytes { done: 0, .. }))
    {
        core.turn(Wait::one()).unwrap();
    }
    core.call_off_operation(&id);
    let mut turns = 0;
    let answer = loop {
        match core.take_answer(&id) {
            Some(answer) => break Some(answer),
            None => drop(core.turn(Wait::one()).unwrap()),
        }
        turns += 1;
    };
    assert!(is_cancelled(answer) && turns <= 16, "{turns} turns");
    assert_eq!(core.volume_info().unwrap().free_bytes, free);
}

/// A resize that moves has a record that says so: whenever it is called off, the segment lies in one place at its end.
#[test]
fn a_resize_that_moves_leaves_nothing_half_moved_when_it_is_called_off() {
    let mut core = core();
    let free = core.volume_info().unwrap().free_bytes;
    // "other" lies behind it, so it moves.
    let id = core
        .begin_resize(ME, ME.uid, "data", &ResizeOptions::to_size(3 << 20))
        .unwrap();
    while core
        .operation_progress(&id)
        .is_none_or(|progress| !matches!(progress, Progress::Bytes { done, .. } if done > 8192))
    {
        core.turn(Wait::one()).unwrap();
    }
    core.call_off_operation(&id);
    let answer = loop {
        match core.take_answer(&id) {
            Some(answer) => break answer,
            None => drop(core.turn(Wait::one()).unwrap()),
        }
    };
    answer.expect("it ends");
    assert_eq!(core.volume_info().unwrap().free_bytes, free + 8192 - (3 << 20));
}

#[test]
fn a_list_that_is_called_off_ends_at_its_next_step() {
    let mut core = core();
    let id = core.begin_list(ME).unwrap();
    core.call_off_operation(&id);
    core.turn(Wait::one()).unwrap();
    assert!(is_cancelled(core.take_answer(&id)));
    // So does one that nobody wants any more: its place is free.
    let id = core.begin_list(ME).unwrap();
    core.abandon_operation(id);
    core.turn(Wait::one()).unwrap();
    assert!(core.table.running.iter().next().is_none());
}

/// Whatever was asked, the end takes as many turns as what is at the device.
#[test]
fn a_core_that_winds_down_ends_in_few_turns() {
    let mut core = core();
    let mut all: Vec<OperationId> = Vec::new();
    for nth in 0..200 {
        all.push(create(&mut core, ME, &format!("f{nth}"), 4096));
        all.push(core.begin_list(OTHER).unwrap());
        all.push(core.begin_open_known(OTHER, 8, "gone", Access::Read, [7; 16]).unwrap());
        all.push(core.begin_delete(ME, ME.uid, "data").unwrap());
    }
    core.wind_down();
    let mut turns = 0;
    while core.in_flight() > 0 {
        core.turn(Wait::one()).unwrap();
        turns += 1;
    }
    assert!(turns <= 16, "{turns} turns");
    let answers = all.iter().map(|id| core.take_answer(id).expect("an answer"));
    let called_off = answers.filter(Result::is_err).count();
    assert!(called_off >= 790, "{called_off} of 800");
    // And nothing begins any more.
    let late = core.begin_list(ME).unwrap();
    assert!(is_cancelled(core.take_answer(&late)));
}
