//! The operands of `baio dd`: GNU dd's, one more (`iodepth=`), and refusals instead of approximations.
//!
//! What GNU dd knows and this dd does not is told apart from what nobody knows, so that a script that is moved over
//! learns which of its operands to drop. Operands are first collected as typed, the last of a name winning as in GNU
//! dd, and then resolved together, for some change the meaning of others (`iflag=count_bytes` that of `count=`).

mod number;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use baio_console::memory_limit::Room;
use baio_console::target::TypedTarget;

use number::{NUMBER_MAX, Number};

/// The block size of dd since the first Unix.
const BLOCK_SIZE_DEFAULT: u64 = 512;

/// Requests in flight unless `iodepth=` says otherwise; fewer where so many blocks would not fit into memory.
const DEPTH_DEFAULT: u32 = 16;

/// More requests than this are never in flight: the engine has that many slots.
const DEPTH_MAX: u64 = 1024;

/// Operands and list members that GNU dd knows and this dd refuses by name.
const OPERANDS_UNSUPPORTED: [&str; 1] = ["cbs"];
const FLAGS_UNSUPPORTED: [&str; 13] = [
    "append",
    "binary",
    "cio",
    "directory",
    "dsync",
    "noatime",
    "nocache",
    "noctty",
    "nofollow",
    "nolinks",
    "nonblock",
    "sync",
    "text",
];
const CONVERSIONS_UNSUPPORTED: [&str; 11] = [
    "ascii", "block", "ebcdic", "ibm", "lcase", "noerror", "sparse", "swab", "sync", "ucase", "unblock",
];

/// What a dd command line means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DdOperands {
    /// Where to read; `None` is standard input.
    pub(crate) input: Option<TypedTarget>,
    /// Where to write; `None` is standard output.
    pub(crate) output: Option<TypedTarget>,
    /// The bytes of one request, at least 1.
    pub(crate) block_size: u64,
    /// How much to copy; `None` is all there is.
    pub(crate) count: Option<Amount>,
    /// How much of the input to pass over. At most `i64::MAX` bytes.
    pub(crate) skip: Amount,
    /// How much of the output to pass over. At most `i64::MAX` bytes.
    pub(crate) seek: Amount,
    /// How the input is read.
    pub(crate) input_direct: Direct,
    /// How the output is written.
    pub(crate) output_direct: Direct,
    /// What a short read from a pipe counts as.
    pub(crate) short_reads: ShortReads,
    /// What short reads become on the output.
    pub(crate) output_blocks: OutputBlocks,
    /// What becomes of the old content of an output file.
    pub(crate) truncate: Truncate,
    /// Whether the output file may or must be made.
    pub(crate) creation: Creation,
    /// What is made durable before the end.
    pub(crate) sync: Option<FinalSync>,
    /// Requests in flight, 1 to 1024.
    pub(crate) depth: u32,
    /// What is told on standard error.
    pub(crate) status: Status,
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

/// Whether caches are passed by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Direct {
    /// Whatever the target does by default.
    #[default]
    No,
    /// `iflag=direct`, `oflag=direct`.
    Yes,
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
    /// Full blocks, as POSIX wants it where `bs=` is not given.
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

/// What is made durable before the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinalSync {
    /// `conv=fdatasync`: the data.
    Data,
    /// `conv=fsync`: the data and the file's attributes.
    Full,
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

impl DdOperands {
    /// Parses the operands in the order in which they were typed.
    pub(crate) fn parse<T: AsRef<OsStr>>(typed: &[T]) -> Result<DdOperands, OperandError> {
        let mut operands = Typed::default();
        for operand in typed {
            operands.set(operand.as_ref())?;
        }
        operands.resolve()
    }
}

