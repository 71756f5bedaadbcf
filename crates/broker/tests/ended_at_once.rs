//! The promise: a ticket names one request. What a service of files had nothing to do for, or refused, has ended as it began, and
//! who calls it off before he has heard of its end ends nobody else's.

use baio_broker::files::Files;
use baio_broker::served::Served;
use baio_engine::{Config, File, Memory, Wait};
use baio_words::{Access, Mode, SegmentOp, SegmentRequest};

#[test]
fn a_cancel_of_what_has_ended_at_once_ends_nothing_else() {
    for is_refused in [false, true] {
        let mut files = Files::new(&Config::default()).unwrap();
        let mut open = || {
            let file = File::from_fd(tempfile::tempfile().unwrap().into(), "a file").unwrap();
            files.add(file, Access::Write)
        };
        let (handle, closed) = (open(), open());
        files.close_handle(closed);
        let ask = |handle, tag, op, memory| SegmentRequest {
            mode: Mode::Kernel,
            tag,
            ..SegmentRequest::new(handle, op, memory)
        };
        let asked_of = if is_refused { closed } else { handle };
        let nothing = SegmentOp::Discard { offset: 0, len: 0 };
        let early = ask(asked_of, 1, nothing, Memory::None);
        let early = files.start(early).unwrap();
        let memory = Memory::from(files.engine().buffer(4096).unwrap());
        let other = ask(handle, 2, SegmentOp::Write { offset: 0 }, memory);
        let other = files.start(other).unwrap();
        assert_ne!(early, other);
        files.cancel(early);
        let mut ends = Vec::new();
        while ends.len() < 2 {
            while let Some((completion, _)) = files.next_end() {
                ends.push((completion.tag.index, completion.result));
            }
            files.turn(Wait::No).unwrap();
        }
        ends.sort_by_key(|(index, _)| *index);
        assert_eq!(ends[0].1.is_err(), is_refused, "{ends:?}");
        assert_eq!(ends[1], (2, Ok(4096)));
    }
}
