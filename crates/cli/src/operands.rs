//! The operands of `baio dd`: GNU dd's but for those of punched cards and EBCDIC, a few more (`iodepth=`, `backend=`, `mode=`, `verify=`), and refusals that say what is
//! near.
//!
//! | file | what it holds |
//! |---|---|
//! | `operands.rs` | what a command line means |
//! | `operands/typed.rs` | what was typed, and how it is resolved |
//! | `operands/words.rs` | the words, what is near a wrong one, and how errors say it |
//! | `operands/number.rs` | the numbers |
//!
//! Operands are first collected as typed, the last of a name winning as in GNU dd, and then resolved together, for some change
//! the meaning of others (`iflag=count_bytes` that of `count=`).

mod number;
#[cfg(test)]
mod tests;
mod typed;
mod words;

use std::ffi::OsStr;

use baio::{Durability, Mode};
use baio_console::target::TypedTarget;
use baio_engine::Choice;

pub(crate) use words::{OperandError, completions, is_one};

/// What a dd command line means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DdOperands {
    /// Where to read; `None` is standard input.
    pub(crate) input: Option<TypedTarget>,
    /// Where to write; `None` is standard output.
    pub(crate) output: Option<TypedTarget>,
    /// The bytes of one record of the input, at least 1.
    pub(crate) block_size: u64,
    /// The bytes of one record of the output, at least 1.
    pub(crate) output_block: u64,
    /// How much to copy; `None` is all there is.
    pub(crate) count: Option<Amount>,
    /// How much of the input to pass over. At most `i64::MAX` bytes.
    pub(crate) skip: Amount,
    /// How much of the output to pass over. At most `i64::MAX` bytes.
    pub(crate) seek: Amount,
    /// How the input is opened and read.
    pub(crate) input_flags: Flags,
    /// How the output is opened and written.
    pub(crate) output_flags: Flags,
    /// What a short read from a pipe counts as.
    pub(crate) short_reads: ShortReads,
    /// What short reads become on the output.
    pub(crate) output_blocks: OutputBlocks,
    /// What becomes of the bytes on their way.
    pub(crate) conversion: Conversion,
    /// `conv=sync`: short records are filled up.
    pub(crate) pads: bool,
    /// `conv=noerror`: a read that fails is passed over.
    pub(crate) noerror: bool,
    /// `conv=sparse`: blocks of zeros are not written where they can be passed over.
    pub(crate) sparse: bool,
    /// What becomes of the old content of an output file.
    pub(crate) truncate: Truncate,
    /// Whether the output file may or must be made.
    pub(crate) creation: Creation,
    /// What is made durable before the end.
    pub(crate) sync: Durability,
    /// Requests in flight, 1 to 1024.
    pub(crate) depth: u32,
    /// How requests reach the kernel.
    pub(crate) backend: Choice,
    /// Through which cache they go, where the end has it; `None` is what is usual there.
    pub(crate) mode: Option<Mode>,
    /// `verify=blake3`: what was written is read again and compared.
    pub(crate) verifies: bool,
    /// What is told on standard error.
    pub(crate) status: Status,
}

impl DdOperands {
    /// Parses the operands in the order in which they were typed.
    pub(crate) fn parse<T: AsRef<OsStr>>(typed: &[T]) -> Result<DdOperands, OperandError> {
        typed::parse(typed)
    }

    /// Where the input begins, in bytes.
    pub(crate) fn skip_bytes(&self) -> u64 {
        self.skip.bytes(self.block_size)
    }

    /// Where the output begins, in bytes.
    pub(crate) fn seek_bytes(&self) -> u64 {
        self.seek.bytes(self.output_block)
    }

    /// Are the bytes to be taken in order: for blocks of two sizes, conversions, or what is to happen when a read fails?
    pub(crate) fn take_in_order(&self) -> bool {
        self.block_size != self.output_block
            || self.conversion != Conversion::default()
            || self.pads
            || self.noerror
            || self.sparse
    }
}

/// A length in the unit in which it was typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    /// In blocks; for `count` from a pipe, in reads.
    Blocks(u64),
    /// In bytes.
    Bytes(u64),
}

impl Amount {
    /// The amount in bytes; one that exceeds a `u64` is as good as endless.
    pub(crate) fn bytes(self, block_size: u64) -> u64 {
        match self {
            Amount::Blocks(blocks) => blocks.saturating_mul(block_size),
            Amount::Bytes(bytes) => bytes,
        }
    }
}

/// `iflag=` or `oflag=`, but for those that are about numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    /// Past the kernel's cache.
    pub(crate) direct: bool,
    /// Each write at the end of the file, wherever that is.
    pub(crate) append: bool,
    /// It must be a directory.
    pub(crate) directory: bool,
    /// What each write makes durable: `dsync` the data, `sync` the attributes too.
    pub(crate) durable: Durability,
    /// The kernel need not keep in its cache what was copied.
    pub(crate) nocache: bool,
    /// What would wait fails.
    pub(crate) nonblock: bool,
    /// The file's time of access stays.
    pub(crate) noatime: bool,
    /// It must not be a symbolic link.
    pub(crate) nofollow: bool,
}

/// What becomes of the bytes between input and output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conversion {
    /// Large or small letters.
    pub(crate) case: Option<Case>,
    /// Every two bytes change places.
    pub(crate) swab: bool,
}

/// `conv=lcase,ucase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// Small letters.
    Lower,
    /// Large letters.
    Upper,
}

/// What a read that returns less than a block counts as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ShortReads {
    /// As a block, only partial.
    #[default]
    Count,
    /// As a beginning: `iflag=fullblock` reads on until the block is full.
    Refill,
}

/// What short reads become on the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OutputBlocks {
    /// Full blocks, as POSIX wants it where `bs=` is not given, or bytes are converted.
    #[default]
    Full,
    /// `bs=`: each record is written as it was read.
    AsRead,
}

/// What becomes of the old content of an output file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Truncate {
    /// It ends where `seek=` points.
    #[default]
    AtSeek,
    /// `conv=notrunc`: it stays, except where it is overwritten.
    Never,
}

/// Whether the output file may or must be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Creation {
    /// It is made if it is missing.
    #[default]
    IfMissing,
    /// `conv=excl`: it must not exist yet.
    Exclusive,
    /// `conv=nocreat`: it must exist.
    Never,
}

/// What is told on standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Status {
    /// Records and transfer rate at the end.
    #[default]
    Summary,
    /// `status=none`: nothing but errors.
    Silent,
    /// `status=noxfer`: records, but no transfer rate.
    NoTransfer,
    /// `status=progress`: the transfer rate now and then, too.
    Progress,
}
