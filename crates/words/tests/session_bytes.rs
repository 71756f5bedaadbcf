//! The bytes of a session's messages, by example: fixed ones, the limits, and where each kind of nonsense is refused.

use baio_words::session::{
    Answer, BrokerStatus, FINDING_TEXT_MAX, FINDINGS_MAX, Failed, FromBroker, FromClient, Hello, MESSAGE_MAX,
    Malformed, NAME_MAX, OWNERS_MAX, OwnerStatus, Question, RANGES_MAX, TEXT_MAX, TooLong, WARNINGS_MAX, cut,
};
use baio_words::{
    Access, CheckReport, CreateOptions, DefragReport, Handle, Hint, Limits, OperationName, Pattern, Problem,
    ProblemPlace, Repair, ResizeOptions, SegmentInfo, Unmoved, VolumeInfo, VolumeView, Zeroing,
};

#[test]
fn a_doorbell_is_any_one_byte() {
    for byte in 0..=255 {
        assert_eq!(FromClient::decode(&[byte]), Ok(FromClient::Doorbell));
        assert_eq!(FromBroker::decode(&[byte]), Ok(FromBroker::Doorbell));
    }
    assert!(FromClient::decode(&[]).is_err());
    assert!(FromBroker::decode(&[]).is_err());
}

/// Every kind has its number, and a number that is none is refused in both directions.
#[test]
fn only_the_kinds_that_exist_are_taken() {
    let unknown = Malformed {
        at: 0,
        what: "a kind that this side does not take",
    };
    for kind in 0..=u16::MAX {
        let mut message = kind.to_le_bytes().to_vec();
        message.extend([0; 6]);
        let asked = kind == 1 || Question::KINDS.iter().any(|(known, _)| *known == kind);
        let answered = kind == 2 || Answer::KINDS.iter().any(|(known, _)| *known == kind);
        assert_eq!(FromClient::decode(&message) != Err(unknown), asked, "{kind:#06x}");
        assert_eq!(FromBroker::decode(&message) != Err(unknown), answered, "{kind:#06x}");
    }
}

#[test]
fn names_and_lists_that_are_too_long_are_not_sent() {
    let open = |len: usize| Question::Open {
        owner_uid: 0,
        name: "n".repeat(len),
        access: Access::Read,
    };
    let too_long = |what, len, max| Err(TooLong { what, len, max });
    assert!(open(NAME_MAX).encode(1).is_ok());
    assert_eq!(open(NAME_MAX + 1).encode(1), too_long("a name", 256, 255));
    assert_eq!(open(1 << 20).encode(1), too_long("a name", 1 << 20, 255));

    let prefetch = |ranges: usize| Question::Hint {
        handle: Handle::from_parts(0, 0, 0),
        hint: Hint::Prefetch(vec![0..1; ranges]),
    };
    assert!(FromClient::decode(&prefetch(RANGES_MAX).encode(1).unwrap()).is_ok());
    assert_eq!(prefetch(1025).encode(1), too_long("a list of ranges", 1025, 1024));

    let status = |owners: usize| {
        let mut status = BrokerStatus::default();
        status.owners = vec![OwnerStatus::default(); owners];
        Answer::Status(status)
    };
    assert!(FromBroker::decode(&status(OWNERS_MAX).encode(1).unwrap()).is_ok());
    assert_eq!(status(961).encode(1), too_long("a list of users", 961, 960));

    let segments = Answer::Segments {
        more: false,
        infos: vec![SegmentInfo::default(); 3000],
    };
    assert_eq!(segments.encode(1), too_long("a message", 13 + 3000 * 32, MESSAGE_MAX));
}

/// A failure, and a volume that has much to say, are cut so that they can always be said.
#[test]
fn texts_for_people_are_cut_between_characters() {
    // Two bytes each behind one byte: no character ends at byte 4096.
    let text = format!("a{}", "é".repeat(5000));
    let short = format!("a{}", "é".repeat(2047));
    assert_eq!(short.len(), TEXT_MAX - 1);
    assert_eq!(cut(&text, TEXT_MAX), short);
    assert_eq!((cut("é", 1), cut("é", 2), cut("é", 3)), ("", "é", "é"));

    let full = |text: &str, code: &str| {
        Answer::Failed(Box::new(Failed {
            code: code.to_owned(),
            errno: 5,
            operation: text.to_owned(),
            object: text.to_owned(),
            offset: Some(1),
            what: text.to_owned(),
            need: Some(text.to_owned()),
            cure: Some(text.to_owned()),
        }))
    };
    let bytes = full(&text, &"E".repeat(300)).encode(3).unwrap();
    let answer = full(&short, &"E".repeat(NAME_MAX));
    assert_eq!(FromBroker::decode(&bytes), Ok(FromBroker::Answer { id: 3, answer }));

    let volume = |text: &str, warnings: usize| {
        Answer::Volume(Box::new(VolumeView {
            whole: Some(VolumeInfo {
                warnings: vec![text.to_owned(); warnings],
                ..VolumeInfo::default()
            }),
            ..VolumeView::default()
        }))
    };
    let bytes = volume(&text, WARNINGS_MAX + 1).encode(3).unwrap();
    let answer = volume(&short, WARNINGS_MAX);
    assert_eq!(FromBroker::decode(&bytes), Ok(FromBroker::Answer { id: 3, answer }));
}

