//! Bytes written in order, several pieces on their way.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use baio_engine::{Buffer, Durability, Errno};
use baio_storage::{Error, Mode};

use super::line::Line;
use super::pieces::{DEPTH, in_page, page_of};
use crate::opened::Opened;
use crate::pool::PAGE;
use crate::request::Request;
use crate::transport::Transport;

/// Writes to an opened segment or file in order, from one offset on: `futures_io::AsyncWrite` (feature `futures-io`), tokio's
/// `AsyncWrite` (feature `tokio`). [`Opened::writer`] makes it.
///
/// It gathers pieces of 128 KiB in buffers of the link's arena, and keeps several of them on their way ([`Writer::with_depth`]).
/// It takes more while half of what it found free stays free for others, then it waits for one of its own; only with none at all it fails, and
/// can be tried again. What is under way, or has ended and was not looked at, holds slots and memory of the link: write on, flush, or drop it.
///
/// | call | when it is done |
/// |---|---|
/// | `write` | the bytes are in the writer; they may not have gone anywhere |
/// | `flush` | all of them are written, and nothing is under way; they may not survive a power cut |
/// | `close`, `shutdown` | the same, and they are durable ([`Durability::Data`]): it ends with a sync of the segment or file |
/// | dropping it | at once: what was flushed is written, what was not may be written or not, each piece by itself. A piece that is under way may still land: [`Opened::fence`] waits for it |
///
/// When a write fails, the next call gives the error, once nothing is in flight any more (of several errors the one at the lowest offset).
/// After that the writer refuses everything, because it cannot know what was written.
///
/// It may begin, be flushed and end at any byte, in every mode. A direct write is of whole pages of 4096 bytes. So a page that is written in
/// part is read first and written whole, and nobody else may write to that page meanwhile. The last page of a file may end anywhere, and
/// would make the file longer: such a piece goes through the kernel's page cache, for which the file must be open too
/// ([`OpenOptions::every_mode`](crate::OpenOptions::every_mode)).
#[must_use = "nothing is moved before it is read or written"]
pub struct Writer<L: Transport> {
    opened: Opened<L>,
    line: Line<L>,
    /// Where the piece that is being filled begins.
    start: u64,
    piece: Option<Buffer>,
    /// Bytes in the piece. In direct modes it begins with a page, and a part of that may be what was there.
    filled: usize,
    /// Of these, from the first on, need not be written: they are there, or on their way.
    sent: usize,
    /// The page that a direct piece has a part of, being read.
    page: Option<(u64, Request<L, Buffer>)>,
    /// What is under way lies in the page that the piece begins with: it ends first.
    overlaps: bool,
    sync: Option<Request<L, ()>>,
    /// To be told when nothing is under way any more.
    error: Option<io::Error>,
    state: State,
}

/// No byte lies there or behind: an offset of the kernel is signed.
const LAST: u64 = i64::MAX as u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// An error has been told.
    Failed,
    Closed,
}

impl<L: Transport> fmt::Debug for Writer<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, at) = (self.opened.name(), self.position());
        write!(f, "Writer({name}, at {at}, {:?})", self.state)
    }
}

impl<L: Transport> Opened<L> {
    /// Writes in order from byte `offset` on, several requests on their way.
    pub fn writer(&self, offset: u64) -> Writer<L> {
        Writer {
            opened: self.clone(),
            line: Line::new(DEPTH),
            start: offset,
            piece: None,
            filled: 0,
            sent: 0,
            page: None,
            overlaps: false,
            sync: None,
            error: None,
            state: State::Open,
        }
    }
}

impl<L: Transport> Writer<L> {
    /// Keeps at most so many requests on their way, at least one: 8 unless this is said.
    pub fn with_depth(mut self, requests: usize) -> Writer<L> {
        self.line.depth = requests.max(1);
        self
    }

