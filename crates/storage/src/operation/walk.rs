//! Reads the inode table from end to end, as [`crate::volume::table::scan`] does, but some buckets a step, so that requests go on meanwhile.
//!
//! Two reads are under way, so that the device works while the bytes of the last read are looked at. A read that fails is repeated page by
//! page, so that one bad page costs only itself. Where the table alone does not decide a bucket, its mirror does, in memory. So a device
//! that is gone ends the walk at the first bucket whose mirror cannot be read either.
//! The operation has the table token meanwhile, so it sees the table of one moment.

use baio_engine::{Buffer, Completion, Durability, Errno, Request};

use crate::error::{Error, Fault, Result};
use crate::operation::waits::{completed, with};
use crate::operation::{CALLED_OFF, Context, Failed, Part, Progress};
use crate::segment::bucket::{self, BucketError, BucketId, Image, Pair};
use crate::segment::inode::Inode;
use crate::segment::layout::{BUCKET_BYTES, Place};
use crate::segment::page::{PAGE_BYTES, PageRead};
use crate::segment::probe::SlotAddress;
use crate::volume::Volume;
use crate::volume::table::{self, Doubt, Healing};

/// Bytes of a read, unless memory is short: what is looked at in one step.
const READ_BYTES: u64 = 256 << 10;
/// Bytes of the arena that are left for mirrors, and for single pages.
const SPARE_BYTES: usize = 16 << 10;

/// Who is shown each inode that can be decoded.
pub(crate) type Visit<'a> = dyn FnMut(&Volume, SlotAddress, &Inode) + Send + 'a;

/// May a read take a slot that is reserved for what must not wait?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Urgency {
    Now,
    Ahead,
}

/// Pages being read.
struct Stretch {
    part: Part,
    /// Where they lie on the device.
    offset: u64,
    len: usize,
    /// What was read, while no request has it.
    buffer: Option<Buffer>,
    /// Pages that could not be read.
    bad: Vec<usize>,
    /// The page that is being read by itself.
    single: Option<usize>,
    failed: Option<Fault>,
    ended: bool,
}

impl Stretch {
    fn begin(
        cx: &mut Context<'_>,
        part: Part,
        offset: u64,
        buffer: Buffer,
        urgency: Urgency,
    ) -> std::result::Result<Stretch, Fault> {
        let len = buffer.len();
        let policy = cx.volume.device.policy(Durability::None);
        let request = Request::read(&cx.volume.device.file, offset, buffer, policy);
        cx.submit_as(part, request, urgency == Urgency::Now)?;
        Ok(Stretch {
            part,
            offset,
            len,
            buffer: None,
            bad: Vec::new(),
            single: None,
            failed: None,
            ended: false,
        })
    }

    fn pages(&self) -> usize {
        self.len / PAGE_BYTES
    }

    /// A page by its number. One that is not whole was not read.
    fn page(&self, number: usize) -> PageRead<'_> {
        let at = number * PAGE_BYTES;
        let bytes = self.buffer.as_ref().and_then(|bytes| bytes.get(at..at + PAGE_BYTES));
        let errno = match self.failed {
            Some(Fault::Io(baio_engine::Error::System(errno))) => errno,
            _ => Errno::EIO,
        };
        bytes
            .filter(|_| !self.bad.contains(&number))
            .map_or(PageRead::Unread(errno), PageRead::Read)
    }

    fn completed(&mut self, cx: &mut Context<'_>, completion: Completion) -> std::result::Result<(), Fault> {
        let result = match completion.result {
            Ok(got) => Ok(got as usize),
            Err(error @ baio_engine::Error::System(_)) => Err(Fault::Io(error)),
            Err(error) => return Err(Fault::Io(error)),
        };
        let memory = completion.memory.into_buffer();
        let mut memory = memory.ok_or(Fault::Io(baio_engine::Error::Indeterminate))?;
        if let Some(number) = self.single.take() {
            self.page_read(number, result, &memory);
            return self.read_page(cx, number + 1, Some(memory));
        }
        match result {
            // What lies behind the end of the device is no page; before it, a read that stops has met a bad one.
            Ok(got) if got == self.len || self.offset + got as u64 >= cx.volume.device.file.size()? => {
                memory.set_len(got);
                self.buffer = Some(memory);
                self.ended = true;
                Ok(())
            }
            Ok(_) | Err(_) => {
                memory.set_len(self.len);
                self.buffer = Some(memory);
                self.read_page(cx, 0, None)
            }
        }
    }

    fn page_read(&mut self, number: usize, result: std::result::Result<usize, Fault>, page: &[u8]) {
        let at = number * PAGE_BYTES;
        let home = self
            .buffer
            .as_mut()
            .and_then(|bytes| bytes.get_mut(at..at + PAGE_BYTES));
        match (result, home, page.get(..PAGE_BYTES)) {
            (Ok(PAGE_BYTES), Some(home), Some(page)) => home.copy_from_slice(page),
            (Ok(_), ..) => self.bad.push(number),
            (Err(fault), ..) => {
                self.bad.push(number);
                self.failed = Some(fault);
            }
        }
    }

    fn read_page(
        &mut self,
        cx: &mut Context<'_>,
        number: usize,
        memory: Option<Buffer>,
    ) -> std::result::Result<(), Fault> {
        if number == self.pages() {
            self.ended = true;
            return Ok(());
        }
        let mut memory = memory.map_or_else(|| cx.buffer(PAGE_BYTES), Ok)?;
        memory.set_len(PAGE_BYTES);
        let at = self.offset + (number * PAGE_BYTES) as u64;
        cx.read_into(self.part, at, memory).map_err(|(fault, _)| fault)?;
        self.single = Some(number);
        Ok(())
    }
}

