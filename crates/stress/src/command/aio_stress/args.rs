//! `baio aio-stress` as typed: the letters of aio-stress 0.21.

use baio_console::size::split_digits;
use baio_console::target::TypedTarget;
use clap::Args;

use crate::job::Backend;

/// `baio aio-stress`
#[derive(Debug, Args)]
#[command(after_help = "\
Sizes are whole numbers with k, m, g (or b for bytes); a bare -a or -r counts KB, a bare -s or -C counts MB.
The stages run in the order 0 1 2 3, whatever the order of -o; without -o all four. Files that are missing or short are
written full first, unless the first stage is a sequential write by one thread and one context, which does it itself.

Different from aio-stress 0.21: -d counts as there (per file, shared by a thread's files) but requests are submitted as soon
as a batch of places is free; -C no longer sets -b as well; -I counts submissions of each thread in a stage, which is
what the old program's code did and its help did not say, and ends the run with the stage that reaches it; -v stamps every
record and a mismatch ends the run with status 3; both words of -m mean one shared mapping; without -O requests go
through the kernel's cache; a volume image or a device is written only with --force.

Examples:
  baio aio-stress -s 256 -r 64 -d 64 -O /tmp/file
  baio aio-stress -o 2 -o 3 -s 64m -r 4k -O -S -l -L -u /tmp/a /tmp/b")]
pub struct AioStressArgs {
    /// Buffers, and random offsets, are aligned to this: 512 bytes to 4 KB [default: 4]
    #[arg(short = 'a', value_name = "KB", value_parser = parse_kb)]
    pub(crate) align: Option<u64>,
    /// Requests that are submitted at once at most [default: files times contexts times -i]
    #[arg(short = 'b', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch: Option<u32>,
    /// Contexts: streams in each file, -C apart
    #[arg(short = 'c', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) contexts: u32,
    /// Offset between contexts; each is as much shorter at its end too
    #[arg(short = 'C', value_name = "MB", default_value = "2", value_parser = parse_mb)]
    pub(crate) context_offset: u64,
    /// Requests in flight for each file and context
    #[arg(short = 'd', value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub(crate) depth: u32,
    /// Requests on one file before the next file's turn
    #[arg(short = 'i', value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) iterations: u32,
    /// Submissions of each thread in a stage at most [default: no limit]
    #[arg(short = 'I', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) submissions: Option<u64>,
    /// Print the latencies of submissions after each stage
    #[arg(short = 'l')]
    pub(crate) submit_latency: bool,
    /// Print the latencies of completions after each stage
    #[arg(short = 'L')]
    pub(crate) completion_latency: bool,
    /// Take the buffers from shared memory: shm or shmfs
    #[arg(short = 'm', value_name = "WORD", value_parser = ["shm", "shmfs"])]
    pub(crate) memory: Option<String>,
    /// No fsync after the stages
    #[arg(short = 'n')]
    pub(crate) no_sync: bool,
    /// Add a stage: 0 write, 1 read, 2 random write, 3 random read
    #[arg(short = 'o', value_name = "N", value_parser = clap::value_parser!(u8).range(0..=3))]
    pub(crate) stages: Vec<u8>,
    /// Past the kernel's cache (O_DIRECT)
    #[arg(short = 'O')]
    pub(crate) direct: bool,
    /// Record size: bytes of each request
    #[arg(short = 'r', value_name = "KB", default_value = "64", value_parser = parse_kb)]
    pub(crate) record: u64,
    /// File size
    #[arg(short = 's', value_name = "MB", default_value = "1024", value_parser = parse_mb)]
    pub(crate) size: u64,
    /// Every write is durable when it completes (O_SYNC)
    #[arg(short = 'S')]
    pub(crate) durable: bool,
    /// Threads, each with its own share of the files and contexts
    #[arg(short = 't', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) threads: u32,
    /// Unlink the files afterwards
    #[arg(short = 'u')]
    pub(crate) unlink: bool,
    /// Verify: stamp every record that is written, check every one that is read
    #[arg(short = 'v')]
    pub(crate) verify: bool,
    /// No stonewalling: the first thread that ends a stage does not end it for the others
    #[arg(short = 'x')]
    pub(crate) no_stonewall: bool,
    /// How requests are executed; not a letter of aio-stress
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) backend: Backend,
    /// Overwrite a volume image or a device; not a letter of aio-stress
    #[arg(long)]
    pub(crate) force: bool,
    /// The files
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<TypedTarget>,
}

fn parse_kb(text: &str) -> Result<u64, String> {
    parse(text, 1 << 10)
}

fn parse_mb(text: &str) -> Result<u64, String> {
    parse(text, 1 << 20)
}

/// A size as aio-stress reads it: the unit of a bare number depends on the letter.
fn parse(text: &str, bare: u64) -> Result<u64, String> {
    let (digits, unit) = split_digits(text);
    let unit = match unit {
        "" => bare,
        "b" | "B" => 1,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        _ => return Err("a size is a whole number with b, k, m or g".to_owned()),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "a size is a whole number with b, k, m or g".to_owned())?;
    number
        .checked_mul(unit)
        .ok_or_else(|| "the size is too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_number_counts_what_its_letter_says() {
        assert_eq!(parse_kb("64"), Ok(65_536));
        assert_eq!(parse_mb("64"), Ok(64 << 20));
        assert_eq!(parse_kb("400m"), Ok(400 << 20));
        assert_eq!(parse_mb("8K"), Ok(8192));
        assert_eq!(parse_kb("512b"), Ok(512));
        for text in [
            "",
            "k",
            "-1",
            "1.5",
            "4kB",
            "99999999999999999999g",
            "18446744073709551615g",
        ] {
            assert!(parse_kb(text).is_err(), "{text}");
        }
    }
}