    /// Where the next byte goes, as an offset in the segment or file.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.start.saturating_add(self.filled as u64)
    }

    /// So many of these bytes as there are offsets for.
    fn bounded<'a>(&self, bytes: &'a [u8]) -> io::Result<&'a [u8]> {
        let left = LAST.checked_sub(self.position()).filter(|left| *left > 0);
        let left = left.ok_or_else(|| {
            let error = Error::new("write", self.opened.name(), Errno::EFBIG);
            io::Error::from(error.at(self.position()))
        })?;
        let most = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
        Ok(bytes.get(..most).unwrap_or(bytes))
    }

    fn is_direct(&self) -> bool {
        self.opened.default_mode() == Mode::Direct
    }

    pub(super) fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.state {
            State::Open => {}
            State::Failed => return Poll::Ready(Err(has_failed())),
            State::Closed => {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, "the writer was closed")));
            }
        }
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let bytes = self.bounded(bytes)?;
        self.sync = None; // One that a close has begun knows nothing of these bytes.
        if self.overlaps || self.error.is_some() {
            ready!(self.poll_all(context))?;
        }
        let mut piece = match self.piece.take() {
            Some(piece) => piece,
            None => ready!(self.poll_piece(context))?,
        };
        // Behind an odd beginning the next piece begins with a page again.
        let before = if self.is_direct() { 0 } else { in_page(self.start) };
        let room = piece.len().saturating_sub(before);
        let len = bytes.len().min(room.saturating_sub(self.filled));
        let filled = self.filled.saturating_add(len);
        piece[self.filled..filled].copy_from_slice(&bytes[..len]);
        self.filled = filled;
        match self.filled == room {
            true => self.send(piece, room, self.opened.default_mode(), context),
            false => self.piece = Some(piece),
        }
        Poll::Ready(Ok(len))
    }

    /// A piece to be filled, with what is there before its first byte.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Buffer>> {
        if self.is_direct() && in_page(self.position()) > 0 {
            let within = in_page(self.position());
            let page = page_of(self.position());
            let (mut piece, there) = ready!(self.poll_page(page, context))?;
            // Behind the end of a file there are zeros.
            piece[there.min(within)..within].fill(0);
            (self.start, self.filled, self.sent) = (page, within, within);
            return Poll::Ready(Ok(piece));
        }
        while self.line.is_full() {
            ready!(self.poll_one(context));
        }
        self.poll_buffer(context)
    }

    fn poll_buffer(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Buffer>> {
        loop {
            match self.line.buffer(&self.opened) {
                Ok(Some(buffer)) => return Poll::Ready(Ok(buffer)),
                Ok(None) => ready!(self.poll_one(context)),
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// A page as it is at the device, at the beginning of a buffer for a piece, and how many bytes of it there are.
    fn poll_page(&mut self, page: u64, context: &mut Context<'_>) -> Poll<io::Result<(Buffer, usize)>> {
        let mut request = match self.page.take() {
            Some((other, request)) if other == page => request,
            _ => {
                let mut buffer = ready!(self.poll_buffer(context))?;
                buffer.set_len(PAGE);
                self.opened.read_at(page, buffer)
            }
        };
        match Pin::new(&mut request).poll(context) {
            Poll::Pending => {
                self.page = Some((page, request));
                Poll::Pending
            }
            Poll::Ready(Ok(done)) => {
                let mut piece = done.buffer;
                piece.set_len(piece.capacity());
                Poll::Ready(Ok((piece, done.bytes)))
            }
            Poll::Ready(Err(failed)) => Poll::Ready(Err(self.failed(failed.error.into()))),
        }
    }

    /// It has failed: it is of no use any more, and keeps no memory.
    fn failed(&mut self, error: io::Error) -> io::Error {
        self.state = State::Failed;
        self.piece = None;
        (self.page, self.sync) = (None, None);
        self.line.end();
        error
    }

    /// The first `len` bytes of the piece go on their way, and the next one begins behind it.
    fn send(&mut self, mut piece: Buffer, len: usize, mode: Mode, context: &mut Context<'_>) {
        piece.set_len(len);
        let request = self.opened.write_all_at(self.start, piece).mode(mode);
        self.line.push(len, request, context);
        // No byte was taken behind the last offset.
        self.start = self.start.saturating_add(len as u64);
        (self.filled, self.sent) = (0, 0);
    }

    /// One that was under way has ended.
    fn poll_one(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match ready!(self.line.poll_next(context)).1 {
            Ok(done) => self.line.give_back(done.buffer),
            Err(failed) => {
                self.error.get_or_insert(failed.error.into());
            }
        }
        Poll::Ready(())
    }

    /// All that was under way has ended.
    fn poll_all(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.line.is_empty() {
            ready!(self.poll_one(context));
        }
        self.overlaps = false;
        match self.error.take() {
            None => Poll::Ready(Ok(())),
            Some(error) => Poll::Ready(Err(self.failed(error))),
        }
    }

    pub(super) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.state {
            State::Open => {}
            State::Failed => return Poll::Ready(Err(has_failed())),
            State::Closed => return Poll::Ready(Ok(())),
        }
        if self.filled > self.sent {
            if self.is_direct() && in_page(self.filled as u64) > 0 {
                ready!(self.poll_send_odd(context))?;
            } else if let Some(piece) = self.piece.take() {
                self.send(piece, self.filled, self.opened.default_mode(), context);
            }
        }
        self.poll_all(context)
    }

    /// Sends a direct piece that ends within a page. That page's beginning is where the next piece goes on.
    fn poll_send_odd(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_all(context))?; // In order: what is before it has failed first.
        let within = in_page(self.filled as u64);
        let begin = self.filled.saturating_sub(within);
        let behind = begin.saturating_add(PAGE);
        let page = self.start.saturating_add(begin as u64);
        let (mut next, there) = ready!(self.poll_page(page, context))?;
        let Some(mut piece) = self.piece.take() else {
            return Poll::Ready(Ok(()));
        };
        next[..within].copy_from_slice(&piece[begin..self.filled]);
        if there == PAGE {
            piece[self.filled..behind].copy_from_slice(&next[within..PAGE]);
            self.send(piece, behind, Mode::Direct, context);
        } else {
            self.send(piece, self.filled, Mode::Kernel, context);
        }
        self.overlaps = true;
        (self.start, self.filled, self.sent, self.piece) = (page, within, within, Some(next));
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush(context))?;
        if self.state == State::Closed {
            return Poll::Ready(Ok(()));
        }
        let mut sync = match self.sync.take() {
            Some(sync) => sync,
            None => self.opened.sync(Durability::Data),
        };
        match Pin::new(&mut sync).poll(context) {
            Poll::Pending => {
                self.sync = Some(sync);
                Poll::Pending
            }
            Poll::Ready(Ok(_)) => {
                self.state = State::Closed;
                self.piece = None;
                self.page = None; // A flush that was given up has begun to read it.
                self.line.end();
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(failed)) => Poll::Ready(Err(self.failed(failed.error.into()))),
        }
    }
}

fn has_failed() -> io::Error {
    io::Error::new(
        io::ErrorKind::BrokenPipe,
        "the writer has failed before, and does not know what is written",
    )
}
