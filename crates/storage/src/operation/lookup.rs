//! Finding a name in the inode table: reads one bucket pair in the common case.

use baio_engine::Completion;

use crate::error::Fault;
use crate::operation::Context;
use crate::segment::bucket::BucketId;
use crate::segment::inode::Inode;
use crate::segment::layout::{BUCKET_BYTES, Place};
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
    /// The name is nowhere; a new inode could go into this slot of this bucket.
    Absent(Option<(SlotAddress, BucketCopy)>),
}

/// A look-up under way.
pub(crate) struct Lookup {
    probe: Probe,
    /// The bucket being read, once its table pair is there and the mirror is needed.
    reading: Option<BucketCopy>,
    /// Buckets passed, for whoever wants to write into one of them.
    passed: Vec<BucketCopy>,
}

impl Lookup {
    pub(crate) fn begin(cx: &mut Context<'_>, key: Key) -> Result<Lookup, Fault> {
        let superblock = &cx.volume.superblock;
        let mut lookup = Lookup {
            probe: Probe::new(key, &superblock.hash_seed, superblock.layout().buckets()),
            reading: None,
            passed: Vec::new(),
        };
        lookup.read_next(cx)?;
        Ok(lookup)
    }

    fn read_next(&mut self, cx: &mut Context<'_>) -> Result<(), Fault> {
        let bucket = self.probe.next_bucket().unwrap_or(0);
        read_pair(cx, bucket, Place::Table)
    }

    pub(crate) fn completed(&mut self, cx: &mut Context<'_>, completion: Completion) -> Result<Looked, Fault> {
        completion.result?;
        let bytes = completion
            .memory
            .into_buffer()
            .ok_or(Fault::Io(baio_engine::Error::Indeterminate))?;
        let copy = match self.reading.take() {
            Some(mut copy) => {
                copy.add_mirror(bytes);
                copy
            }
            None => BucketCopy::new(self.id(cx), bytes),
        };
        if copy.needs_mirror() {
            read_pair(cx, copy.bucket(), Place::Mirror)?;
            self.reading = Some(copy);
            return Ok(Looked::Reading);
        }
        self.visit(cx, copy)
    }

    fn id(&self, cx: &Context<'_>) -> BucketId {
        BucketId {
            uuid: cx.volume.superblock.uuid,
            bucket: self.probe.next_bucket().unwrap_or(0),
        }
    }

    fn visit(&mut self, cx: &mut Context<'_>, copy: BucketCopy) -> Result<Looked, Fault> {
        let mut slots = copy.image()?.slots(cx.volume.superblock.geometry());
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
                self.passed.push(copy);
                self.read_next(cx)?;
                Ok(Looked::Reading)
            }
            Visit::End { reusable } => {
                self.passed.push(copy);
                Ok(Looked::Absent(reusable.and_then(|address| self.bucket_of(address))))
            }
        }
    }

    fn bucket_of(&mut self, address: SlotAddress) -> Option<(SlotAddress, BucketCopy)> {
        let at = self.passed.iter().position(|copy| copy.bucket() == address.bucket)?;
        Some((address, self.passed.swap_remove(at)))
    }
}

fn read_pair(cx: &mut Context<'_>, bucket: u64, place: Place) -> Result<(), Fault> {
    let at = cx.volume.layout().bucket_at(bucket, place);
    let at = at.ok_or_else(|| Fault::Corrupt(format!("there is no bucket {bucket}")))?;
    cx.read(at, BUCKET_BYTES as usize)
}
