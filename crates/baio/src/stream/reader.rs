//! Bytes of a range in order, read ahead.

use std::fmt;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::task::{Context, Poll, ready};

use baio_engine::Buffer;

use super::line::Line;
use super::pieces::{DEPTH, in_page, page_of};
use crate::opened::Opened;
use crate::pool::PAGE;
use crate::transport::Transport;

/// Reads a range of an opened segment or file from its beginning to its end: `futures_io::AsyncRead` and `AsyncBufRead` (feature
/// `futures-io`), tokio's `AsyncRead` and `AsyncBufRead` (feature `tokio`). [`Opened::reader`] makes it.
///
/// It keeps several requests of 128 KiB ahead of its caller, on buffers of the link's arena: one at first, twice as many after each
/// that is used, and at most [`Reader::with_depth`]. It takes a second buffer only while half of what it found free stays free for others.
/// When the arena is used up it makes do with the buffers that it has, and fails only if it has none. Nothing is read before it is polled first.
///
/// What it has read ahead holds slots and memory of the link until it is read on or dropped. Once it has said that it is at its end it holds none.
///
/// - The range may begin and end anywhere, in every mode: requests begin and end at multiples of 4096 bytes.
/// - It ends at the end of its range, or at the end of the segment or file. Bytes that are appended later need another reader.
/// - If a page of 4096 bytes cannot be read, it gives all bytes before that page first, and then the error. Reading on tries
///   the same page again.
/// - Bytes are those of some moment between their request and their delivery: writes in the meantime may not be seen.
///
/// ```
/// # #[cfg(feature = "futures-io")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use baio::{File, Link, Local};
/// use futures_util::io::{AsyncReadExt, AsyncWriteExt};
/// # let dir = std::env::temp_dir().join(format!("baio-stream-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// # let path = dir.join("letters");
/// let link = Local::new()?;
/// let file = File::options().write().create().open(&link, &path).wait()?;
/// let seen = link.block_on(async {
///     let mut writer = file.writer(0);
///     writer.write_all(b"abcdefgh").await?;
///     writer.close().await?; // They are durable.
///     let mut seen = String::new();
///     file.reader(2..5).read_to_string(&mut seen).await?;
///     std::io::Result::Ok(seen)
/// })??;
/// assert_eq!(seen, "cde");
/// # std::fs::remove_dir_all(dir)?;
/// # Ok(()) }
/// # #[cfg(not(feature = "futures-io"))]
/// # fn main() {}
/// ```
#[must_use = "nothing is moved before it is read or written"]
pub struct Reader<L: Transport> {
    opened: Opened<L>,
    line: Line<L>,
    /// The next byte to be given.
    at: u64,
    /// The next byte to be asked for, in a whole page.
    ask: u64,
    /// Behind the last byte of the range.
    end: u64,
    /// As many requests as it may have ahead so far.
    allowed: usize,
    /// Where reading in whole pieces begins again, after one that failed.
    careful_until: u64,
    hand: Option<Hand>,
    /// The end of the segment or file has been met.
    has_ended: bool,
}

/// The piece that is being given.
struct Hand {
    buffer: Buffer,
    next: usize,
    end: usize,
}

impl<L: Transport> fmt::Debug for Reader<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader({}, at {})", self.opened.name(), self.at)
    }
}

impl<L: Transport> Opened<L> {
    /// Reads these bytes in order, several requests ahead. It may begin and end anywhere; `..` reads all.
    pub fn reader(&self, range: impl RangeBounds<u64>) -> Reader<L> {
        let at = match range.start_bound() {
            Bound::Included(&first) => first,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&behind) => behind,
            Bound::Unbounded => u64::MAX,
        };
        Reader {
            opened: self.clone(),
            line: Line::new(DEPTH),
            at,
            ask: page_of(at),
            end,
            allowed: 1,
            careful_until: 0,
            hand: None,
            has_ended: false,
        }
    }
}

impl<L: Transport> Reader<L> {
    /// Keeps at most so many requests ahead, at least one: 8 unless this is said. Each holds a slot until its bytes are taken: of more than the
    /// link has, a reader that rests leaves none to others.
    pub fn with_depth(mut self, requests: usize) -> Reader<L> {
        self.line.depth = requests.max(1);
        self
    }

    /// The next byte to be given, as an offset in the segment or file.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Bytes that lie ready, at least one; none at the end.
    pub(super) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        if self.left().is_empty() {
            ready!(self.poll_more(context))?;
        }
        Poll::Ready(Ok(self.left()))
    }

    fn left(&self) -> &[u8] {
        self.hand.as_ref().map_or(&[], |hand| &hand.buffer[hand.next..hand.end])
    }

    /// So many of the bytes that lie ready have been used.
    pub(super) fn used(&mut self, bytes: usize) {
        let bytes = bytes.min(self.left().len());
        if let Some(hand) = &mut self.hand {
            hand.next = hand.next.saturating_add(bytes);
            self.at = self.at.saturating_add(bytes as u64);
        }
    }

    /// Until there is something in the hand, or the end.
    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(hand) = self.hand.take() {
            self.line.give_back(hand.buffer);
        }
        while self.left().is_empty() && !self.has_ended && self.at < self.end {
            self.ask_ahead(context)?;
            let (asked, ended) = ready!(self.line.poll_next(context));
            let first = page_of(self.at);
            match ended {
                Ok(done) => self.take(first, asked, done.bytes, done.buffer),
                Err(failed) => {
                    self.line.forget();
                    self.ask = first;
                    // One bad page does not take the good ones of its piece with it.
                    if asked == PAGE {
                        return Poll::Ready(Err(failed.error.into()));
                    }
                    self.careful_until = first.saturating_add(asked as u64);
                }
            }
        }
        if self.left().is_empty() {
            // There is no more.
            self.hand = None;
            self.line.end();
        }
        Poll::Ready(Ok(()))
    }

    /// Takes a piece that begins at `first` into the hand.
    fn take(&mut self, first: u64, asked: usize, bytes: usize, buffer: Buffer) {
        if bytes < asked {
            self.has_ended = true;
            self.line.forget();
        }
        self.allowed = self.allowed.saturating_mul(2).min(self.line.depth);
        let end = usize::try_from(self.end.saturating_sub(first)).map_or(bytes, |wanted| bytes.min(wanted));
        let next = in_page(self.at).min(end);
        self.hand = Some(Hand { buffer, next, end });
    }

    /// Begins as many requests as may be ahead.
    fn ask_ahead(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while self.line.len() < self.allowed.min(self.line.depth) && self.ask < self.end {
            let mut buffer = match self.line.buffer(&self.opened) {
                Ok(Some(buffer)) => buffer,
                Ok(None) => break,
                // In order: what is under way may give its bytes first.
                Err(_) if !self.line.is_empty() => break,
                Err(error) => return Err(error.into()),
            };
            let most = if self.ask < self.careful_until {
                PAGE
            } else {
                buffer.len()
            };
            let wanted = usize::try_from(self.end.saturating_sub(self.ask)).unwrap_or(usize::MAX);
            let len = wanted.div_ceil(PAGE).saturating_mul(PAGE).min(most);
            buffer.set_len(len);
            let request = self.opened.read_at(self.ask, buffer);
            self.ask = self.ask.saturating_add(len as u64);
            self.line.push(len, request, context);
        }
        Ok(())
    }
}
