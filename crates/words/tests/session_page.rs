//! `docs/inside/shm-protocol.md` is what others write their clients from: its tables of numbers and its examples are what the code does.

use std::collections::BTreeSet;

use baio_words::entry::{Completion, HandleWords, Limits, Op, Place, Submission, Tag};
use baio_words::session::{
    Answer, FEATURE_LOGS, FINDING_TEXT_MAX, FINDINGS_MAX, FromBroker, FromClient, Hello, MESSAGE_MAX, NAME_MAX,
    OWNERS_MAX, Question, RANGES_MAX, RingAt, TEXT_MAX, WARNINGS_MAX, Welcome,
};
use baio_words::{
    Access, CacheError, Caching, CheckReport, DefragReport, Durability, FEATURES, Failure, Handle, IoError, LogClaim,
    Mode, Problem, ProblemPlace, Repair, SegmentInfo,
};

const PAGE: &str = include_str!("../../../docs/inside/shm-protocol.md");

/// The bytes of an example: what stands on its lines before three spaces.
fn example(name: &str) -> Vec<u8> {
    let fence = format!("```hex {name}\n");
    let (_, block) = PAGE.split_once(&fence).unwrap_or_else(|| panic!("no example `{name}`"));
    let (block, _) = block.split_once("```").unwrap();
    let words = block
        .lines()
        .flat_map(|line| line.split("   ").next().unwrap_or("").split_whitespace());
    let bytes: Vec<u8> = words.map(|word| u8::from_str_radix(word, 16).unwrap()).collect();
    assert!(!bytes.is_empty());
    bytes
}

/// The words between backquotes of a list.
fn list(name: &str) -> Vec<&'static str> {
    let row = format!("| {name} | `");
    let (_, words) = PAGE.split_once(&row).unwrap_or_else(|| panic!("no list `{name}`"));
    let (words, _) = words.split_once("` |\n").unwrap();
    words.split("`, `").collect()
}

#[test]
fn the_table_has_every_kind_and_no_other() {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `0x"));
    let told: Vec<(u16, &str)> = rows
        .map(|row| {
            let mut cells = row.split(" | ");
            let kind = cells.next().unwrap().strip_suffix('`').unwrap();
            (u16::from_str_radix(kind, 16).unwrap(), cells.next().unwrap())
        })
        .collect();
    let mut known = vec![(1, "hello"), (2, "welcome")];
    known.extend(Question::KINDS);
    known.extend(Answer::KINDS);
    assert_eq!(told, known);
}

#[test]
fn the_greeting_of_the_example_is_what_the_code_says() {
    let hello = Hello {
        version_min: 1,
        version_max: 1,
        features: 0,
        places: 64,
        arena_bytes: 0,
        volume: "data".to_owned(),
    };
    assert_eq!(hello.encode(), example("hello"));
    assert_eq!(FromClient::decode(&example("hello")), Ok(FromClient::Hello(hello)));
    let welcome = Welcome {
        version: 1,
        features: 0,
        places: 16,
        questions_max: 8,
        uid: 1000,
        memory_bytes: 0x10_1000,
        submissions: RingAt {
            head: 0,
            tail: 0x40,
            sleeping: 0x80,
            cells: 0x180,
            entries: 32,
        },
        completions: RingAt {
            head: 0xc0,
            tail: 0x100,
            sleeping: 0x140,
            cells: 0x980,
            entries: 16,
        },
        arena_at: 0x1000,
        arena_bytes: 1 << 20,
        volume: "data".to_owned(),
        cached: true,
        block_size: 4096,
    };
    assert_eq!(welcome.encode(), example("welcome"));
    assert_eq!(
        FromBroker::decode(&example("welcome")),
        Ok(FromBroker::Welcome(welcome))
    );
}

#[test]
fn the_opening_of_the_example_is_what_the_code_says() {
    let open = Question::Open {
        owner_uid: 1000,
        name: "logs".to_owned(),
        access: Access::Write,
    };
    assert_eq!(open.encode(7).unwrap(), example("open"));
    let opened = Answer::Opened {
        handle: Handle::from_parts(0, 2, 5),
        access: Access::Write,
        info: SegmentInfo {
            name: "logs".to_owned(),
            owner_uid: 1000,
            owner_gid: 100,
            mode: 0o640,
            size_bytes: 1 << 20,
            reserve_bytes: 2 << 20,
            state: "live",
            // What is known of it and not sent.
            start_block: 77,
            uuid: [9; 16],
        },
    };
    assert_eq!(opened.encode(7).unwrap(), example("opened"));
}

#[test]
fn the_check_of_the_example_is_what_the_code_says() {
    assert_eq!(Question::Check.encode(8).unwrap(), example("check"));
    let problem = Problem {
        kind: "image",
        place: ProblemPlace {
            object: "bucket 7".to_owned(),
            offset: 0x9000,
        },
        what: "bad".to_owned(),
        repair: Repair::Repairable,
    };
    let checked = Answer::Checked(Box::new(CheckReport {
        problems: vec![problem],
        untold: 0,
        clean: false,
        buckets: 16,
        segments: 2,
        owners: 1,
        blocks: 4096,
        free_blocks: 4000,
        ..CheckReport::default()
    }));
    assert_eq!(checked.encode(8).unwrap(), example("checked"));
    let defragged = Answer::Defragged(Box::new(DefragReport {
        moves: 1,
        moved_segments: 1,
        moved_bytes: 1 << 20,
        largest_free_before_bytes: 1 << 20,
        largest_free_bytes: 1 << 21,
        free_bytes: 1 << 21,
        unmoved: Vec::new(),
        untold: 0,
    }));
    assert_eq!(defragged.encode(9).unwrap(), example("defragged"));
}

