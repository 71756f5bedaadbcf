//! Operands as typed, each by itself, and how they are resolved together.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use baio::{Durability, Mode};
use baio_console::memory_limit::Room;
use baio_console::target::TypedTarget;
use baio_engine::Choice;

use super::number::{self, NUMBER_MAX, Number};
use super::words::{self, OperandError};
use super::{Amount, Case, Conversion, Creation, DdOperands, Flags, OutputBlocks, ShortReads, Status, Truncate};

/// The block size of dd since the first Unix.
const BLOCK_SIZE_DEFAULT: u64 = 512;

/// Requests in flight unless `iodepth=` says otherwise; fewer where so many blocks would not fit into memory.
const DEPTH_DEFAULT: u32 = 16;

/// More requests than this are never in flight: the engine has that many slots.
const DEPTH_MAX: u64 = 1024;

/// Parses the operands in the order in which they were typed.
pub(super) fn parse<T: AsRef<OsStr>>(typed: &[T]) -> Result<DdOperands, OperandError> {
    let mut operands = Typed::default();
    for operand in typed {
        operands.set(operand.as_ref())?;
    }
    operands.resolve()
}

/// The operands as typed.
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
    input_flags: Flags,
    output_flags: Flags,
    short_reads: ShortReads,
    conversions: Vec<&'static str>,
    depth: Option<u32>,
    backend: Choice,
    mode: Option<Mode>,
    verifies: bool,
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
            "cbs" => return Err(OperandError::of_gnu_dd("cbs=")),
            "count" => self.count = Some(parse_number(value)?),
            "skip" | "iseek" => self.skip = Some(parse_number(value)?),
            "seek" | "oseek" => self.seek = Some(parse_number(value)?),
            "iflag" => each(value, |flag| self.set_input_flag(flag))?,
            "oflag" => each(value, |flag| self.set_output_flag(flag))?,
            "conv" => each(value, |conversion| self.set_conversion(conversion))?,
            "iodepth" => self.depth = Some(parse_depth(value)?),
            "backend" => self.backend = parse_backend(value)?,
            "mode" => self.mode = Some(parse_mode(value)?),
            "verify" => self.verifies = parse_verify(value)?,
            "status" => self.status = parse_status(value)?,
            _ => return Err(unrecognized()),
        }
        Ok(())
    }

    fn set_input_flag(&mut self, flag: &str) -> Result<(), OperandError> {
        match flag {
            "count_bytes" => self.count_bytes = true,
            "skip_bytes" => self.skip_bytes = true,
            "fullblock" => self.short_reads = ShortReads::Refill,
            _ if set_flag(&mut self.input_flags, flag) => {}
            _ => return Err(OperandError::invalid("input flag", flag, &words::INPUT_FLAGS)),
        }
        Ok(())
    }

    fn set_output_flag(&mut self, flag: &str) -> Result<(), OperandError> {
        match flag {
            "seek_bytes" => self.seek_bytes = true,
            _ if set_flag(&mut self.output_flags, flag) => {}
            _ => return Err(OperandError::invalid("output flag", flag, &words::OUTPUT_FLAGS)),
        }
        Ok(())
    }

    fn set_conversion(&mut self, conversion: &str) -> Result<(), OperandError> {
        if words::CONVERSIONS_OF_GNU_DD.contains(&conversion) {
            return Err(OperandError::of_gnu_dd(&format!("conv={conversion}")));
        }
        let known = words::CONVERSIONS.iter().find(|known| **known == conversion);
        let known = known.ok_or_else(|| OperandError::invalid("conversion", conversion, &words::CONVERSIONS))?;
        self.conversions.push(known);
        Ok(())
    }

    fn converts(&self, word: &str) -> bool {
        self.conversions.contains(&word)
    }

    fn resolve(self) -> Result<DdOperands, OperandError> {
        for flags in [self.input_flags, self.output_flags] {
            if flags.direct && flags.nocache {
                return Err(OperandError::combined("direct and nocache"));
            }
        }
        // What was passed over is not what was written, and where an append has gone nobody knows.
        if self.verifies && (self.converts("sparse") || self.output_flags.append) {
            return Err(OperandError::combined("verify=blake3 and sparse or append"));
        }
        let block_size = self.bs.or(self.ibs).unwrap_or(BLOCK_SIZE_DEFAULT);
        let output_block = self.bs.or(self.obs).unwrap_or(BLOCK_SIZE_DEFAULT);
        let conversion = self.conversion()?;
        let creation = self.creation()?;
        let skip = amount(self.skip, self.skip_bytes).unwrap_or(Amount::Blocks(0));
        let seek = amount(self.seek, self.seek_bytes).unwrap_or(Amount::Blocks(0));
        check_offset("skip", skip, block_size)?;
        check_offset("seek", seek, output_block)?;
        let as_read = self.bs.is_some() && !self.converts_blocks();
        Ok(DdOperands {
            block_size,
            output_block,
            count: amount(self.count, self.count_bytes),
            skip,
            seek,
            input_flags: self.input_flags,
            output_flags: self.output_flags,
            short_reads: self.short_reads,
            output_blocks: match as_read {
                true => OutputBlocks::AsRead,
                false => OutputBlocks::Full,
            },
            conversion,
            pads: self.converts("sync"),
            noerror: self.converts("noerror"),
            sparse: self.converts("sparse"),
            truncate: match self.converts("notrunc") {
                true => Truncate::Never,
                false => Truncate::AtSeek,
            },
            creation,
            // The stronger of the two wins, in whichever order they stand.
            sync: match (self.converts("fsync"), self.converts("fdatasync")) {
                (true, _) => Durability::Full,
                (false, true) => Durability::Data,
                (false, false) => Durability::None,
            },
            depth: self
                .depth
                .unwrap_or_else(|| Room::here().buffers(block_size.max(output_block), DEPTH_DEFAULT)),
            backend: self.backend,
            mode: self.mode,
            verifies: self.verifies,
            status: self.status,
            input: self.input.map(TypedTarget::from),
            output: self.output.map(TypedTarget::from),
        })
    }

    /// Conversions of GNU dd that need blocks of their own on either side, even where they come to nothing.
    fn converts_blocks(&self) -> bool {
        ["lcase", "ucase", "swab"].iter().any(|word| self.converts(word))
    }

    fn conversion(&self) -> Result<Conversion, OperandError> {
        let case = match (self.converts("lcase"), self.converts("ucase")) {
            (true, true) => return Err(OperandError::combined("lcase and ucase")),
            (true, false) => Some(Case::Lower),
            (false, true) => Some(Case::Upper),
            (false, false) => None,
        };
        Ok(Conversion {
            case,
            swab: self.converts("swab"),
        })
    }

    fn creation(&self) -> Result<Creation, OperandError> {
        match (self.converts("excl"), self.converts("nocreat")) {
            (true, true) => Err(OperandError::combined("excl and nocreat")),
            (true, false) => Ok(Creation::Exclusive),
            (false, true) => Ok(Creation::Never),
            (false, false) => Ok(Creation::IfMissing),
        }
    }
}

