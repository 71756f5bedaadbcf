//! Finding a name in the inode table: reads one bucket pair in the common case.

use baio_engine::{Buffer, Completion};

use crate::error::Fault;
use crate::operation::repeat::{OperationName, Traced};
use crate::operation::waits::{completed, with};
use crate::operation::{Context, Part};
use crate::segment::bucket::Slots;
use crate::segment::inode::{Inode, InodeState};
use crate::segment::layout::{BUCKET_BYTES, Place};
use crate::segment::name::Key;
use crate::segment::probe::{Probe, SlotAddress, Visit};
use crate::volume::table::BucketCopy;

/// What a look-up has found out.
pub(crate) enum Looked {
    /// The name is here.
    Found(Found),
    /// The name is nowhere; a new inode could go here, unless every slot is taken.
    Absent(Option<SlotCopy>),
}

impl Looked {
    /// What was found.
    pub(crate) fn found(self) -> Option<Found> {
        match self {
            Looked::Found(found) => Some(found),
            Looked::Absent(_) => None,
        }
    }
}

/// An inode, where it lives, and its bucket as it was read.
pub(crate) struct Found {
    pub(crate) at: SlotAddress,
    pub(crate) inode: Box<Inode>,
    pub(crate) bucket: BucketCopy,
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

/// Looks for a name. The operation has the token.
pub(crate) async fn lookup(key: Key) -> Result<Looked, Fault> {
    let (looked, _) = lookup_tracing(key, OperationName::NONE).await?;
    Ok(looked)
}

/// The same, and whether a repeated operation left a tombstone under the name: that, if the look-up came by it.
pub(crate) async fn lookup_tracing(key: Key, traced: OperationName) -> Result<(Looked, Option<Box<Inode>>), Fault> {
    let mut lookup = with(|cx| Lookup::new(cx, key, traced));
    loop {
        let copy = read_bucket(lookup.probe.next_bucket().unwrap_or(0), []).await?;
        if let Some(looked) = with(|cx| lookup.visit(cx, copy))? {
            return Ok((looked, lookup.trace));
        }
    }
}

/// What a look-up keeps from one bucket to the next.
struct Lookup {
    probe: Probe,
    /// The bucket of the first tombstone on the way: a new inode would go there. Only this one of all that are passed is
    /// kept, for a table without a free slot is searched from end to end.
    reusable: Option<BucketCopy>,
    /// Whose tombstone under this name is looked for on the way, and that.
    traced: OperationName,
    trace: Option<Box<Inode>>,
}

impl Lookup {
    fn new(cx: &Context<'_>, key: Key, traced: OperationName) -> Lookup {
        let superblock = &cx.volume.superblock;
        Lookup {
            probe: Probe::new(key, &superblock.hash_seed, superblock.layout().buckets()),
            reusable: None,
            traced,
            trace: None,
        }
    }

    /// Looks at a bucket; `None` when another is to be read.
    fn visit(&mut self, cx: &Context<'_>, copy: BucketCopy) -> Result<Option<Looked>, Fault> {
        let mut slots = copy.image()?.slots(cx.volume.superblock.geometry());
        if self.trace.is_none() && self.traced.is_repeat {
            let its = |inode: &&Inode| self.traced.has_left(self.probe.key(), inode);
            self.trace = slots.iter().flatten().find(its).cloned().map(Box::new);
        }
        match self.probe.visit(copy.bucket(), &slots) {
            Visit::Found(at) => {
                let inode = std::mem::replace(&mut slots[at.slot], Ok(Inode::free()));
                let inode = inode.map_err(|error| Fault::Corrupt(error.to_string()))?;
                Ok(Some(Looked::Found(Found {
                    at,
                    inode: Box::new(inode),
                    bucket: copy,
                })))
            }
            Visit::Continue => {
                if self.reusable.is_none() && has_tombstone(&slots) {
                    self.reusable = Some(copy); // The memory of all others may be all there is for the next one.
                }
                Ok(None)
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
                Ok(Some(Looked::Absent(
                    reusable
                        .and_then(of)
                        .map(|(at, bucket)| SlotCopy { at, bucket, seen_at }),
                )))
            }
        }
    }
}

fn has_tombstone(slots: &Slots) -> bool {
    let is_tombstone = |inode: &Inode| inode.state == InodeState::Tombstone;
    slots.iter().any(|slot| slot.as_ref().is_ok_and(is_tombstone))
}

/// Reads a bucket: its pair in the table; and in the mirror, if that one does not decide. `spare` is memory kept for these reads: some is
/// let go before each.
pub(crate) async fn read_bucket(bucket: u64, spare: impl IntoIterator<Item = Buffer>) -> Result<BucketCopy, Fault> {
    let mut spare = spare.into_iter();
    drop(spare.next());
    let table = read_pair(bucket, Place::Table).await?;
    drop(spare.next());
    let mut copy = with(|cx| BucketCopy::new(cx.volume, bucket, table));
    if copy.needs_mirror() {
        copy.add_mirror(read_pair(bucket, Place::Mirror).await?);
    }
    Ok(copy)
}

/// A bucket as the table alone has it; `None` where it cannot be read.
pub(crate) async fn read_table_alone(bucket: u64) -> Result<Option<BucketCopy>, Fault> {
    if with(|cx| begin_pair(cx, bucket, Place::Table)).is_err() {
        return Ok(None);
    }
    let bytes = bytes_of(completed().await?).ok();
    Ok(bytes.map(|bytes| with(|cx| BucketCopy::new(cx.volume, bucket, bytes))))
}

async fn read_pair(bucket: u64, place: Place) -> Result<Buffer, Fault> {
    with(|cx| begin_pair(cx, bucket, place))?;
    bytes_of(completed().await?)
}

fn begin_pair(cx: &mut Context<'_>, bucket: u64, place: Place) -> Result<(), Fault> {
    let at = cx.volume.layout().bucket_at(bucket, place);
    let at = at.ok_or_else(|| Fault::Corrupt(format!("there is no bucket {bucket}")))?;
    let buffer = cx.buffer(BUCKET_BYTES as usize)?;
    cx.read_into(Part::Main, at, buffer).map_err(|(fault, _)| fault)
}

/// What a read gave: nothing, where the device cannot read. There is another copy, and [`BucketCopy::image`] refuses to decide
/// where that one does not say what is missing here.
fn bytes_of(completion: Completion) -> Result<Buffer, Fault> {
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