/// The operands as typed, each by itself.
#[derive(Default)]
struct Typed {
    input: Option<OsString>,
    output: Option<OsString>,
    bs: Option<u64>,
    ibs: Option<u64>,
    obs: Option<u64>,
    count: Option<Number>,
    skip: Option<Number>,
    seek: Option<Number>,
    count_bytes: bool,
    skip_bytes: bool,
    seek_bytes: bool,
    input_direct: Direct,
    output_direct: Direct,
    short_reads: ShortReads,
    truncate: Truncate,
    excl: bool,
    nocreat: bool,
    sync: Option<FinalSync>,
    depth: Option<u32>,
    status: Status,
}

impl Typed {
    fn set(&mut self, operand: &OsStr) -> Result<(), OperandError> {
        let unrecognized = || OperandError::unrecognized(operand);
        let (name, value) = split_operand(operand).ok_or_else(unrecognized)?;
        match name {
            "if" => self.input = Some(value.to_owned()),
            "of" => self.output = Some(value.to_owned()),
            "bs" => self.bs = Some(parse_block_size(value)?),
            "ibs" => self.ibs = Some(parse_block_size(value)?),
            "obs" => self.obs = Some(parse_block_size(value)?),
            "count" => self.count = Some(parse_number(value)?),
            "skip" | "iseek" => self.skip = Some(parse_number(value)?),
            "seek" | "oseek" => self.seek = Some(parse_number(value)?),
            "iflag" => each(value, |flag| self.set_input_flag(flag))?,
            "oflag" => each(value, |flag| self.set_output_flag(flag))?,
            "conv" => each(value, |conversion| self.set_conversion(conversion))?,
            "iodepth" => self.depth = Some(parse_depth(value)?),
            "status" => self.status = parse_status(value)?,
            _ if OPERANDS_UNSUPPORTED.contains(&name) => {
                return Err(OperandError::unsupported(&format!("{name}=")));
            }
            _ => return Err(unrecognized()),
        }
        Ok(())
    }

    fn set_input_flag(&mut self, flag: &str) -> Result<(), OperandError> {
        match flag {
            "direct" => self.input_direct = Direct::Yes,
            "count_bytes" => self.count_bytes = true,
            "skip_bytes" => self.skip_bytes = true,
            "fullblock" => self.short_reads = ShortReads::Refill,
            _ if FLAGS_UNSUPPORTED.contains(&flag) => {
                return Err(OperandError::unsupported(&format!("iflag={flag}")));
            }
            _ => return Err(OperandError::invalid("input flag", flag)),
        }
        Ok(())
    }

    fn set_output_flag(&mut self, flag: &str) -> Result<(), OperandError> {
        match flag {
            "direct" => self.output_direct = Direct::Yes,
            "seek_bytes" => self.seek_bytes = true,
            _ if FLAGS_UNSUPPORTED.contains(&flag) => {
                return Err(OperandError::unsupported(&format!("oflag={flag}")));
            }
            _ => return Err(OperandError::invalid("output flag", flag)),
        }
        Ok(())
    }

    fn set_conversion(&mut self, conversion: &str) -> Result<(), OperandError> {
        match conversion {
            "notrunc" => self.truncate = Truncate::Never,
            "fsync" => self.sync = Some(FinalSync::Full),
            // The stronger of the two wins, in whichever order they stand.
            "fdatasync" => self.sync = self.sync.or(Some(FinalSync::Data)),
            "excl" => self.excl = true,
            "nocreat" => self.nocreat = true,
            _ if CONVERSIONS_UNSUPPORTED.contains(&conversion) => {
                return Err(OperandError::unsupported(&format!("conv={conversion}")));
            }
            _ => return Err(OperandError::invalid("conversion", conversion)),
        }
        Ok(())
    }

    fn resolve(self) -> Result<DdOperands, OperandError> {
        let block_size = self.block_size()?;
        let creation = self.creation()?;
        let skip = amount(self.skip, self.skip_bytes).unwrap_or(Amount::Blocks(0));
        let seek = amount(self.seek, self.seek_bytes).unwrap_or(Amount::Blocks(0));
        check_offset("skip", skip, block_size)?;
        check_offset("seek", seek, block_size)?;
        Ok(DdOperands {
            input: self.input.map(TypedTarget::from),
            output: self.output.map(TypedTarget::from),
            block_size,
            count: amount(self.count, self.count_bytes),
            skip,
            seek,
            input_direct: self.input_direct,
            output_direct: self.output_direct,
            short_reads: self.short_reads,
            output_blocks: match self.bs {
                Some(_) => OutputBlocks::AsRead,
                None => OutputBlocks::Full,
            },
            truncate: self.truncate,
            creation,
            sync: self.sync,
            depth: self.depth.unwrap_or_else(|| default_depth(block_size)),
            status: self.status,
        })
    }