/// Sets a flag that either side may have; says whether it is one.
fn set_flag(flags: &mut Flags, flag: &str) -> bool {
    match flag {
        "direct" => flags.direct = true,
        "append" => flags.append = true,
        "directory" => flags.directory = true,
        "dsync" if flags.durable == Durability::Full => {}
        "dsync" => flags.durable = Durability::Data,
        "sync" => flags.durable = Durability::Full,
        "nocache" => flags.nocache = true,
        "nonblock" => flags.nonblock = true,
        "noatime" => flags.noatime = true,
        "nofollow" => flags.nofollow = true,
        // A terminal that is opened here never becomes the controlling one.
        "noctty" => {}
        _ => return false,
    }
    true
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

fn parse_status(value: &OsStr) -> Result<Status, OperandError> {
    match &*value.to_string_lossy() {
        "none" => Ok(Status::Silent),
        "noxfer" => Ok(Status::NoTransfer),
        "progress" => Ok(Status::Progress),
        other => Err(OperandError::invalid("status level", other, &words::STATUS_LEVELS)),
    }
}

fn parse_backend(value: &OsStr) -> Result<Choice, OperandError> {
    let text = value.to_string_lossy();
    let found = Choice::ALL.into_iter().find(|choice| choice.name() == text);
    found.ok_or_else(|| OperandError::invalid("backend", &text, &Choice::ALL.map(Choice::name)))
}

fn parse_mode(value: &OsStr) -> Result<Mode, OperandError> {
    match &*value.to_string_lossy() {
        "direct" => Ok(Mode::Direct),
        "cached" => Ok(Mode::Cached),
        "kernel" => Ok(Mode::Kernel),
        "uncached" => Ok(Mode::Uncached),
        other => Err(OperandError::invalid("mode", other, &words::MODES)),
    }
}

fn parse_verify(value: &OsStr) -> Result<bool, OperandError> {
    match &*value.to_string_lossy() {
        "blake3" => Ok(true),
        "none" => Ok(false),
        other => Err(OperandError::invalid("way to verify", other, &words::VERIFICATIONS)),
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
        return Err(OperandError::beyond(name));
    }
    Ok(())
}
