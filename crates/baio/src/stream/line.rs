//! Requests that are under way, in the order of their bytes, and the buffers that they leave.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use baio_engine::Buffer;
use baio_storage::{Error, Fault, Result};

use super::pieces::PIECE;
use crate::opened::Opened;
use crate::pool::PAGE;
use crate::request::Request;
use crate::result::{Done, Failed};
use crate::transport::Transport;

type Ended = std::result::Result<Done<Buffer>, Failed<Buffer>>;

struct Piece<L: Transport> {
    len: usize,
    progress: Progress<L>,
}

/// One is under way, or its end waits until those before it have ended too.
enum Progress<L: Transport> {
    Going(Request<L, Buffer>),
    Ended(Ended),
}

pub(super) struct Line<L: Transport> {
    pieces: VecDeque<Piece<L>>,
    /// At most so many are under way.
    pub(super) depth: usize,
    /// Buffers of pieces that have ended, for the next ones.
    spare: Vec<Buffer>,
    /// So much memory of the arena is for others: half of what was free when nothing was under way here.
    leaves: usize,
}

impl<L: Transport> Line<L> {
    pub(super) fn new(depth: usize) -> Line<L> {
        Line {
            pieces: VecDeque::new(),
            depth,
            spare: Vec::new(),
            leaves: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.pieces.len() >= self.depth
    }

    /// Begins one of `len` bytes, behind the others.
    pub(super) fn push(&mut self, len: usize, mut request: Request<L, Buffer>, context: &mut Context<'_>) {
        let progress = match Pin::new(&mut request).poll(context) {
            Poll::Pending => Progress::Going(request),
            Poll::Ready(ended) => Progress::Ended(ended),
        };
        self.pieces.push_back(Piece { len, progress });
    }

    /// Length and end of the first, if that has come; else whoever asks is woken by the end of any. Looks at all of them, as one
    /// may have found no slot so far.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<(usize, Ended)> {
        for piece in &mut self.pieces {
            let polled = match &mut piece.progress {
                Progress::Going(request) => Pin::new(request).poll(context),
                Progress::Ended(_) => continue,
            };
            if let Poll::Ready(ended) = polled {
                piece.progress = Progress::Ended(ended);
            }
        }
        match self.pieces.pop_front() {
            Some(Piece {
                len,
                progress: Progress::Ended(ended),
            }) => Poll::Ready((len, ended)),
            Some(going) => {
                self.pieces.push_front(going);
                Poll::Pending
            }
            None => Poll::Pending,
        }
    }

    /// Nobody wants what is under way any more.
    pub(super) fn forget(&mut self) {
        self.pieces.clear();
    }

    /// Nothing will be begun any more: it keeps no memory.
    pub(super) fn end(&mut self) {
        self.forget();
        self.spare = Vec::new();
    }

    /// A buffer for the next piece. `None`: what is under way will leave one, and the arena has none to spare. More than one piece at a time is
    /// a wish. So half of what was free stays free for others: what has ended here may not be taken for long, and who has none would wait for it.
    pub(super) fn buffer(&mut self, opened: &Opened<L>) -> Result<Option<Buffer>> {
        if let Some(buffer) = self.spare.pop() {
            return Ok(Some(buffer));
        }
        if let Some(arena) = opened.link().link_arena().0 {
            let free = arena.free_bytes();
            if self.is_empty() {
                self.leaves = free / 2;
            } else if free < self.leaves.saturating_add(PIECE) {
                return Ok(None);
            }
        }
        match opened.buffer(PIECE) {
            Ok(buffer) => Ok(Some(buffer)),
            Err(error) if !is_used_up(&error) => Err(error),
            Err(_) if !self.is_empty() => Ok(None),
            // Slowly is better than not at all.
            Err(_) => opened.buffer(PAGE).map(Some),
        }
    }

    /// A buffer that the next piece may have.
    pub(super) fn give_back(&mut self, mut buffer: Buffer) {
        // A small one served for want of a better.
        if buffer.capacity() >= PIECE && self.spare.len() < self.depth {
            buffer.set_len(PIECE);
            self.spare.push(buffer);
        }
    }
}

fn is_used_up(error: &Error) -> bool {
    matches!(error.fault, Fault::NoMemory { .. })
}