    /// The one size of all blocks: `bs=`, or `ibs=` and `obs=` where they agree.
    fn block_size(&self) -> Result<u64, OperandError> {
        let size = match (self.bs, self.ibs, self.obs) {
            (Some(bs), _, _) => bs,
            (None, Some(ibs), Some(obs)) if ibs == obs => ibs,
            _ => BLOCK_SIZE_DEFAULT,
        };
        for (name, given) in [("ibs", self.ibs), ("obs", self.obs)] {
            if let Some(given) = given.filter(|given| *given != size) {
                return Err(OperandError(format!(
                    "{name}={given} is not supported beside a block size of {size}: \
                     input and output blocks are one; write bs={given}"
                )));
            }
        }
        Ok(size)
    }

    fn creation(&self) -> Result<Creation, OperandError> {
        match (self.excl, self.nocreat) {
            (true, true) => Err(OperandError("cannot combine excl and nocreat".to_owned())),
            (true, false) => Ok(Creation::Exclusive),
            (false, true) => Ok(Creation::Never),
            (false, false) => Ok(Creation::IfMissing),
        }
    }
}

/// Splits `name=value`; a name is never anything but ASCII.
fn split_operand(operand: &OsStr) -> Option<(&str, &OsStr)> {
    let bytes = operand.as_bytes();
    let equals = bytes.iter().position(|byte| *byte == b'=')?;
    let name = str::from_utf8(bytes.get(..equals)?).ok()?;
    Some((name, OsStr::from_bytes(bytes.get(equals + 1..)?)))
}

/// Hands each member of a list with commas to `set`.
fn each(value: &OsStr, set: impl FnMut(&str) -> Result<(), OperandError>) -> Result<(), OperandError> {
    value.to_string_lossy().split(',').try_for_each(set)
}

fn parse_number(value: &OsStr) -> Result<Number, OperandError> {
    // A replacement character is no digit: what is not UTF-8 is refused like any other garbage.
    let text = value.to_string_lossy();
    number::parse(&text).map_err(|error| OperandError::invalid_number(&text, &error))
}

fn parse_block_size(value: &OsStr) -> Result<u64, OperandError> {
    match parse_number(value)?.value {
        0 => Err(OperandError::invalid_number("0", &"a block has a size")),
        size => Ok(size),
    }
}

fn parse_depth(value: &OsStr) -> Result<u32, OperandError> {
    let depth = parse_number(value)?.value;
    match u32::try_from(depth) {
        Ok(depth) if (1..=DEPTH_MAX).contains(&depth.into()) => Ok(depth),
        _ => Err(OperandError::invalid_number(
            &value.to_string_lossy(),
            &format_args!("iodepth= is 1 to {DEPTH_MAX}"),
        )),
    }
}

fn default_depth(block_size: u64) -> u32 {
    Room::here().buffers(block_size, DEPTH_DEFAULT)
}

fn parse_status(value: &OsStr) -> Result<Status, OperandError> {
    match &*value.to_string_lossy() {
        "none" => Ok(Status::Silent),
        "noxfer" => Ok(Status::NoTransfer),
        "progress" => Ok(Status::Progress),
        other => Err(OperandError::invalid("status level", other)),
    }
}

fn amount(typed: Option<Number>, flagged_bytes: bool) -> Option<Amount> {
    typed.map(|number| {
        if number.in_bytes || flagged_bytes {
            Amount::Bytes(number.value)
        } else {
            Amount::Blocks(number.value)
        }
    })
}

