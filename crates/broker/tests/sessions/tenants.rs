//! Users that share a broker and must not see each other. Needs root, to be several users.

use baio_words::session::{Answer, Question};
use baio_words::{Access, Limits, OperationName, ResizeOptions};

use crate::house::{House, STRANGER, Victim, is_root, opens, status};
use crate::raw::{BLOCK, Client, create, hello};

const OTHER: u32 = STRANGER + 1;

fn with_mode(client: &Client, name: &str, mode: u32, group: Option<u32>) -> Question {
    let mut question = create(client.uid(), name, 4096);
    if let Question::Create { options, .. } = &mut question {
        (options.mode, options.group) = (mode, group);
    }
    question
}

fn names(client: &mut Client) -> Vec<String> {
    match client.ask(&Question::List) {
        Answer::Segments { infos, .. } => infos.into_iter().map(|info| info.name).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_connects_is_who_asks() {
    if !is_root() {
        return;
    }
    let house = House::new();
    let mut one = house.client_of(STRANGER);
    assert_eq!(one.uid(), STRANGER);
    let mut other = house.client_of(OTHER);
    let handle = one.made("secret", 4096);
    assert_eq!(one.write(handle, 0, &[7; BLOCK as usize]).result, Ok(BLOCK));
    // Not to be opened, nor listed, nor changed, nor made in another's name.
    assert_eq!(opens(&mut other, STRANGER, "secret"), Err("EACCES".to_owned()));
    assert!(names(&mut other).is_empty());
    let (owner_uid, operation) = (STRANGER, OperationName::NONE);
    let name = || "secret".to_owned();
    for question in [
        create(STRANGER, "planted", 4096),
        Question::Delete {
            operation,
            owner_uid,
            name: name(),
        },
        Question::Resize {
            operation,
            owner_uid,
            name: name(),
            options: ResizeOptions::to_size(8192),
        },
        Question::Rename {
            operation,
            owner_uid,
            old: name(),
            new: "mine".into(),
        },
        Question::Quota { uid: STRANGER },
        Question::SetQuota {
            uid: OTHER,
            limits: Limits::default(),
        },
        Question::Freeze,
    ] {
        let answer = other.ask(&question);
        let Answer::Failed(failed) = answer else {
            panic!("{question:?}: {answer:?}")
        };
        assert!(matches!(&*failed.code, "EACCES" | "EPERM"), "{question:?}: {failed:?}");
        assert!(!format!("{failed:?}").contains("/tmp"), "the host's path: {failed:?}");
    }
    let Answer::Volume(volume) = other.ask(&Question::Info) else {
        panic!()
    };
    assert!(volume.whole.is_none() && volume.own.used.segments == 0);
    assert_eq!(one.read(handle, 0, BLOCK).1, [7; BLOCK as usize]);
    house.ends();
}

/// In the machine's own user namespace every user is known, so this one is a user like others.
#[test]
fn nobody_is_a_user_where_every_user_is_known() {
    const NOBODY: u32 = 65534;
    if !is_root() {
        return;
    }
    let house = House::new();
    let wire = house.wire_of(NOBODY, NOBODY, &[]);
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap();
    if map.split_whitespace().eq(["0", "0", "4294967295"]) {
        let mut client = wire.greet(&hello()).unwrap();
        assert_eq!(client.uid(), NOBODY);
        client.made("its own", 4096);
        let mut other = house.client_of(STRANGER);
        assert_eq!(opens(&mut other, NOBODY, "its own"), Err("EACCES".to_owned()));
    } else {
        wire.goes_out("who looks like all that are not known");
    }
    house.ends();
}

/// A socket that was opened by one user and is used by another is the first one's: that is how sockets are handed over.
#[test]
fn modes_and_groups_are_as_of_files() {
    if !is_root() {
        return;
    }
    const GROUP: u32 = 7777;
    let house = House::new();
    let mut owner = house.wire_of(STRANGER, STRANGER, &[GROUP]).greet(&hello()).unwrap();
    let made = with_mode(&owner, "of the group", 0o640, Some(GROUP));
    assert!(matches!(owner.ask(&made), Answer::Segment { .. }));
    let public = with_mode(&owner, "of all", 0o604, None);
    assert!(matches!(owner.ask(&public), Answer::Segment { .. }));
    // By a supplementary group, among many; by the main group; by none.
    let many: Vec<u32> = (100..300).chain([GROUP]).collect();
    let mut member = house.wire_of(OTHER, OTHER, &many).greet(&hello()).unwrap();
    let mut by_main = house.wire_of(OTHER, GROUP, &[]).greet(&hello()).unwrap();
    let mut nobody = house.wire_of(OTHER, OTHER, &[1, 2]).greet(&hello()).unwrap();
    assert!(opens(&mut member, STRANGER, "of the group").is_ok());
    assert!(opens(&mut by_main, STRANGER, "of the group").is_ok());
    assert_eq!(opens(&mut nobody, STRANGER, "of the group"), Err("EACCES".to_owned()));
    let written = member.open_of(STRANGER, "of the group", Access::Write);
    assert_eq!(written, Err("EACCES".to_owned()));
    assert!(opens(&mut nobody, STRANGER, "of all").is_ok());
    // Into a group that one is not in, nothing is put.
    let answer = {
        let foreign = with_mode(&nobody, "smuggled", 0o660, Some(GROUP));
        nobody.ask(&foreign)
    };
    assert!(matches!(answer, Answer::Failed(_)), "{answer:?}");
    house.ends();
}

#[test]
fn a_status_shows_a_stranger_its_own_row() {
    if !is_root() {
        return;
    }
    let house = House::new();
    let mut root = Victim::new(&house);
    let mut one = house.client_of(STRANGER);
    let mut other = house.client_of(OTHER);
    one.made("its own", 4096);
    let seen = status(&mut one);
    assert_eq!(seen.owners.iter().map(|row| row.uid).collect::<Vec<_>>(), [STRANGER]);
    assert_eq!((seen.owners[0].clients, seen.owners[0].handles), (1, 1));
    assert_eq!(seen.sessions_ended, 0);
    assert_eq!(status(&mut other).owners.len(), 1);
    let mut all: Vec<u32> = root.status().owners.iter().map(|row| row.uid).collect();
    all.sort_unstable();
    assert_eq!(all, [0, STRANGER, OTHER]);
    house.ends();
}

#[test]
fn what_is_handed_on_is_charged_to_who_did() {
    if !is_root() {
        return;
    }
    let house = House::new();
    let mut one = house.client_of(STRANGER);
    let handle = one.made("its own", 4096);
    let access = Access::Read;
    let id = one.pose(&Question::HandOn {
        handle: handle.into(),
        access,
    });
    let (_, mut fds) = one.answer_with(id);
    // Root has it now, and is no more than who handed it on.
    let mut theirs = crate::raw::Wire::of(fds.remove(0)).greet(&hello()).unwrap();
    assert_eq!(theirs.uid(), STRANGER);
    assert_eq!(theirs.refusal(&Question::Freeze), "EACCES");
    assert_eq!(status(&mut one).owners[0].clients, 2);
    house.ends();
}

/// One user fills every place that it can have, with requests that wait. Another one's are served.
#[test]
fn one_user_cannot_take_what_another_needs() {
    if !is_root() {
        return;
    }
    let house = House::with(baio_broker::host::Options {
        clients_max: 16,
        clients_of_one_max: 8,
        ..Default::default()
    });
    let mut greedy: Vec<Client> = (0..8).map(|_| house.client_of(STRANGER)).collect();
    house
        .wire_of(STRANGER, STRANGER, &[])
        .goes_out("one connection too many");
    let mut victim = Victim::of(house.client_of(OTHER));
    for client in &mut greedy {
        let handle = client.made_once("greed", 1 << 20);
        for place in 0..client.welcome.places {
            let entry = client.entry(baio_words::entry::Op::Write, place, handle, 0);
            client.push(&entry.encode());
        }
        client.publish();
    }
    for _ in 0..5 {
        victim.goes_on();
    }
    house.ends();
}