/// Of more findings than a message carries, and longer ones, it tells the first, and how many more there are.
#[test]
fn findings_are_cut_to_a_message() {
    let name = "n".repeat(NAME_MAX);
    let text = "é".repeat(1000);
    let short = cut(&text, FINDING_TEXT_MAX).to_owned();
    let problem = |text: &str| Problem {
        kind: "image-generation",
        place: ProblemPlace {
            object: text.to_owned(),
            offset: u64::MAX,
        },
        what: text.to_owned(),
        repair: Repair::Lost,
    };
    let checked = |text: &str, count, untold| {
        Answer::Checked(Box::new(CheckReport {
            problems: vec![problem(text); count],
            untold,
            ..CheckReport::default()
        }))
    };
    let bytes = checked(&text, FINDINGS_MAX + 5, 7).encode(3).unwrap();
    let answer = checked(&short, FINDINGS_MAX, 12);
    assert_eq!(FromBroker::decode(&bytes), Ok(FromBroker::Answer { id: 3, answer }));

    let unmoved = |text: &str| Unmoved {
        name: name.clone(),
        owner_uid: 1,
        why: text.to_owned(),
    };
    let defragged = |text: &str, count, untold| {
        Answer::Defragged(Box::new(DefragReport {
            unmoved: vec![unmoved(text); count],
            untold,
            ..DefragReport::default()
        }))
    };
    let bytes = defragged(&text, 1000, 0).encode(3).unwrap();
    let answer = defragged(&short, FINDINGS_MAX, 1000 - FINDINGS_MAX as u64);
    assert_eq!(FromBroker::decode(&bytes), Ok(FromBroker::Answer { id: 3, answer }));
}

type Place = (usize, &'static str);

fn client(bytes: &[u8]) -> Result<FromClient, Place> {
    FromClient::decode(bytes).map_err(|malformed| (malformed.at, malformed.what))
}

fn broker(bytes: &[u8]) -> Result<FromBroker, Place> {
    FromBroker::decode(bytes).map_err(|malformed| (malformed.at, malformed.what))
}

/// The same with another byte there.
fn with(bytes: &[u8], at: usize, value: u8) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] = value;
    bytes
}

const ENDS: &str = "an end before the end of a field";

#[test]
fn what_no_client_sends_is_refused_where_it_stands() {
    let hello = Hello {
        version_min: 1,
        version_max: 1,
        features: 0,
        places: 0,
        arena_bytes: 0,
        volume: "v".to_owned(),
    };
    let hello = hello.encode();
    assert!(client(&hello).is_ok());
    let refused = |at, value, place: Place| assert_eq!(client(&with(&hello, at, value)), Err(place));
    refused(2, 1, (2, "a reserved word that is not zero"));
    refused(7, 1, (4, "an id where there is no question"));
    refused(8, b'B', (8, "another magic than `baio`"));
    let text = hello.len() - 3;
    refused(text + 2, 0xff, (text, "a string that is not UTF-8"));
    refused(text, 2, (text + 2, ENDS));
    refused(text + 1, 1, (text, "a name of more than 255 bytes"));
    refused(text, 0, (text + 2, "bytes behind the last field"));
    let long = vec![0; MESSAGE_MAX + 1];
    assert_eq!(client(&long), Err((MESSAGE_MAX, "more than 65536 bytes")));

    let refused = |question: Question, at, value, place: Place| {
        let bytes = question.encode(1).unwrap();
        assert!(client(&bytes).is_ok());
        assert_eq!(client(&with(&bytes, at, value)), Err(place));
    };
    let limits = Limits::default();
    let quota = Question::SetQuota { uid: 1, limits };
    refused(quota, 12, 2, (12, "a bool that is neither 0 nor 1"));
    let open = Question::Open {
        owner_uid: 1,
        name: String::new(),
        access: Access::Read,
    };
    refused(open, 14, 2, (14, "an unknown access"));
    let create = Question::Create {
        operation: OperationName::NONE,
        owner_uid: 1,
        name: String::new(),
        options: CreateOptions {
            zero: Zeroing::Lazy,
            ..CreateOptions::of_size(0)
        },
    };
    refused(create, 52, 2, (52, "an unknown way to make zero"));
    let hint = |hint| Question::Hint {
        handle: Handle::from_parts(0, 0, 0),
        hint,
    };
    let prefetch = hint(Hint::Prefetch(vec![0..1; 4]));
    refused(prefetch.clone(), 16, 5, (16, "an unknown hint"));
    refused(prefetch, 18, 5, (17, "more than 1024 ranges"));
    let pattern = hint(Hint::Pattern(Pattern::Random));
    refused(pattern, 17, 3, (17, "an unknown pattern"));
}