fn check_offset(name: &str, amount: Amount, block_size: u64) -> Result<(), OperandError> {
    if amount.bytes(block_size) > NUMBER_MAX {
        return Err(OperandError(format!("{name}= points beyond the largest file offset")));
    }
    Ok(())
}

/// What is wrong with the operands, in the words of GNU dd where it has some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OperandError(String);

impl OperandError {
    fn unrecognized(operand: &OsStr) -> OperandError {
        let operand = operand.to_string_lossy();
        OperandError(format!("unrecognized operand '{operand}'"))
    }

    fn unsupported(what: &str) -> OperandError {
        OperandError(format!("{what} is known to GNU dd, but not supported here"))
    }

    fn invalid(what: &str, word: &str) -> OperandError {
        OperandError(format!("invalid {what}: '{word}'"))
    }

    fn invalid_number(text: &str, why: &dyn fmt::Display) -> OperandError {
        OperandError(format!("invalid number: '{text}': {why}"))
    }
}

impl fmt::Display for OperandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OperandError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> DdOperands {
        let typed: Vec<&str> = line.split_whitespace().collect();
        DdOperands::parse(&typed).unwrap()
    }

    fn refusal(line: &str) -> String {
        let typed: Vec<&str> = line.split_whitespace().collect();
        DdOperands::parse(&typed).unwrap_err().to_string()
    }

    #[test]
    fn nothing_typed_is_dd_from_standard_input_to_standard_output() {
        let operands = parse("");
        assert_eq!(operands.input, None);
        assert_eq!(operands.output, None);
        assert_eq!(operands.block_size, 512);
        assert_eq!(operands.count, None);
        assert_eq!(operands.skip, Amount::Blocks(0));
        assert_eq!(operands.truncate, Truncate::AtSeek);
        assert_eq!(operands.creation, Creation::IfMissing);
        assert_eq!(operands.depth, 16);
        assert_eq!(operands.status, Status::Summary);
    }

    #[test]
    fn a_full_command_line() {
        let operands = parse(
            "if=in of=vol#a bs=1M count=8 skip=1 seek=2 iflag=direct,fullblock oflag=direct \
             conv=notrunc,fsync,nocreat iodepth=32 status=progress",
        );
        let named = |text: &str| Some(TypedTarget::from(OsString::from(text)));
        assert_eq!(operands.input, named("in"));
        assert_eq!(operands.output, named("vol#a"));
        assert_eq!(operands.block_size, 1 << 20);
        assert_eq!(operands.count, Some(Amount::Blocks(8)));
        assert_eq!(operands.skip.bytes(operands.block_size), 1 << 20);
        assert_eq!(operands.seek.bytes(operands.block_size), 2 << 20);
        assert_eq!(operands.input_direct, Direct::Yes);
        assert_eq!(operands.output_direct, Direct::Yes);
        assert_eq!(operands.short_reads, ShortReads::Refill);
        assert_eq!(operands.truncate, Truncate::Never);
        assert_eq!(operands.creation, Creation::Never);
        assert_eq!(operands.sync, Some(FinalSync::Full));
        assert_eq!(operands.depth, 32);
        assert_eq!(operands.status, Status::Progress);
    }

    #[test]
    fn bytes_by_flag_or_by_suffix_in_any_order() {
        assert_eq!(parse("count=3 iflag=count_bytes").count, Some(Amount::Bytes(3)));
        assert_eq!(parse("iflag=skip_bytes skip=3").skip, Amount::Bytes(3));
        assert_eq!(parse("oflag=seek_bytes seek=3").seek, Amount::Bytes(3));
        assert_eq!(parse("count=1KiB").count, Some(Amount::Bytes(1024)));
        assert_eq!(parse("iseek=2x3B").skip, Amount::Bytes(6));
        assert_eq!(parse("oseek=1K").seek, Amount::Blocks(1024));
    }

    #[test]
    fn the_last_operand_of_a_name_wins_and_lists_add_up() {
        assert_eq!(parse("bs=1 bs=2").block_size, 2);
        let operands = parse("conv=fsync conv=notrunc,fdatasync");
        assert_eq!(operands.sync, Some(FinalSync::Full));
        assert_eq!(operands.truncate, Truncate::Never);
        assert_eq!(parse("conv=fdatasync").sync, Some(FinalSync::Data));
        assert_eq!(parse("conv=excl").creation, Creation::Exclusive);
    }

    #[test]
    fn a_path_may_hold_anything() {
        let named = |text: &str| Some(TypedTarget::from(OsString::from(text)));
        assert_eq!(parse("if=a=b").input, named("a=b"));
        let raw = OsStr::from_bytes(b"of=\xff");
        let expected = TypedTarget::from(OsStr::from_bytes(b"\xff").to_owned());
        assert_eq!(DdOperands::parse(&[raw]).unwrap().output, Some(expected));
    }

    #[test]
    fn unknown_operands_are_told_as_gnu_dd_tells_them() {
        assert_eq!(refusal("foo=bar"), "unrecognized operand 'foo=bar'");
        assert_eq!(refusal("foo"), "unrecognized operand 'foo'");
        assert_eq!(refusal("=x"), "unrecognized operand '=x'");
        assert_eq!(refusal("json=1"), "unrecognized operand 'json=1'");
        assert_eq!(refusal("conv=foo"), "invalid conversion: 'foo'");
        assert_eq!(refusal("iflag=foo"), "invalid input flag: 'foo'");
        assert_eq!(refusal("iflag=seek_bytes"), "invalid input flag: 'seek_bytes'");
        assert_eq!(refusal("oflag=fullblock"), "invalid output flag: 'fullblock'");
        assert_eq!(refusal("oflag=direct,"), "invalid output flag: ''");
        assert_eq!(refusal("status=foo"), "invalid status level: 'foo'");
        assert_eq!(refusal("conv=excl,nocreat"), "cannot combine excl and nocreat");
        assert!(refusal("bs=4q").starts_with("invalid number: '4q'"));
    }

    #[test]
    fn what_gnu_dd_knows_and_we_do_not_is_told_apart() {
        for line in ["oflag=append", "iflag=nocache", "conv=swab", "cbs=80"] {
            assert!(refusal(line).contains("not supported"), "{line}");
        }
    }

    #[test]
    fn large_blocks_are_fewer_unless_told() {
        assert_eq!(parse("bs=128M").depth, 8);
        assert_eq!(parse("bs=2G").depth, 1);
        assert_eq!(parse("bs=128M iodepth=16").depth, 16);
    }

    #[test]
    fn short_reads_add_up_to_blocks_unless_bs_is_given() {
        assert_eq!(parse("ibs=4k obs=4k").output_blocks, OutputBlocks::Full);
        assert_eq!(parse("bs=4k").output_blocks, OutputBlocks::AsRead);
    }

    #[test]
    fn blocks_have_one_size() {
        assert_eq!(parse("bs=4k ibs=4096 obs=4K").block_size, 4096);
        assert_eq!(parse("ibs=4k obs=4k").block_size, 4096);
        assert_eq!(parse("ibs=512").block_size, 512);
        assert!(refusal("ibs=1024").ends_with("write bs=1024"));
        assert!(refusal("bs=4k obs=8k").contains("obs=8192"));
        assert!(refusal("ibs=1k obs=2k").contains("not supported"));
    }

    #[test]
    fn figures_have_limits() {
        for line in ["bs=0", "iodepth=0", "iodepth=1025", "iodepth=1T", "bs=0x200"] {
            assert!(refusal(line).starts_with("invalid number: "), "{line}");
        }
        assert!(refusal("bs=1G skip=8E").starts_with("invalid number: '8E'"));
        assert!(refusal("bs=1G seek=1E").contains("seek= points beyond"));
        assert_eq!(parse("skip=9223372036854775807B").skip.bytes(512), NUMBER_MAX);
        assert_eq!(parse("count=9223372036854775807").count.unwrap().bytes(512), u64::MAX);
    }
}
