//! `baio quota`: what a user holds of a volume, and what it may hold.

use std::io::{self, Write};
use std::path::Path;

use baio::{Account, Core, EVERYBODY_ELSE, Identity, Limits, Link};
use baio_console::failure::Failure;
use baio_console::named::with_volume;
use baio_console::output::{Align, Answer, Table};
use baio_console::size::format_size;
use baio_console::target::{Served, Volume};
use serde::Serialize;

use crate::command::served;
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
    let path = match args.path.volume("quota")? {
        Volume::Here(path) => path,
        Volume::Served(served) => return serve(&args, &served),
    };
    let who = Identity::effective();
    let told = if args.blocks.is_none() && args.segments.is_none() {
        Core::inspect_quota(&path, who, args.uid)
    } else {
        set(&path, who, &args)
    };
    let (account, block_size) = told.map_err(|error| Failure::from_storage("quota", args.path.to_string(), &error))?;
    Ok(shown(args.uid, account, block_size))
}

fn serve(args: &QuotaArgs, served: &Served) -> Result<Quota, Failure> {
    let (account, block_size) = served::ask("quota", served, |link| {
        let block_size = link.info().wait()?.block_size;
        let before = link.quota(args.uid).wait()?;
        let account = match args.blocks.is_none() && args.segments.is_none() {
            true => before,
            false => link.set_quota(args.uid, limits(&before, block_size, args)).wait()?,
        };
        Ok((account, block_size))
    })?;
    Ok(shown(args.uid, account, block_size))
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

/// What is not given stays as it is.
fn limits(before: &Account, block_size: u32, args: &QuotaArgs) -> Limits {
    let blocks = |LimitArg(bytes): LimitArg| bytes.map(|bytes| bytes / u64::from(block_size));
    Limits {
        blocks: args.blocks.map_or(before.limits.blocks, blocks),
        segments: args
            .segments
            .map_or(before.limits.segments, |LimitArg(segments)| segments),
    }
}

fn set(path: &Path, who: Identity, args: &QuotaArgs) -> baio::Result<(Account, u32)> {
    let (before, block_size) = Core::inspect_quota(path, who, args.uid)?;
    let limits = limits(&before, block_size, args);
    let account = with_volume(path, |core| core.set_quota(who, args.uid, limits))?;
    Ok((account, block_size))
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