#[test]
fn the_claim_of_the_example_is_what_the_code_says() {
    assert!(PAGE.contains(&format!("Feature 8 (bit 8, value `{FEATURE_LOGS:#x}`): [logs](#logs)")));
    let handle = Handle::from_parts(0, 2, 5);
    assert_eq!(Question::ClaimLog { handle }.encode(8).unwrap(), example("claim log"));
    let claimed = Answer::LogClaimed(LogClaim {
        handle: Handle::from_parts(7, 3, 0),
        size_bytes: 1 << 20,
        block_bytes: 512,
        flushes: true,
    });
    assert_eq!(claimed.encode(8).unwrap(), example("log claimed"));
}

fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    assert_eq!(bytes.len(), N * 8);
    std::array::from_fn(|at| u64::from_le_bytes(bytes[at * 8..][..8].try_into().unwrap()))
}

#[test]
fn the_request_of_the_example_is_what_the_code_says() {
    let tag = Tag {
        index: 3,
        generation: 1,
    };
    let write = Submission {
        handle: HandleWords {
            index: 2,
            generation: 5,
        },
        offset: 8192,
        place: Place::Arena { at: 0, len: 4096 },
        mode: Mode::Direct,
        durability: Durability::Data,
        ..Submission::new(Op::Write, tag)
    };
    let limits = Limits {
        places: 16,
        arena_bytes: 1 << 20,
    };
    assert_eq!(Submission::decode(&words(&example("submission")), &limits), Ok(write));
    let done = Completion {
        tag,
        result: Ok(4096),
        bytes_done: 4096,
        took: Caching::Direct,
        iterations: 1,
    };
    assert_eq!(Completion::decode(&words(&example("completion"))), Some(done));
}

/// What a completion with this code and these details says.
fn failure(code: u8, small: u32, second: u32, large: u64) -> Option<Failure> {
    let raw = [
        0,
        u64::from(code) << 32,
        u64::from(small) | u64::from(second) << 32,
        large,
    ];
    Completion::decode(&raw).and_then(|completion| completion.result.err())
}

#[test]
fn the_table_has_every_code_and_no_other() {
    let (_, table) = PAGE.split_once("| code | failure |").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let first = |row: &str| row.strip_prefix("| ")?.split(' ').next()?.parse().ok();
    let told: BTreeSet<u8> = table.lines().filter_map(first).collect();
    // 5 is an error number, and 0 an argument: whatever the code, its details can be.
    let known: BTreeSet<u8> = (1..=u8::MAX).filter(|code| failure(*code, 5, 0, 0).is_some()).collect();
    assert_eq!(told, known);
}

#[test]
fn the_lists_have_the_words_of_the_code() {
    for (at, word) in list("operations").into_iter().enumerate() {
        match failure(3, at as u32, 0, 0) {
            Some(Failure::Io(IoError::Unsupported { operation, .. })) => assert_eq!(operation, word),
            other => panic!("{other:?}"),
        }
    }
    for (at, word) in list("backends").into_iter().enumerate() {
        match failure(3, 0, at as u32, 0) {
            Some(Failure::Io(IoError::Unsupported { backend, .. })) => assert_eq!(backend, word),
            other => panic!("{other:?}"),
        }
    }
    for (at, word) in list("modes").into_iter().enumerate() {
        match failure(4, at as u32, 0, 0) {
            Some(Failure::Io(IoError::NoDescription { mode })) => assert_eq!(mode, word),
            other => panic!("{other:?}"),
        }
    }
    // The last word of a list stands for all behind it: none is missing.
    let last = |list: Vec<&'static str>| *list.last().unwrap();
    let unsupported = IoError::Unsupported {
        operation: last(list("operations")),
        backend: last(list("backends")),
    };
    assert_eq!(failure(3, u32::MAX, u32::MAX, 0), Some(Failure::Io(unsupported)));
    let mode = last(list("modes"));
    assert_eq!(
        failure(4, u32::MAX, 0, 0),
        Some(Failure::Io(IoError::NoDescription { mode }))
    );
    assert_eq!(list("features"), FEATURES);

    let cache = list("cache");
    for (word, name) in cache.iter().enumerate() {
        let error = CacheError::from_words(word as u32, 5).unwrap();
        let debug = format!("{error:?}");
        assert_eq!(debug.split('(').next(), Some(*name));
    }
    assert_eq!(CacheError::from_words(cache.len() as u32, 5), None);
}

#[test]
fn the_limits_are_those_of_the_code() {
    for row in [
        format!("| message | {MESSAGE_MAX} bytes |"),
        format!("| name, text | {NAME_MAX}, {TEXT_MAX} bytes |"),
        format!("| ranges of a hint | {RANGES_MAX} |"),
        format!("| warnings of a volume, owners of a status | {WARNINGS_MAX}, {OWNERS_MAX} |"),
        format!(
            "| findings of a defragmentation or a check, a text of one | {FINDINGS_MAX}, {FINDING_TEXT_MAX} bytes |"
        ),
    ] {
        assert!(PAGE.contains(&row), "{row}");
    }
}