/// A walk under way.
pub(crate) struct Walk {
    /// The table, in bytes of the device.
    begin: u64,
    end: u64,
    /// What was asked for so far.
    next: u64,
    /// Buckets whose newest image in the table is of this epoch or later are decided by their mirrors.
    from_epoch: u64,
    /// What is looked at next, and what is read meanwhile.
    front: Option<Stretch>,
    ahead: Option<Stretch>,
    /// Buckets of the front that were shown.
    shown: u64,
    /// The mirror of the next.
    mirror: Option<Stretch>,
}

impl Walk {
    /// Begins it; the operation has the token.
    ///
    /// # Errors
    /// As [`Walk::step`].
    pub(crate) fn begin(cx: &mut Context<'_>) -> Result<Walk> {
        let superblock = &cx.volume.superblock;
        let layout = superblock.layout();
        let begin = layout.table_at();
        let mut walk = Walk {
            begin,
            end: begin + layout.table_bytes(),
            next: begin,
            // A volume that is open to write was made whole.
            from_epoch: match cx.volume.is_read_only() {
                true => Doubt::after(superblock, Healing::InMemory).from_epoch,
                false => u64::MAX,
            },
            front: None,
            ahead: None,
            shown: 0,
            mirror: None,
        };
        walk.read_on(cx)?;
        Ok(walk)
    }

    /// Was not all shown?
    pub(crate) fn goes_on(&self) -> bool {
        self.front.is_some()
    }

    /// Bytes of the table that were looked at, and bytes that it has.
    pub(crate) fn progress(&self) -> Progress {
        let next = self.front.as_ref().map_or(self.next, |front| front.offset);
        Progress::Bytes {
            done: next - self.begin + self.shown * BUCKET_BYTES,
            of: self.end - self.begin,
        }
    }

    /// Waits for one of its requests, and shows what there is to be shown then.
    ///
    /// # Errors
    /// A bucket of which no image is valid, or one cannot be read; no memory; what the device said. Requests may be under way
    /// then: their ends are nobody's.
    pub(crate) async fn step(&mut self, visit: &mut Visit<'_>) -> std::result::Result<(), Failed> {
        let completion = completed().await?;
        with(|cx| {
            if cx.is_called_off {
                return Err(CALLED_OFF.into());
            }
            Ok(self.take(cx, completion, visit)?)
        })
    }

    fn take(&mut self, cx: &mut Context<'_>, completion: Completion, visit: &mut Visit<'_>) -> Result<()> {
        let part = Part::of(&completion);
        let stretches = [&mut self.front, &mut self.ahead, &mut self.mirror];
        let stretch = stretches.into_iter().flatten().find(|stretch| stretch.part == part);
        if let Some(stretch) = stretch {
            let offset = stretch.offset;
            let taken = stretch.completed(cx, completion);
            taken.map_err(|fault| broken(cx, fault, offset))?;
        }
        while self.front.as_ref().is_some_and(|front| front.ended) {
            if !self.show(cx, visit)? {
                return Ok(());
            }
            self.front = self.ahead.take();
            self.shown = 0;
            self.read_on(cx)?;
        }
        Ok(())
    }

