//! What is typed, and what it means.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use super::number::NUMBER_MAX;
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
    assert_eq!(operands.sync, Durability::Full);
    assert_eq!(operands.truncate, Truncate::Never);
    assert_eq!(parse("conv=fdatasync").sync, Durability::Data);
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
    assert_eq!(
        refusal("iflag=seek_bytes"),
        "invalid input flag: 'seek_bytes'; near it is 'skip_bytes'"
    );
    assert_eq!(refusal("conv=lcas"), "invalid conversion: 'lcas'; near it is 'lcase'");
    assert_eq!(refusal("ibss=4"), "unrecognized operand 'ibss=4'; near it is 'ibs='");
    assert_eq!(refusal("mode=cache"), "invalid mode: 'cache'; near it is 'cached'");
    assert_eq!(refusal("oflag=fullblock"), "invalid output flag: 'fullblock'");
    assert_eq!(refusal("oflag=direct,"), "invalid output flag: ''");
    assert_eq!(refusal("status=foo"), "invalid status level: 'foo'");
    assert_eq!(refusal("conv=excl,nocreat"), "cannot combine excl and nocreat");
    assert!(refusal("bs=4q").starts_with("invalid number: '4q'"));
}

#[test]
fn every_word_is_known() {
    for word in words::CONVERSIONS {
        DdOperands::parse(&[format!("conv={word}")]).unwrap();
    }
    for flag in words::INPUT_FLAGS {
        DdOperands::parse(&[format!("iflag={flag}")]).unwrap();
    }
    for flag in words::OUTPUT_FLAGS {
        DdOperands::parse(&[format!("oflag={flag}")]).unwrap();
    }
    for mode in words::MODES {
        DdOperands::parse(&[format!("mode={mode}")]).unwrap();
    }
}

#[test]
fn what_cannot_stand_together_is_refused() {
    assert_eq!(refusal("conv=lcase,ucase"), "cannot combine lcase and ucase");
    assert_eq!(refusal("oflag=direct,nocache"), "cannot combine direct and nocache");
}

#[test]
fn what_is_left_to_gnu_dd_names_it() {
    for word in words::CONVERSIONS_OF_GNU_DD {
        let said = refusal(&format!("conv=swab,{word}"));
        assert!(
            said.starts_with(&format!("conv={word} ")) && said.contains("GNU dd"),
            "{said}"
        );
    }
    assert!(refusal("cbs=80").contains("use GNU dd"));
}

#[test]
fn large_blocks_are_fewer_unless_told() {
    assert_eq!(parse("").depth, 16);
    assert_eq!(parse("bs=128M").depth, 8);
    assert_eq!(parse("bs=2G").depth, 1);
    assert_eq!(parse("bs=128M iodepth=16").depth, 16);
}

#[test]
fn short_reads_add_up_to_blocks_unless_bs_is_given() {
    assert_eq!(parse("ibs=4k obs=4k").output_blocks, OutputBlocks::Full);
    assert_eq!(parse("bs=4k").output_blocks, OutputBlocks::AsRead);
    assert_eq!(parse("bs=4k conv=swab").output_blocks, OutputBlocks::Full);
}

#[test]
fn blocks_have_two_sizes() {
    let sizes = |line| {
        let operands = parse(line);
        (operands.block_size, operands.output_block)
    };
    assert_eq!(sizes("bs=4k ibs=512 obs=1K"), (4096, 4096));
    assert_eq!(sizes("ibs=4k obs=8k"), (4096, 8192));
    assert_eq!(sizes("ibs=1024"), (1024, 512));
    assert_eq!(parse("ibs=10 obs=20 skip=3 seek=3").skip_bytes(), 30);
    assert_eq!(parse("ibs=10 obs=20 skip=3 seek=3").seek_bytes(), 60);
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
