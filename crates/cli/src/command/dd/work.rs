//! One request at a time, and the signals that come while it is under way: for what comes before and behind the copy.

use baio::{Mode, Outcome, SegmentOp, SegmentRequest};

use super::Job;
use super::ends::{End, EndKind};
use super::progress::Halt;

impl Job<'_> {
    /// Reads so many bytes of an end through this cache.
    pub(super) fn read_one(&mut self, end: &End, mode: Mode, (offset, len): (u64, u64)) -> Result<Outcome, Halt> {
        let mut buffer = self.routes.buffer(len as usize)?;
        buffer.set_len(len as usize);
        let request = SegmentRequest {
            mode,
            ..SegmentRequest::new(end.handle(), SegmentOp::Read { offset }, buffer)
        };
        self.run_one(end, request)
    }

    /// Runs one request, while no other is under way.
    pub(super) fn run_one(&mut self, end: &End, request: SegmentRequest) -> Result<Outcome, Halt> {
        self.routes.start(end.route, request)?;
        while !self.signals.interrupted() {
            if let Some(outcome) = self.routes.next_outcome() {
                return Ok(outcome);
            }
            while self.signals.take_asked() {
                self.print();
            }
            self.routes.turn()?;
        }
        // What can still end does; what waits for a stream is called off. Nothing is begun after it.
        let is_stream = end.kind() == EndKind::Stream;
        while self.routes.next_outcome().is_none() && !self.routes.are_stuck(is_stream)? {}
        Err(Halt::Interrupted)
    }
}
