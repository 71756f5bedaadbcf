//! The messages of a session: whatever can be said comes through as it was said, in one form of bytes; whatever else arrives
//! is refused with the place and the reason, and never by a panic.

use std::ops::Range;
use std::time::Duration;

use baio_words::session::{
    Answer, BrokerStatus, Failed, FromBroker, FromClient, Hello, MESSAGE_MAX, Malformed, OwnerStatus, Question, RingAt,
    WARNINGS_MAX, Welcome, pieces,
};
use baio_words::{
    Access, Account, CheckReport, CreateOptions, DefragReport, Handle, Hint, Limits, LogClaim, OperationName,
    OwnershipChange, Pattern, Problem, ProblemPlace, Repair, ResizeOptions, SegmentInfo, Sight, Unmoved, Usage,
    VolumeInfo, VolumeView, Zeroing,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

fn name() -> impl Strategy<Value = String> {
    vec(prop_oneof![Just('a'), Just('é'), any::<char>()], 0..60).prop_map(|chars| chars.into_iter().collect())
}

fn access() -> impl Strategy<Value = Access> {
    prop_oneof![Just(Access::Read), Just(Access::Write)]
}

/// As it comes over a border: nobody's yet.
fn handle() -> impl Strategy<Value = Handle> {
    (any::<u32>(), any::<u32>()).prop_map(|(index, generation)| Handle::from_parts(0, index, generation))
}

fn range() -> impl Strategy<Value = Range<u64>> {
    (any::<u64>(), any::<u64>()).prop_map(|(start, end)| start..end)
}

fn limit() -> impl Strategy<Value = Option<u64>> {
    option::of(any::<u64>())
}

fn hint() -> impl Strategy<Value = Hint> {
    let pattern = prop_oneof![Just(Pattern::Unknown), Just(Pattern::Sequential), Just(Pattern::Random)];
    prop_oneof![
        vec(range(), 0..20).prop_map(Hint::Prefetch),
        range().prop_map(Hint::Drop),
        range().prop_map(Hint::Keep),
        range().prop_map(Hint::KeepNoMore),
        pattern.prop_map(Hint::Pattern),
    ]
}

fn operation() -> impl Strategy<Value = OperationName> {
    any::<([u8; 16], bool)>().prop_map(|(id, is_repeat)| OperationName { id, is_repeat })
}

fn create() -> impl Strategy<Value = Question> {
    let zero = prop_oneof![Just(Zeroing::Written), Just(Zeroing::Lazy)];
    let of = (operation(), any::<u32>(), name(), any::<[u64; 2]>(), any::<u32>());
    (of, option::of(any::<u32>()), zero).prop_map(|((operation, owner_uid, name, bytes, mode), group, zero)| {
        Question::Create {
            operation,
            owner_uid,
            name,
            options: CreateOptions {
                size_bytes: bytes[0],
                reserve_bytes: bytes[1],
                zero,
                mode,
                group,
            },
        }
    })
}

/// What changes a segment that exists.
fn change() -> impl Strategy<Value = Question> {
    let of = (operation(), any::<u32>(), name(), name(), any::<u64>(), limit(), 0..5);
    of.prop_map(
        |(operation, owner_uid, name, new, size_bytes, reserve_bytes, which)| match which {
            0 => Question::Delete {
                operation,
                owner_uid,
                name,
            },
            1 | 2 => Question::Resize {
                operation,
                owner_uid,
                name,
                options: ResizeOptions {
                    size_bytes,
                    reserve_bytes,
                    grows_only: which == 2,
                },
            },
            3 => Question::ChangeOwnership {
                operation,
                owner_uid,
                name,
                change: OwnershipChange {
                    owner_uid: reserve_bytes.map(|id| id as u32),
                    owner_gid: (size_bytes % 2 == 0).then_some(size_bytes as u32),
                    mode: (size_bytes % 3 == 0).then_some(0o640),
                },
            },
            _ => Question::Rename {
                operation,
                owner_uid,
                old: name,
                new,
            },
        },
    )
}

fn question() -> impl Strategy<Value = Question> {
    let open = (any::<u32>(), name(), access());
    prop_oneof![
        create(),
        change(),
        open.prop_map(|(owner_uid, name, access)| Question::Open {
            owner_uid,
            name,
            access
        }),
        Just(Question::List),
        Just(Question::Info),
        any::<u32>().prop_map(|uid| Question::Quota { uid }),
        (any::<u32>(), limit(), limit()).prop_map(|(uid, blocks, segments)| Question::SetQuota {
            uid,
            limits: Limits { blocks, segments },
        }),
        (handle(), hint()).prop_map(|(handle, hint)| Question::Hint { handle, hint }),
        Just(Question::Freeze),
        any::<u64>().prop_map(|freeze| Question::Thaw { freeze }),
        handle().prop_map(|handle| Question::Size { handle }),
        (handle(), access()).prop_map(|(handle, access)| Question::HandOn { handle, access }),
        any::<u64>().prop_map(|grant| Question::Revoke { grant }),
        Just(Question::Status),
        Just(Question::Defrag),
        Just(Question::Check),
        Just(Question::Opening),
        (any::<u32>(), name(), access(), proptest::option::of(any::<[u8; 16]>())).prop_map(
            |(owner_uid, name, access, identity)| Question::OpenKnown {
                owner_uid,
                name,
                access,
                identity
            }
        ),
        any::<u32>().prop_map(|question| Question::Cancel { question }),
        handle().prop_map(|handle| Question::ClaimLog { handle }),
        handle().prop_map(|handle| Question::ReleaseLog { handle }),
    ]
}

fn segment() -> impl Strategy<Value = SegmentInfo> {
    (
        name(),
        any::<[u32; 3]>(),
        any::<[u64; 2]>(),
        select(SegmentInfo::STATES.to_vec()),
    )
        .prop_map(|(name, words, bytes, state)| SegmentInfo {
            name,
            owner_uid: words[0],
            owner_gid: words[1],
            mode: words[2],
            size_bytes: bytes[0],
            reserve_bytes: bytes[1],
            state,
            ..SegmentInfo::default()
        })
}

fn account() -> impl Strategy<Value = Account> {
    (any::<[u64; 2]>(), limit(), limit()).prop_map(|(used, blocks, segments)| Account {
        used: Usage {
            blocks: used[0],
            segments: used[1],
        },
        limits: Limits { blocks, segments },
    })
}

fn volume() -> impl Strategy<Value = VolumeView> {
    let view = (any::<[u32; 2]>(), any::<[u64; 8]>(), any::<bool>(), any::<[u8; 16]>());
    let (warnings, sight) = (
        vec(name(), 0..=WARNINGS_MAX),
        prop_oneof![Just(Sight::Whole), Just(Sight::Own)],
    );
    (view, warnings, sight, account()).prop_map(|((words, bytes, clean, uuid), warnings, sight, own)| {
        let info = VolumeInfo {
            uuid,
            format_version: words[0],
            block_size: words[1],
            size_bytes: bytes[0],
            size_bytes_max: bytes[1],
            device_bytes: bytes[2],
            data_at_bytes: bytes[3],
            free_bytes: bytes[4],
            largest_free_bytes: bytes[5],
            segments: bytes[6],
            segments_max: bytes[7],
            clean,
            in_use: None,
            warnings,
        };
        info.seen_with(sight, own)
    })
}

fn owner() -> impl Strategy<Value = OwnerStatus> {
    (any::<[u32; 7]>(), any::<[u64; 5]>()).prop_map(|(words, counts)| {
        let mut owner = OwnerStatus::default();
        [owner.uid, owner.clients, owner.handles, owner.in_flight, owner.held] = [0, 1, 2, 3, 4].map(|at| words[at]);
        [
            owner.requests,
            owner.bytes_read,
            owner.bytes_written,
            owner.errors,
            owner.violations,
        ] = counts;
        [owner.latency_p50, owner.latency_p99] = [5, 6].map(|at| Duration::from_micros(words[at].into()));
        owner
    })
}

fn defragged() -> impl Strategy<Value = DefragReport> {
    let unmoved = (name(), any::<u32>(), name());
    let unmoved = unmoved.prop_map(|(name, owner_uid, why)| Unmoved { name, owner_uid, why });
    (vec(unmoved, 0..5), any::<[u64; 7]>()).prop_map(|(unmoved, words)| DefragReport {
        moves: words[0],
        moved_segments: words[1],
        moved_bytes: words[2],
        largest_free_before_bytes: words[3],
        largest_free_bytes: words[4],
        free_bytes: words[5],
        unmoved,
        untold: words[6],
    })
}

fn checked() -> impl Strategy<Value = CheckReport> {
    let repairs = vec![Repair::Repaired, Repair::Repairable, Repair::Lost];
    let kinds = select(Problem::KINDS.to_vec());
    let problem = (kinds, name(), any::<u64>(), name(), select(repairs));
    let problem = problem.prop_map(|(kind, object, offset, what, repair)| Problem {
        kind,
        place: ProblemPlace { object, offset },
        what,
        repair,
    });
    let of = (vec(problem, 0..5), any::<bool>(), any::<[u64; 10]>());
    of.prop_map(|(problems, clean, words)| CheckReport {
        // Is not sent, but counted.
        repaired: problems
            .iter()
            .filter(|problem| problem.repair == Repair::Repaired)
            .count() as u64,
        problems,
        untold: words[0],
        clean,
        buckets: words[1],
        segments: words[2],
        owners: words[3],
        over_quota: words[4],
        quarantined: words[5],
        unfinished_moves: words[6],
        in_doubt: words[7],
        blocks: words[8],
        free_blocks: words[9],
    })
}

fn failed() -> impl Strategy<Value = Failed> {
    let texts = (name(), name(), name(), name());
    let options = (limit(), option::of(name()), option::of(name()));
    (texts, any::<u32>(), options).prop_map(
        |((code, operation, object, what), errno, (offset, need, cure))| Failed {
            code,
            errno,
            operation,
            object,
            offset,
            what,
            need,
            cure,
        },
    )
}

fn answer() -> impl Strategy<Value = Answer> {
    let status = (vec(owner(), 0..20), any::<[u64; 2]>()).prop_map(|(owners, words)| {
        let mut status = BrokerStatus::default();
        (status.owners, [status.started_at_unix, status.sessions_ended]) = (owners, words);
        status
    });
    prop_oneof![
        Just(Answer::Done),
        segment().prop_map(|info| Answer::Segment { info }),
        (handle(), access(), segment()).prop_map(|(handle, access, info)| Answer::Opened { handle, access, info }),
        (handle(), access(), segment(), any::<[u8; 16]>()).prop_map(|(handle, access, info, identity)| {
            Answer::OpenedKnown {
                handle,
                access,
                info: Box::new(info),
                identity,
            }
        }),
        (any::<[u8; 16]>(), any::<u64>()).prop_map(|(volume, epoch)| Answer::Opening { volume, epoch }),
        (any::<bool>(), vec(segment(), 0..10)).prop_map(|(more, infos)| Answer::Segments { more, infos }),
        volume().prop_map(|volume| Answer::Volume(Box::new(volume))),
        account().prop_map(Answer::Account),
        any::<u64>().prop_map(|value| Answer::Count { value }),
        any::<u64>().prop_map(|freeze| Answer::Frozen { freeze }),
        any::<u64>().prop_map(|grant| Answer::HandedOn { grant }),
        status.prop_map(Answer::Status),
        defragged().prop_map(|words| Answer::Defragged(Box::new(words))),
        checked().prop_map(|words| Answer::Checked(Box::new(words))),
        (handle(), any::<(u64, u32, bool)>()).prop_map(|(handle, (size_bytes, block_bytes, flushes))| {
            Answer::LogClaimed(LogClaim {
                handle,
                size_bytes,
                block_bytes,
                flushes,
            })
        }),
        failed().prop_map(|failed| Answer::Failed(Box::new(failed))),
    ]
}

fn hello() -> impl Strategy<Value = Hello> {
    (any::<[u16; 2]>(), any::<[u64; 2]>(), any::<u32>(), name()).prop_map(|(versions, words, places, volume)| Hello {
        version_min: versions[0],
        version_max: versions[1],
        features: words[0],
        places,
        arena_bytes: words[1],
        volume,
    })
}

fn ring_at() -> impl Strategy<Value = RingAt> {
    (any::<[u64; 4]>(), any::<u32>()).prop_map(|(at, entries)| RingAt {
        head: at[0],
        tail: at[1],
        sleeping: at[2],
        cells: at[3],
        entries,
    })
}

fn welcome() -> impl Strategy<Value = Welcome> {
    let of = (
        any::<u16>(),
        any::<[u32; 4]>(),
        any::<[u64; 4]>(),
        any::<bool>(),
        name(),
    );
    (of, ring_at(), ring_at()).prop_map(
        |((version, words, bytes, cached, volume), submissions, completions)| Welcome {
            version,
            features: bytes[0],
            places: words[0],
            questions_max: words[1],
            uid: words[2],
            memory_bytes: bytes[1],
            submissions,
            completions,
            arena_at: bytes[2],
            arena_bytes: bytes[3],
            volume,
            cached,
            block_size: words[3],
        },
    )
}

fn from_client() -> impl Strategy<Value = FromClient> {
    prop_oneof![
        1 => hello().prop_map(FromClient::Hello),
        8 => (any::<u32>(), question()).prop_map(|(id, question)| FromClient::Question { id, question }),
    ]
}

fn from_broker() -> impl Strategy<Value = FromBroker> {
    prop_oneof![
        1 => welcome().prop_map(FromBroker::Welcome),
        8 => (any::<u32>(), answer()).prop_map(|(id, answer)| FromBroker::Answer { id, answer }),
    ]
}

fn client_bytes(message: &FromClient) -> Vec<u8> {
    match message {
        FromClient::Doorbell => vec![1],
        FromClient::Hello(hello) => hello.encode(),
        FromClient::Question { id, question } => question.encode(*id).unwrap(),
    }
}

fn broker_bytes(message: &FromBroker) -> Vec<u8> {
    match message {
        FromBroker::Doorbell => vec![1],
        FromBroker::Welcome(welcome) => welcome.encode(),
        FromBroker::Answer { id, answer } => answer.encode(*id).unwrap(),
    }
}

/// Words of lists that a newer broker has longer are read as one: those have no form here.
fn says_unknown(message: &FromBroker) -> bool {
    format!("{message:?}").contains("\"unknown\"")
}

/// Whatever decodes has this one form, and what does not is refused at a byte of the message, or behind its last one.
fn has_one_form(bytes: &[u8]) {
    let refused = |malformed: Malformed| assert!(malformed.at <= bytes.len(), "{malformed} of {}", bytes.len());
    match FromClient::decode(bytes) {
        Ok(FromClient::Doorbell) => assert_eq!(bytes.len(), 1),
        Ok(message) => assert_eq!(client_bytes(&message), bytes),
        Err(malformed) => refused(malformed),
    }
    match FromBroker::decode(bytes) {
        Ok(FromBroker::Doorbell) => assert_eq!(bytes.len(), 1),
        Ok(message) if says_unknown(&message) => {}
        Ok(message) => assert_eq!(broker_bytes(&message), bytes),
        Err(malformed) => refused(malformed),
    }
}

/// No message is another one's beginning, and none has two forms.
fn stands_being_damaged(bytes: &[u8], flip: u8) {
    for len in (0..bytes.len()).filter(|len| *len != 1) {
        assert!(FromClient::decode(&bytes[..len]).is_err(), "cut to {len}");
        assert!(FromBroker::decode(&bytes[..len]).is_err(), "cut to {len}");
    }
    let mut damaged = bytes.to_vec();
    for at in 0..bytes.len() {
        for flip in [flip, 1, 0x80] {
            damaged[at] = bytes[at] ^ flip;
            has_one_form(&damaged);
        }
        damaged[at] = bytes[at];
    }
    damaged.push(flip);
    assert!(FromClient::decode(&damaged).is_err() && FromBroker::decode(&damaged).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_a_client_says_comes_through(message in from_client(), flip in 1u8..) {
        let bytes = client_bytes(&message);
        prop_assert_eq!(FromClient::decode(&bytes), Ok(message));
        prop_assert!(FromBroker::decode(&bytes).is_err(), "no broker says this");
        stands_being_damaged(&bytes, flip);
    }

    #[test]
    fn what_a_broker_says_comes_through(message in from_broker(), flip in 1u8..) {
        let bytes = broker_bytes(&message);
        prop_assert_eq!(FromBroker::decode(&bytes), Ok(message));
        prop_assert!(FromClient::decode(&bytes).is_err(), "no client says this");
        stands_being_damaged(&bytes, flip);
    }

    #[test]
    fn whatever_bytes_come_have_one_form_or_none(
        which in any::<prop::sample::Index>(),
        body in vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..200),
    ) {
        let kinds = Question::KINDS.iter().chain(Answer::KINDS).map(|(kind, _)| *kind).chain([1, 2]);
        let kinds: Vec<u16> = kinds.collect();
        has_one_form(&body);
        let mut message = kinds[which.index(kinds.len())].to_le_bytes().to_vec();
        message.extend([0; 6]);
        message.extend(body);
        has_one_form(&message);
    }

    #[test]
    fn the_pieces_of_a_list_are_the_list(lengths in vec((0usize..=255, 0usize..3), 0..1000)) {
        let infos = lengths.into_iter().map(|(name, state)| SegmentInfo {
            name: "n".repeat(name),
            state: SegmentInfo::STATES[state],
            ..SegmentInfo::default()
        });
        let infos: Vec<SegmentInfo> = infos.collect();
        let mut all = Vec::new();
        let mut ended = false;
        for piece in pieces(&infos) {
            prop_assert!(!ended, "nothing follows the last one");
            prop_assert!(piece.encode(7).is_ok(), "each fits");
            let Answer::Segments { more, infos } = piece else {
                panic!("a piece is {}", piece.name());
            };
            ended = !more;
            all.extend(infos);
        }
        prop_assert!(ended);
        prop_assert_eq!(all, infos);
    }
}

/// The length of a piece was counted without encoding it: the count must be that of the bytes.
#[test]
fn a_piece_is_as_full_as_it_can_be() {
    // 100 bytes each with their lengths and words: 655 of them leave 23 bytes beside the 13 of header, `more` and count.
    let info = SegmentInfo {
        name: "n".repeat(100 - 36),
        state: "live",
        ..SegmentInfo::default()
    };
    let lengths =
        |infos: &[SegmentInfo]| -> Vec<usize> { pieces(infos).map(|piece| piece.encode(1).unwrap().len()).collect() };
    assert_eq!(lengths(&vec![info.clone(); 655]), [13 + 65500]);
    assert_eq!(lengths(&vec![info.clone(); 656]), [13 + 65500, 13 + 100]);
    // One of them 23 bytes longer fills a message to its last byte; 24 are too many.
    for (longer, expected) in [(23, vec![MESSAGE_MAX]), (24, vec![13 + 65400, 13 + 124])] {
        let mut infos = vec![info.clone(); 655];
        infos[654].name.push_str(&"n".repeat(longer));
        assert_eq!(lengths(&infos), expected);
    }
    // What no message can hold goes alone, and is refused there; what stands around it is sent.
    let mut infos = vec![info.clone(); 3];
    infos[1].name = "n".repeat(MESSAGE_MAX);
    let fit: Vec<bool> = pieces(&infos).take(10).map(|piece| piece.encode(1).is_ok()).collect();
    assert_eq!(fit, [true, false, true]);
    let none: Vec<Answer> = pieces(&[]).collect();
    let empty = Answer::Segments {
        more: false,
        infos: Vec::new(),
    };
    assert_eq!(none, [empty]);
}
