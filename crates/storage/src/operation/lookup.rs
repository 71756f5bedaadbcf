//! Finding a name in the inode table: reads one bucket pair in the common case.

use baio_engine::{Buffer, Completion};

use crate::error::Fault;
use crate::operation::Context;
use crate::operation::repeat::{OperationName, Traced};
use crate::segment::bucket::Slots;
use crate::segment::inode::{Inode, InodeState};
use crate::segment::layout::{self, BUCKET_BYTES};
use crate::segment::name::Key;
use crate::segment::probe::{Probe, SlotAddress, Visit};
use crate::volume::table::BucketCopy;

/// What a look-up has found out so far.
pub(crate) enum Looked {
    /// Another bucket is being read.
    Reading,
    /// The name is here.
    Found {
        address: SlotAddress,
        inode: Box<Inode>,
        bucket: BucketCopy,
    },
    /// The name is nowhere; a new inode could go here, unless every slot is taken.
    Absent(Option<SlotCopy>),
}

/// A slot, and its bucket as it was read.
pub(crate) struct SlotCopy {
    pub(crate) at: SlotAddress,
    pub(crate) bucket: BucketCopy,
    /// How many updates of the table had begun before.
    seen_at: u64,
}

impl SlotCopy {
    /// Is the table still as it was? What was read under the token is believed later only if so.
    pub(crate) fn holds(&self, cx: &Context<'_>) -> bool {
        self.seen_at == cx.volume.table_updates
    }

    /// The generation of what is put into the slot now.
    pub(crate) fn next_generation(&self, cx: &Context<'_>) -> Result<u64, Fault> {
        let slot = self.bucket.image()?.slot(self.at.slot, cx.volume.superblock.geometry());
        Ok(slot.and_then(Result::ok).unwrap_or_default().next_generation())
    }
}

/// A look-up under way.
pub(crate) struct Lookup {
    probe: Probe,
    /// The bucket being read, once its table pair is there and the mirror is needed.
    reading: Option<BucketCopy>,
    /// The bucket of the first tombstone on the way: a new inode would go there. Only this one of all that are passed is
    /// kept, for a table without a free slot is searched from end to end.
    reusable: Option<BucketCopy>,
    /// Whose tombstone under this name is looked for on the way, and that.
    traced: OperationName,
    trace: Option<Box<Inode>>,
}

impl Lookup {
    pub(crate) fn begin(cx: &mut Context<'_>, key: Key) -> Result<Lookup, Fault> {
        let superblock = &cx.volume.superblock;
        let mut lookup = Lookup {
            probe: Probe::new(key, &superblock.hash_seed, superblock.layout().buckets()),
            reading: None,
            reusable: None,
            traced: OperationName::NONE,
            trace: None,
        };
        lookup.read_next(cx)?;
        Ok(lookup)
    }

    /// Looks for what this operation left under the name as well.
    pub(crate) fn tracing(mut self, operation: OperationName) -> Lookup {
        self.traced = operation;
        self
    }

    /// The tombstone that the traced operation left, if the look-up came by it.
    pub(crate) fn take_trace(&mut self) -> Option<Box<Inode>> {
        self.trace.take()
    }

    fn read_next(&mut self, cx: &mut Context<'_>) -> Result<(), Fault> {
        let bucket = self.probe.next_bucket().unwrap_or(0);
        read_pair(cx, bucket, layout::Place::Table)
    }

    pub(crate) fn completed(&mut self, cx: &mut Context<'_>, completion: Completion) -> Result<Looked, Fault> {
        let copy = match self.reading.take() {
            Some(mut copy) => {
                copy.add_mirror(bytes_of(completion)?);
                copy
            }
            None => bucket_copy(cx, self.probe.next_bucket().unwrap_or(0), completion)?,
        };
        if copy.needs_mirror() {
            read_pair(cx, copy.bucket(), layout::Place::Mirror)?;
            self.reading = Some(copy);
            return Ok(Looked::Reading);
        }
        self.visit(cx, copy)
    }

    fn visit(&mut self, cx: &mut Context<'_>, copy: BucketCopy) -> Result<Looked, Fault> {
        let mut slots = copy.image()?.slots(cx.volume.superblock.geometry());
        if self.trace.is_none() && self.traced.is_repeat {
            let its = |inode: &&Inode| self.traced.has_left(self.probe.key(), inode);
            self.trace = slots.iter().flatten().find(its).cloned().map(Box::new);
        }
        match self.probe.visit(copy.bucket(), &slots) {
            Visit::Found(address) => {
                let inode = std::mem::replace(&mut slots[address.slot], Ok(Inode::free()));
                let inode = inode.map_err(|error| Fault::Corrupt(error.to_string()))?;
                Ok(Looked::Found {
                    address,
                    inode: Box::new(inode),
                    bucket: copy,
                })
            }
            Visit::Continue => {
                if self.reusable.is_none() && has_tombstone(&slots) {
                    self.reusable = Some(copy);
                } else {
                    drop(copy); // Its memory may be all there is for the next one.
                }
                self.read_next(cx)?;
                Ok(Looked::Reading)
            }
            Visit::End { reusable } => {
                let kept = self.reusable.take();
                let of = |at: SlotAddress| {
                    let bucket = [kept, Some(copy)]
                        .into_iter()
                        .flatten()
                        .find(|b| b.bucket() == at.bucket);
                    bucket.map(|bucket| (at, bucket))
                };
                let seen_at = cx.volume.table_updates;
                Ok(Looked::Absent(reusable.and_then(of).map(|(at, bucket)| SlotCopy {
                    at,
                    bucket,
                    seen_at,
                })))
            }
        }
    }
}

fn has_tombstone(slots: &Slots) -> bool {
    let is_tombstone = |inode: &Inode| inode.state == InodeState::Tombstone;
    slots.iter().any(|slot| slot.as_ref().is_ok_and(is_tombstone))
}

/// A bucket's table pair, as it was read.
pub(crate) fn bucket_copy(cx: &Context<'_>, bucket: u64, completion: Completion) -> Result<BucketCopy, Fault> {
    Ok(BucketCopy::new(cx.volume, bucket, bytes_of(completion)?))
}

/// What a read gave: nothing, where the device cannot read. There is another copy, and [`BucketCopy::image`] refuses to decide
/// where that one does not say what is missing here.
pub(crate) fn bytes_of(completion: Completion) -> Result<Buffer, Fault> {
    let got = match completion.result {
        Ok(got) => got as usize,
        Err(baio_engine::Error::System(_)) => 0,
        Err(error) => return Err(Fault::Io(error)),
    };
    let mut bytes = completion
        .memory
        .into_buffer()
        .ok_or(Fault::Io(baio_engine::Error::Indeterminate))?;
    // Behind what was read stands whatever the memory was used for before: perhaps an older image of this bucket.
    bytes.set_len(got);
    Ok(bytes)
}

pub(crate) fn read_pair(cx: &mut Context<'_>, bucket: u64, place: layout::Place) -> Result<(), Fault> {
    let at = cx.volume.layout().bucket_at(bucket, place);
    let at = at.ok_or_else(|| Fault::Corrupt(format!("there is no bucket {bucket}")))?;
    cx.read(at, BUCKET_BYTES as usize)
}
