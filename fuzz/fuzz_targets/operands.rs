//! What people type: sizes, durations, targets and the operands of dd never panic, and a size is what its words say.
#![no_main]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/cli/src"]
#[allow(dead_code, reason = "the program uses more of it")]
mod cli {
    pub(crate) mod duration;
    pub(crate) mod operands;
    pub(crate) mod size;
}

use cli::{duration, operands, size};

/// The room that the program takes from its memory cgroup; here there is always enough.
mod memory_limit {
    pub(crate) struct Room;

    impl Room {
        pub(crate) fn here() -> Room {
            Room
        }

        pub(crate) fn buffers(self, _each: u64, most: u32) -> u32 {
            most
        }
    }
}

/// The target as the operands know it; the program's resolves it against the file system, which a fuzzer must not touch.
mod target {
    use std::ffi::OsString;

    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct TypedTarget(OsString);

    impl From<OsString> for TypedTarget {
        fn from(text: OsString) -> TypedTarget {
            TypedTarget(text)
        }
    }
}

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        if let Ok(size) = text.parse::<size::Size>() {
            let again: size::Size = size.bytes().to_string().parse().expect("a number of bytes is a size");
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
