//! What people type: sizes, durations, targets and the operands of dd never panic, and a size is what its words say.
#![no_main]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use baio_console::duration;
use baio_console::size::Size;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/cli/src"]
#[allow(dead_code, reason = "the program uses more of it")]
mod cli {
    pub(crate) mod operands;
}

use cli::operands;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        if let Ok(size) = text.parse::<Size>() {
            let again: Size = size.bytes().to_string().parse().expect("a number of bytes is a size");
            assert_eq!(again, size);
        }
        let _ = duration::parse_duration(text);
    }
    let words: Vec<&OsStr> = data.split(|&byte| byte == b'\n').map(OsStr::from_bytes).collect();
    if let Ok(parsed) = operands::DdOperands::parse(&words) {
        assert!(
            parsed.block_size > 0 && parsed.depth > 0,
            "a copy that could never move"
        );
    }
});
