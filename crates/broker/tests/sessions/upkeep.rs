//! A volume that is checked and packed while clients use it.

use baio_words::session::{Answer, Question};
use baio_words::{CheckReport, DefragReport, OperationName};

use crate::house::{House, STRANGER, Victim, is_root};
use crate::raw::{Client, create};

fn check(client: &mut Client) -> CheckReport {
    match client.ask(&Question::Check) {
        Answer::Checked(words) => *words,
        other => panic!("{other:?}"),
    }
}

fn defrag(client: &mut Client) -> DefragReport {
    match client.ask(&Question::Defrag) {
        Answer::Defragged(words) => *words,
        other => panic!("{other:?}"),
    }
}

/// Forty segments, and no two of the left ones are neighbours: twenty of them have to move, more than that where one has to hop.
fn with_gaps(client: &mut Client) {
    let owner_uid = client.uid();
    for at in 0..40 {
        client.create(&format!("s{at}"), 512 << 10);
    }
    for at in (0..40).step_by(2) {
        let answer = client.ask(&Question::Delete {
            operation: OperationName::NONE,
            owner_uid,
            name: format!("s{at}"),
        });
        assert!(matches!(answer, Answer::Segment { .. }), "{answer:?}");
    }
}

#[test]
fn a_volume_is_checked_and_packed_while_others_use_it() {
    let house = House::cached();
    let mut victim = Victim::new(&house);
    let mut client = house.client();
    with_gaps(&mut client);
    let before = check(&mut client);
    assert!(before.problems.is_empty() && before.untold == 0, "{before:?}");
    assert_eq!((before.segments, before.clean), (21, false));
    let packing = client.pose(&Question::Defrag);
    victim.goes_on();
    let Answer::Defragged(packed) = client.answer(packing) else {
        panic!()
    };
    assert!(
        packed.moved_segments >= 20 && packed.moved_bytes >= 20 * (512 << 10),
        "{packed:?}"
    );
    assert!(packed.unmoved.is_empty() && packed.largest_free_bytes > packed.largest_free_before_bytes);
    assert_eq!(packed.largest_free_bytes, packed.free_bytes);
    victim.goes_on();
    assert!(check(&mut client).problems.is_empty());
    assert_eq!(defrag(&mut client).moves, 0);
    house.ends();
}

/// The broker hears its clients between two moves: so it can be called off, and who goes takes it along.
#[test]
fn a_packing_that_is_called_off_ends_with_the_move_under_way() {
    let house = House::new();
    let mut victim = Victim::new(&house);
    let mut client = house.client();
    with_gaps(&mut client);
    let packing = client.pose(&Question::Defrag);
    client.pose(&Question::Cancel { question: packing });
    let Answer::Defragged(first) = client.answer(packing) else {
        panic!()
    };
    assert!(first.moves < 20, "{first:?}");
    client.pose(&Question::Defrag);
    drop(client);
    victim.is_left_with(1);
    let mut client = house.client();
    assert!(defrag(&mut client).moves > 0, "it has packed for one who has gone");
    victim.goes_on();
    house.ends();
}

/// A check that waits behind a freeze can be called off too, and so can a freeze: both are answered.
#[test]
fn what_waits_for_a_frozen_volume_is_called_off() {
    let house = House::new();
    let mut client = house.client();
    let Answer::Frozen { freeze } = client.ask(&Question::Freeze) else {
        panic!()
    };
    let uid = client.uid();
    let waiting = client.pose(&create(uid, "later", 4096));
    let checking = client.pose(&Question::Check);
    client.pose(&Question::Cancel { question: checking });
    match client.answer(checking) {
        Answer::Failed(failed) => assert_eq!(failed.code, "ECANCELED"),
        // The volume stands still, so it may be checked at once.
        Answer::Checked(words) => assert!(words.problems.is_empty()),
        other => panic!("{other:?}"),
    }
    assert_eq!(client.ask(&Question::Thaw { freeze }), Answer::Done);
    assert!(matches!(client.answer(waiting), Answer::Segment { .. }));
    house.ends();
}

/// Whose the volume is not learns nothing of others, not even how much is free; nor may it take the device's time.
#[test]
fn a_stranger_neither_checks_nor_packs() {
    if !is_root() {
        return;
    }
    let house = House::new();
    let mut client = house.client();
    with_gaps(&mut client);
    let mut other = house.client_of(STRANGER);
    other.create("its own", 4096);
    for question in [Question::Check, Question::Defrag] {
        let answer = other.ask(&question);
        let Answer::Failed(failed) = answer else {
            panic!("{question:?}: {answer:?}")
        };
        assert_eq!(failed.code, "EACCES", "{question:?}");
        assert!(!format!("{failed:?}").contains("/tmp"), "the host's path: {failed:?}");
    }
    house.ends();
}

/// Threads of this process that check a volume.
fn checks() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    names.filter(|name| name.trim() == "baio-check").count()
}

/// Who begins checks and calls them off does not gather threads, each with its memory, that read the volume for nobody.
#[test]
fn a_check_that_is_called_off_reads_no_more() {
    let house = House::of_segments(16 << 10);
    let mut client = house.client();
    let mut most = 0;
    for _ in 0..64 {
        let checking = client.pose(&Question::Check);
        client.pose(&Question::Cancel { question: checking });
        client.answer(checking);
        most = most.max(checks());
    }
    assert!(most < 16, "{most} threads check");
    house.ends();
}
