//! Giving up old records: the head moves to the group in which the oldest wanted LSN lies.
//!
//! The space is used again when both copies of the header have the new head durably: with an older head a recovery would find
//! newer batches at its place.

use baio_engine::Buffer;

use super::chain::{Chain, Step as ChainStep};
use super::error::LogError;
use super::format::{BATCH_HEADER, DATA_AT, Head, Header};
use super::front::Life;
use super::seen::{Heard, Reading};
use super::steps::{AfterHeader, Ended, Find, HeaderWrite, Next, Step};
use super::{LogAnswer, LogIoKind, LogPart, LogRequest, Lsn};

impl LogPart {
    /// Somebody has let go of records that truncation waited for.
    pub(super) fn truncate_if_let_go(&mut self) {
        let news = {
            let mut front = self.shared.lock();
            // What was let go while the log grows is looked at when it has grown.
            if front.life != Life::Open {
                return;
            }
            front.retains.take_news()
        };
        let Some((wanted, limit)) = news else {
            return;
        };
        if wanted.min(limit) > self.truncated_for {
            self.start_job(None, LogRequest::Truncate { to: Lsn(wanted) });
        }
    }

    pub(super) fn begin_truncate(&mut self, to: u64) -> Next {
        let complete = self.flights.complete();
        let to = {
            let mut guard = self.shared.lock();
            let front = &mut *guard;
            let to = to.min(self.shared.durable());
            front.retains.want(to, &mut front.waits.fired);
            let to = to.min(front.retains.limit());
            front.retains.going_to = front.retains.going_to.max(to.min(complete.lsn));
            to
        };
        if to <= self.head.lsn.max(self.truncated_for) {
            return self.head_is_there();
        }
        self.truncated_for = to;
        if to >= complete.lsn {
            return self.write_head(complete);
        }
        let (Some(header), Some(mark)) = (self.header, self.index.find(to)) else {
            return self.head_is_there();
        };
        let chain = Chain::new(&header, self.head);
        let chain = if mark.lsn <= self.head.batch {
            chain
        } else {
            chain.within(mark.lsn, mark.place, mark.group)
        };
        let found = mark
            .group
            .filter(|group| group.lsn >= self.head.lsn)
            .unwrap_or(self.head);
        let at = chain.place;
        self.read_on(
            Box::new(Find {
                to,
                chain,
                found,
                at,
                len: 0,
            }),
            None,
        )
    }

    fn head_is_there(&self) -> Next {
        self.shared.lock().retains.going_to = self.head.lsn;
        Next::End(Ok(LogAnswer::Head(Lsn(self.head.lsn))))
    }

    fn read_on(&mut self, mut find: Box<Find>, buffer: Option<Buffer>) -> Next {
        let Some(header) = self.header else {
            return self.head_is_there();
        };
        let bytes = header.batch_bytes_max as usize;
        let Some(mut buffer) = buffer.or_else(|| self.arena.buffer(bytes)) else {
            return Next::End(Err(LogError::NoMemory));
        };
        find.at = find.chain.place;
        let rest = self.flights.durable_behind(find.at, header.capacity);
        let len = (bytes as u64).min(rest) as u32;
        buffer.set_len(len as usize);
        find.len = len;
        let kind = LogIoKind::Read {
            offset: DATA_AT + find.at,
            len,
        };
        Next::Io(Step::Find(find), kind, Some(buffer))
    }

    pub(super) fn find(&mut self, mut find: Box<Find>, ended: Option<Ended>) -> Next {
        let (offset, Some(ended)) = (DATA_AT + find.at, ended) else {
            return self.head_is_there();
        };
        // Whole or not at all: it is tried again when it is asked again.
        let Heard::Seen(seen, _) = Reading::new(offset, find.len, find.len).ended(ended.result, ended.buffer) else {
            return Next::End(Err(LogError::NoMemory));
        };
        if let Some(unread) = seen.cut() {
            self.truncated_for = self.head.lsn;
            return Next::End(Err(unread.into()));
        }
        loop {
            let bytes = seen.from(DATA_AT + find.chain.place).unwrap_or(&[]);
            if bytes.is_empty() {
                return self.read_on(find, seen.into_buffer());
            }
            let (to, least, mut found) = (find.to, self.head.lsn, find.found);
            let step = find.chain.step(bytes, |head| {
                // No record starts between the beginning of a batch and its first record.
                let begins = head.batch == to && head.lsn == to + BATCH_HEADER as u64;
                let head = if begins { Head { lsn: to, ..head } } else { head };
                if head.lsn <= to && head.lsn >= least {
                    found = head;
                }
            });
            find.found = found;
            match step {
                ChainStep::Batch { .. } if find.chain.end > find.to => return self.write_head(find.found),
                ChainStep::Batch { .. } => {}
                ChainStep::Longer if find.chain.place != find.at => return self.read_on(find, seen.into_buffer()),
                // A hole, or rot since it was opened: nothing behind what was found is given up.
                _ => return self.write_head(find.found),
            }
        }
    }

    fn write_head(&mut self, head: Head) -> Next {
        if head.lsn <= self.head.lsn {
            return self.head_is_there();
        }
        let watermark = self.flights.durable_end;
        match self.headers.next() {
            Ok(header) => Next::Go(Step::Header(HeaderWrite {
                header: Header {
                    head,
                    watermark,
                    holes_below: if head.lsn >= header.holes_below {
                        0
                    } else {
                        header.holes_below
                    },
                    ..header
                },
                left: 2,
                then: AfterHeader::Truncate(head),
            })),
            Err(error) => Next::End(Err(error)),
        }
    }

    /// Both copies have it: what lies in front is free.
    pub(super) fn move_head(&mut self, head: Head) {
        self.head = head;
        self.index.truncate(head);
        self.shared.recent().truncate(head.lsn);
        let mut front = self.shared.lock();
        front.head = head.lsn;
        front.retains.going_to = head.lsn;
        front.used = front.used_from(head);
        front.tell_room();
    }
}
