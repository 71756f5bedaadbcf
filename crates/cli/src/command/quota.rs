//! `baio quota`: what a user holds of a volume, and what it may hold.

use std::io::{self, Write};

use baio::{Account, Core, EVERYBODY_ELSE, Identity, Limits, Link};
use baio_console::diagnostics;
use baio_console::failure::Failure;
use baio_console::named::Volume;
use baio_console::output::{Align, Answer, Table};
use baio_console::size::format_size;
use serde::Serialize;

use crate::command::reach::ask;
use crate::command::volume_args::{LimitArg, QuotaArgs};

/// What `quota` shows. A limit that is not set is null; the uid of `default` is 4294967295.
#[derive(Serialize)]
pub(crate) struct Quota {
    owner_uid: u32,
    used_bytes: u64,
    limit_bytes: Option<u64>,
    used_segments: u64,
    limit_segments: Option<u64>,
}

/// Shows, or sets and shows.
pub(crate) fn run(args: QuotaArgs) -> Result<Quota, Failure> {
    let (volume, typed) = (args.path.volume("quota")?, args.path.to_string());
    let is_shown = args.blocks.is_none() && args.segments.is_none();
    if let Volume::Here(path) = &volume {
        // What looking refuses is refused before the volume is opened to write.
        let seen = Core::inspect_quota(path, Identity::effective(), args.uid);
        let (account, block_size) = seen.map_err(|error| Failure::from_storage("quota", &*typed, &error))?;
        if is_shown {
            return Ok(shown(args.uid, account, block_size));
        }
    }
    let (account, block_size) = ask("quota", (&volume, &typed), |reach| {
        let block_size = reach.link.info().wait()?.block_size;
        let before = reach.link.quota(args.uid).wait()?;
        let account = match is_shown {
            true => before,
            false => {
                let limits = limits(&before, block_size, (args.blocks, args.segments));
                reach.link.set_quota(args.uid, limits).wait()?
            }
        };
        Ok((account, block_size))
    })?;
    let quota = shown(args.uid, account, block_size);
    quota.tell_rounded(&typed, args.blocks);
    Ok(quota)
}

fn shown(owner_uid: u32, account: Account, block_size: u32) -> Quota {
    let bytes = |blocks: u64| blocks.saturating_mul(u64::from(block_size));
    Quota {
        owner_uid,
        used_bytes: bytes(account.used.blocks),
        limit_bytes: account.limits.blocks.map(bytes),
        used_segments: account.used.segments,
        limit_segments: account.limits.segments,
    }
}

/// Of the limits that are asked for, in bytes and in segments; what is not given stays as it is.
fn limits(before: &Account, block_size: u32, asked: (Option<LimitArg>, Option<LimitArg>)) -> Limits {
    // A broker tells the size of a block, and may tell anything.
    let block_size = u64::from(block_size).max(1);
    let (blocks, segments) = asked;
    Limits {
        blocks: blocks.map_or(before.limits.blocks, |LimitArg(bytes)| {
            bytes.map(|bytes| bytes / block_size)
        }),
        segments: segments.map_or(before.limits.segments, |LimitArg(segments)| segments),
    }
}

impl Quota {
    /// Says that the user may hold less than was asked for, where it is so: blocks are whole.
    fn tell_rounded(&self, typed: &str, asked: Option<LimitArg>) {
        let asked = asked.and_then(|LimitArg(bytes)| bytes).unwrap_or(0);
        if let Some(got) = self.limit_bytes.filter(|got| *got < asked) {
            diagnostics::say(format_args!(
                "baio: quota: {typed}: {asked} bytes are rounded down to {got}, to whole blocks"
            ));
        }
    }
}

impl Answer for Quota {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let owner = match self.owner_uid {
            EVERYBODY_ELSE => "default".to_owned(),
            uid => uid.to_string(),
        };
        let limit = |limit: Option<String>| limit.unwrap_or_else(|| "none".to_owned());
        let mut table = Table::with_headings(&[
            ("UID", Align::Right),
            ("USED", Align::Right),
            ("MAX", Align::Right),
            ("SEGMENTS", Align::Right),
            ("MAX-SEGMENTS", Align::Right),
        ]);
        table.row([
            owner,
            format_size(self.used_bytes),
            limit(self.limit_bytes.map(format_size)),
            self.used_segments.to_string(),
            limit(self.limit_segments.map(|limit| limit.to_string())),
        ]);
        table.write(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_whose_blocks_have_no_bytes_ends_no_client() {
        let asked = (Some(LimitArg(Some(1 << 20))), Some(LimitArg(None)));
        let limits = |block_size| limits(&Account::default(), block_size, asked);
        assert_eq!((limits(4096).blocks, limits(4096).segments), (Some(256), None));
        assert_eq!(limits(0).blocks, Some(1 << 20));
    }
}