#[test]
fn what_no_broker_sends_is_refused_where_it_stands() {
    let refused = |answer: Answer, at, value, place: Place| {
        let bytes = answer.encode(1).unwrap();
        assert!(broker(&bytes).is_ok());
        assert_eq!(broker(&with(&bytes, at, value)), Err(place));
    };
    let status = Answer::Status(BrokerStatus::default());
    refused(status, 9, 4, (8, "more than 960 users"));
    // A count behind which nothing stands takes neither time nor memory.
    let segments = Answer::Segments {
        more: false,
        infos: Vec::new(),
    };
    refused(segments, 12, 0xff, (13, ENDS));
    let volume = VolumeView {
        whole: Some(VolumeInfo::default()),
        ..VolumeView::default()
    };
    let volume = Answer::Volume(Box::new(volume));
    let count = volume.encode(1).unwrap().len() - 4;
    refused(volume, count, 9, (count, "more than 8 warnings"));
    let checked = Answer::Checked(Box::default());
    refused(checked.clone(), 8, 65, (8, "more than 64 findings"));
    refused(checked, 20, 2, (20, "a bool that is neither 0 nor 1"));
    let problem = Problem {
        kind: "image",
        place: ProblemPlace {
            object: String::new(),
            offset: 0,
        },
        what: String::new(),
        repair: Repair::Lost,
    };
    let problems = vec![problem];
    let one = Answer::Checked(Box::new(CheckReport {
        problems,
        ..CheckReport::default()
    }));
    refused(one.clone(), 31, 3, (31, "an unknown repair"));
    refused(one, 20, 2, (19, "a finding of more than 256 bytes"));
    refused(Answer::Defragged(Box::default()), 56, 65, (56, "more than 64 findings"));
    let failed = Answer::Failed(Box::default());
    refused(failed.clone(), 15, 0x10, (16, ENDS));
    refused(failed, 15, 0x20, (14, "a text of more than 4096 bytes"));
}

/// The bytes are the protocol: these were written by hand from its tables.
#[test]
fn the_bytes_are_those_of_the_tables() {
    let create = Question::Create {
        operation: OperationName::again(*b"0123456789abcdef"),
        owner_uid: 1000,
        name: "logs".to_owned(),
        options: CreateOptions {
            size_bytes: 1 << 20,
            reserve_bytes: 1 << 21,
            mode: 0o640,
            group: Some(100),
            zero: Zeroing::Lazy,
        },
    };
    let mut expected = vec![0x01, 0x01, 0, 0, 0x09, 0, 0, 0];
    expected.extend(b"0123456789abcdef\x01");
    expected.extend([0xe8, 0x03, 0, 0]);
    expected.extend(b"\x04\x00logs");
    expected.extend([0, 0, 0x10, 0, 0, 0, 0, 0]);
    expected.extend([0, 0, 0x20, 0, 0, 0, 0, 0]);
    expected.extend([0xa0, 0x01, 0, 0]);
    expected.extend([1, 100, 0, 0, 0]);
    expected.push(1);
    assert_eq!(create.encode(9).unwrap(), expected);

    let hint = Question::Hint {
        handle: Handle::from_parts(1, 3, 5),
        hint: Hint::KeepNoMore(1..0x0200),
    };
    let mut expected = vec![0x0a, 0x01, 0, 0, 0xff, 0xff, 0xff, 0xff, 3, 0, 0, 0, 5, 0, 0, 0, 3];
    expected.extend([1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0]);
    assert_eq!(hint.encode(u32::MAX).unwrap(), expected);

    // One verb, and a kind for each of its halves: an older broker cuts what it is asked to resize.
    let resize = |grows_only| Question::Resize {
        operation: OperationName::NONE,
        owner_uid: 1,
        name: "a".to_owned(),
        options: ResizeOptions {
            size_bytes: 2,
            reserve_bytes: Some(3),
            grows_only,
        },
    };
    for (grows_only, kind) in [(false, 0x03), (true, 0x29)] {
        let mut expected = vec![kind, 0x01, 0, 0, 5, 0, 0, 0];
        expected.extend([0; 17]);
        expected.extend(b"\x01\0\0\0\x01\0a\x02\0\0\0\0\0\0\0\x01\x03\0\0\0\0\0\0\0");
        assert_eq!(resize(grows_only).encode(5).unwrap(), expected);
        let (id, question) = (5, resize(grows_only));
        assert_eq!(FromClient::decode(&expected), Ok(FromClient::Question { id, question }));
    }

    let failed = Failed {
        code: "EACCES".to_owned(),
        errno: 13,
        operation: "open".to_owned(),
        object: "logs".to_owned(),
        offset: None,
        what: "no".to_owned(),
        need: None,
        cure: Some("ask".to_owned()),
    };
    let mut expected = vec![0xff, 0x02, 0, 0, 0x09, 0, 0, 0];
    expected.extend(b"\x06\x00EACCES\x0d\x00\x00\x00\x04\x00open\x04\x00logs\x00\x02\x00no\x00\x01\x03\x00ask");
    assert_eq!(Answer::Failed(Box::new(failed)).encode(9).unwrap(), expected);
}