    /// Begins what is to be under way.
    fn read_on(&mut self, cx: &mut Context<'_>) -> Result<()> {
        if self.front.is_none() {
            self.front = self.read_next(cx, Part::OneStretch, Urgency::Now)?;
        }
        let has_memory = cx.lane.engine().arena().free_bytes() > cx.lane.engine().arena().size() / 2;
        let alone = self.front.as_ref().filter(|_| self.ahead.is_none() && has_memory);
        if let Some(front) = alone {
            let part = match front.part {
                Part::OneStretch => Part::OtherStretch,
                _ => Part::OneStretch,
            };
            let next = self.next;
            match self.read_next(cx, part, Urgency::Ahead) {
                Ok(ahead) => self.ahead = ahead,
                Err(_) => self.next = next, // There is no room for it beside the others. It will be read when its time comes.
            }
        }
        Ok(())
    }

    fn read_next(&mut self, cx: &mut Context<'_>, part: Part, urgency: Urgency) -> Result<Option<Stretch>> {
        self.next = self.written_from(cx, self.next).min(self.end);
        let mut bytes = READ_BYTES.min(self.end - self.next);
        if bytes == 0 {
            return Ok(None);
        }
        let spare = cx.lane.engine().buffer(SPARE_BYTES);
        let buffer = loop {
            match cx.buffer(bytes as usize) {
                Ok(buffer) => break buffer,
                Err(_) if bytes > BUCKET_BYTES => bytes = (bytes / 2).next_multiple_of(BUCKET_BYTES),
                Err(fault) => return Err(broken(cx, fault, self.next)),
            }
        };
        drop(spare);
        let stretch = Stretch::begin(cx, part, self.next, buffer, urgency);
        let stretch = stretch.map_err(|fault| broken(cx, fault, self.next))?;
        self.next += bytes;
        Ok(Some(stretch))
    }

    /// The first bucket from `next` on that is not all hole: a sparse table is read as far as it was written. Not when mirrors
    /// are asked for everything, as they may have what the table does not.
    fn written_from(&self, cx: &Context<'_>, next: u64) -> u64 {
        if self.from_epoch == 0 {
            return next;
        }
        // Who cannot tell has data everywhere.
        let data = cx.volume.device.file.next_data(next).unwrap_or(Some(next));
        let past = data.unwrap_or(u64::MAX).saturating_sub(self.begin);
        next.max(self.begin + past / BUCKET_BYTES * BUCKET_BYTES)
    }

    /// Shows the buckets of the front; false while a mirror is read.
    fn show(&mut self, cx: &mut Context<'_>, visit: &mut Visit<'_>) -> Result<bool> {
        let Some(front) = &self.front else { return Ok(true) };
        while self.shown < front.len as u64 / BUCKET_BYTES {
            let id = BucketId {
                uuid: cx.volume.superblock.uuid,
                bucket: (front.offset - self.begin) / BUCKET_BYTES + self.shown,
            };
            let at = 2 * self.shown as usize;
            let epoch = cx.volume.superblock.epoch;
            let table = Pair::read(front.page(at), front.page(at + 1), id).up_to(epoch);
            let settled = table
                .newest()
                .filter(|_| !bucket::needs_healing(&table, self.from_epoch));
            match (settled, &self.mirror) {
                (Some(image), _) => show(cx.volume, &image, visit),
                (None, Some(mirror)) if mirror.ended => {
                    let mirror = Pair::read(mirror.page(0), mirror.page(1), id).up_to(epoch);
                    let healing = bucket::heal(&table, &mirror, self.from_epoch, id);
                    let healing = healing.map_err(|error| undecided(cx, id.bucket, error))?;
                    show(cx.volume, &healing.winner, visit);
                    self.mirror = None;
                }
                (None, Some(_)) => return Ok(false),
                (None, None) => {
                    let at = cx.volume.layout().bucket_at(id.bucket, Place::Mirror);
                    let lost = BucketError::Lost { bucket: id.bucket };
                    let at = at.ok_or_else(|| undecided(cx, id.bucket, lost))?;
                    let begun = cx.buffer(BUCKET_BYTES as usize);
                    let begun = begun.and_then(|buffer| Stretch::begin(cx, Part::Main, at, buffer, Urgency::Now));
                    self.mirror = Some(begun.map_err(|fault| broken(cx, fault, at))?);
                    return Ok(false);
                }
            }
            self.shown += 1;
        }
        Ok(true)
    }
}

fn show(volume: &Volume, image: &Image<'_>, visit: &mut Visit<'_>) {
    table::show(image, &volume.superblock, &mut |address, found| {
        if let Ok(inode) = &found {
            visit(volume, address, inode);
        }
    });
}

fn undecided(cx: &Context<'_>, bucket: u64, error: BucketError) -> Error {
    table::undecided(&cx.volume.device, &cx.volume.superblock, bucket, error)
}

fn broken(cx: &Context<'_>, fault: Fault, offset: u64) -> Error {
    Error::new("read", cx.volume.device.name(), fault).at(offset)
}
