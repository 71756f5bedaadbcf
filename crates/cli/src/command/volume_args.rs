//! The arguments of the commands on volumes and segments, as typed.

use baio::{EVERYBODY_ELSE, OwnershipChange};
use baio_console::size::Size;
use baio_console::target::{TypedTarget, parse_uid};
use clap::{Args, ValueEnum};

/// `baio format`
#[derive(Debug, Args)]
#[command(after_help = "\
A file that exists is used at its own size unless --size is given; a missing one needs --size.
A path that holds a volume, a file system or a mounted device is refused without --force.
A new file is its owner's alone (0600): whoever may open it may read every segment. One that exists keeps its mode unless --mode is given.

Examples:
  baio format vol --size 64M
  baio format shared --size 64M --mode 0660
  baio format grows --size 64M --max-size 1T --segments 500

Elsewhere:
  baio format /dev/vdb --force")]
pub(crate) struct FormatArgs {
    /// The file or device
    #[arg(value_name = "PATH")]
    pub(crate) path: TypedTarget,
    /// Size of the volume
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<Size>,
    /// Size to which the volume may grow one day; its tables are laid out for it
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_size: Option<Size>,
    /// Unit of allocation
    #[arg(long, value_name = "SIZE", default_value = "4K")]
    pub(crate) block_size: Size,
    /// How many segments the volume can hold [default: one for every 1000 blocks]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) segments: Option<u64>,
    /// Overwrite whatever is there
    #[arg(long)]
    pub(crate) force: bool,
    /// Permissions of the volume's file, in octal [default: 0600 for a new file]
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    pub(crate) mode: Option<u32>,
}

/// `baio create`
#[derive(Debug, Args)]
#[command(after_help = "\
The segment is zeroed and durable when the command returns. Its size is rounded up to whole blocks.

Examples:
  baio format vol --size 64M
  baio create vol#log --size 16M
  baio create vol#mail --size 16M --reserve 32M --mode 0640

Elsewhere:
  baio create /srv/vol#1000/mail --size 1G --group 1000")]
pub(crate) struct CreateArgs {
    /// The volume and the new segment's name
    #[arg(value_name = "PATH#[UID/]NAME")]
    pub(crate) target: TypedTarget,
    /// Size of the segment
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Size,
    /// Size up to which it can grow later without being moved [default: its size]
    #[arg(long, value_name = "SIZE")]
    pub(crate) reserve: Option<Size>,
    /// Owner, where the target names none [default: the caller]
    #[arg(long, value_name = "UID", value_parser = parse_id)]
    pub(crate) owner: Option<u32>,
    /// Group [default: the caller's]
    #[arg(long, value_name = "GID", value_parser = parse_id)]
    pub(crate) group: Option<u32>,
    /// Permissions, in octal
    #[arg(long, value_name = "MODE", default_value = "0600", value_parser = parse_mode)]
    pub(crate) mode: u32,
    /// Write the zeroes, or have the device or file zero the range where it can, which is quick but makes the first
    /// durable writes slower
    #[arg(long, value_name = "HOW", default_value = "written")]
    pub(crate) zero: ZeroArg,
}

/// How the blocks of a new segment become zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ZeroArg {
    /// By writing.
    Written,
    /// By asking for it.
    Lazy,
}

/// `baio list`
#[derive(Debug, Args)]
#[command(after_help = "\
Opens the volume for reading only. Root sees all segments, everybody else their own.
A volume in use is read beside its owner: what is shown was so at one moment, or is marked as possibly torn.

Examples:
  baio format vol --size 64M
  baio create vol#log --size 16M
  baio list vol
  baio list vol --json")]
pub(crate) struct ListArgs {
    /// The volume
    #[arg(value_name = "PATH")]
    pub(crate) path: TypedTarget,
}

/// `baio stat`
#[derive(Debug, Args)]
#[command(after_help = "\
Opens the volume for reading only. One in use is read beside its owner, as by baio list.

Examples:
  baio format vol --size 64M
  baio create vol#log --size 16M
  baio stat vol
  baio stat vol#log --json")]
pub(crate) struct StatArgs {
    /// The volume or the segment
    #[arg(value_name = "PATH[#[UID/]NAME]")]
    pub(crate) target: TypedTarget,
}

/// `baio delete`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  baio format vol --size 64M
  baio create vol#log --size 16M
  baio delete vol#log")]
pub(crate) struct DeleteArgs {
    /// The segment
    #[arg(value_name = "PATH#[UID/]NAME")]
    pub(crate) target: TypedTarget,
}

/// `baio rename`
#[derive(Debug, Args)]
#[command(after_help = "\
The segment keeps its owner, its blocks and its identity. After a crash it has the old name or the new one.

Examples:
  baio format vol --size 64M
  baio create vol#log --size 16M
  baio rename vol#log log.old")]
pub(crate) struct RenameArgs {
    /// The segment
    #[arg(value_name = "PATH#[UID/]OLD")]
    pub(crate) target: TypedTarget,
    /// Its new name
    #[arg(value_name = "NEW")]
    pub(crate) new: String,
}

/// `baio chmod`
#[derive(Debug, Args)]
#[command(after_help = "\
Only its owner and root may. Rights are checked when a segment is opened: a program that has it open keeps the rights it had.
Whoever may open the volume's own file needs no permission of a segment.

Examples:
  baio format vol --size 64M
  baio create vol#log --size 16M
  baio chmod vol#log 0640

Elsewhere:
  baio chmod unix:/run/baio/vol.sock#log 0600")]
pub(crate) struct ChmodArgs {
    /// The segment
    #[arg(value_name = "PATH#[UID/]NAME")]
    pub(crate) target: TypedTarget,
    /// Its permissions, in octal
    #[arg(value_name = "MODE", value_parser = parse_mode)]
    pub(crate) mode: u32,
}

/// `baio chown`
#[derive(Debug, Args)]
#[command(after_help = "\
Only root may give a segment to another user, whose quota must allow it, and who must have no segment of that name.
Its owner may give it to a group that he is in, by `:GID`. Blocks and identity stay, and programs that have it open go on.
After a crash it has the old owner or the new one.

Examples:
  baio format vol --size 64M
  baio create vol#log --size 16M
  baio chown vol#log :$(id -g)

Elsewhere:
  baio chown /srv/vol#1000/mail 1001
  baio chown /srv/vol#1000/mail 1001:50
  baio chown unix:/run/baio/vol.sock#log :50")]
pub(crate) struct ChownArgs {
    /// The segment
    #[arg(value_name = "PATH#[UID/]NAME")]
    pub(crate) target: TypedTarget,
    /// Its new owner, its new group, or both
    #[arg(value_name = "UID[:GID]|:GID", value_parser = parse_owner)]
    pub(crate) to: OwnershipChange,
}

/// `baio resize`
#[derive(Debug, Args)]
#[command(after_help = "\
A segment that grows reads as zero behind its old end; it grows in place inside its reserve or into free blocks behind it,
and is moved otherwise. One that shrinks loses what stands behind its new end: that needs --shrink. It gives back what it does not
need, unless --reserve keeps it. Sizes are rounded up to whole blocks.
A volume only grows, up to the --max-size it was formatted for.

Examples:
  baio format vol --size 64M --max-size 128M
  baio create vol#log --size 16M
  baio resize vol#log --size 32M
  baio resize vol#log --size 8M --shrink --reserve 16M
  baio resize vol --size 128M")]
pub(crate) struct ResizeArgs {
    /// The segment or the volume
    #[arg(value_name = "PATH[#[UID/]NAME]")]
    pub(crate) target: TypedTarget,
    /// Its new size
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Size,
    /// Size up to which the segment can grow later without being moved
    #[arg(long, value_name = "SIZE")]
    pub(crate) reserve: Option<Size>,
    /// Cut the segment where --size is less than it has
    #[arg(long)]
    pub(crate) shrink: bool,
}

/// `baio quota`
#[derive(Debug, Args)]
#[command(after_help = "\
Without options it shows the limits; only root and the owner of the volume's file may set them. Blocks count by the reserve of the
segments. A limit below what is held takes nothing away. The limits of `default` bind each user without limits of its
own, root excepted; they are shown as that user's, and become its own when another limit is set for it.

Examples:
  baio format vol --size 64M
  baio quota vol 1000
  baio quota vol 1000 --blocks 10G --segments 100
  baio quota vol 1000 --blocks none
  baio quota vol default --blocks 1G --segments 20")]
pub(crate) struct QuotaArgs {
    /// The volume
    #[arg(value_name = "PATH")]
    pub(crate) path: TypedTarget,
    /// The user, or `default` for all that have no limits of their own
    #[arg(value_name = "UID", value_parser = parse_limited)]
    pub(crate) uid: u32,
    /// Bytes that its segments may hold, in whole blocks, or `none`
    #[arg(long, value_name = "SIZE", value_parser = parse_blocks_limit)]
    pub(crate) blocks: Option<LimitArg>,
    /// Segments that it may hold, or `none`
    #[arg(long, value_name = "N", value_parser = parse_segments_limit)]
    pub(crate) segments: Option<LimitArg>,
}

/// A limit as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitArg(pub(crate) Option<u64>);

/// `baio check`
#[derive(Debug, Args)]
#[command(after_help = "\
Reads every copy of all metadata, names every problem with its place, and writes nothing without --repair.
Exit status: 0 nothing is wrong, or everything was repaired; 3 something is wrong.
A volume that a broker serves is checked by the broker, which repairs nothing: for root, and for the user that its file belongs to.

Examples:
  baio format vol --size 64M
  baio check vol
  baio check vol --repair --json

Elsewhere:
  baio check unix:/run/baio/vol.sock")]
pub(crate) struct CheckArgs {
    /// The volume
    #[arg(value_name = "PATH")]
    pub(crate) path: TypedTarget,
    /// Repair what can be repaired
    #[arg(long)]
    pub(crate) repair: bool,
}

/// `baio defrag`
#[derive(Debug, Args)]
#[command(after_help = "\
Segments keep their contents and their names; a crash on the way loses nothing, and the next defrag goes on.
A volume that a broker serves is packed by the broker, while it serves: for root, and for the user that its file belongs to.

Examples:
  baio format vol --size 64M
  baio create vol#log --size 16M
  baio defrag vol

Elsewhere:
  baio defrag unix:/run/baio/vol.sock")]
pub(crate) struct DefragArgs {
    /// The volume
    #[arg(value_name = "PATH")]
    pub(crate) path: TypedTarget,
}

/// Reads a uid or a gid, as a target's owner is read.
fn parse_id(text: &str) -> Result<u32, String> {
    parse_uid(text).ok_or_else(|| "an id is a number from 0 to 4294967294".to_owned())
}

/// Whose limits: a user's, or those of everybody else.
fn parse_limited(text: &str) -> Result<u32, String> {
    match text {
        "default" => Ok(EVERYBODY_ELSE),
        _ => parse_id(text).map_err(|why| format!("{why}, or `default`")),
    }
}

/// Reads `UID`, `UID:GID` or `:GID`.
fn parse_owner(text: &str) -> Result<OwnershipChange, String> {
    let (owner, group) = match text.split_once(':') {
        Some((owner, group)) => (Some(owner).filter(|owner| !owner.is_empty()), Some(group)),
        None => (Some(text), None),
    };
    let [owner_uid, owner_gid] = [owner, group].map(|id| id.map(parse_id).transpose());
    Ok(OwnershipChange {
        owner_uid: owner_uid?,
        owner_gid: owner_gid?,
        mode: None,
    })
}

/// Reads permission bits in octal, with or without a leading zero.
pub(crate) fn parse_mode(text: &str) -> Result<u32, String> {
    let octal = text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    match u32::from_str_radix(text, 8) {
        Ok(mode) if octal && mode <= 0o777 => Ok(mode),
        _ => Err("permissions are octal, 0 to 0777".to_owned()),
    }
}

/// Reads a limit in bytes, or `none`.
fn parse_blocks_limit(text: &str) -> Result<LimitArg, String> {
    if text == "none" {
        return Ok(LimitArg(None));
    }
    let size: Size = text.parse()?;
    Ok(LimitArg(Some(size.bytes())))
}

/// Reads a number of segments, or `none`. The highest number stands for no limit in the volume, so it cannot be one.
fn parse_segments_limit(text: &str) -> Result<LimitArg, String> {
    match text.parse::<u64>() {
        _ if text == "none" => Ok(LimitArg(None)),
        Ok(number) if number < u64::MAX && !text.starts_with('+') => Ok(LimitArg(Some(number))),
        _ => Err("a limit is a number of segments, or `none`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    enum Line {
        Format(FormatArgs),
        Create(CreateArgs),
        Resize(ResizeArgs),
        Quota(QuotaArgs),
    }

    fn parsed(line: &str) -> Line {
        Line::parse_from(line.split_whitespace())
    }

    #[test]
    fn format_with_everything_and_with_nothing() {
        let line = "baio format vol --size 1G --max-size 1T --block-size 8K --segments 9 --force";
        let Line::Format(args) = parsed(line) else {
            panic!("not format");
        };
        assert_eq!(args.path.to_string(), "vol");
        assert_eq!(args.size.map(Size::bytes), Some(1 << 30));
        assert_eq!(args.max_size.map(Size::bytes), Some(1 << 40));
        assert_eq!(args.block_size.bytes(), 8192);
        assert_eq!(args.segments, Some(9));
        assert!(args.force);

        let Line::Format(args) = parsed("baio format vol") else {
            panic!("not format");
        };
        assert_eq!(args.block_size.bytes(), 4096);
        assert_eq!((args.size, args.segments, args.force), (None, None, false));
    }

    #[test]
    fn create_reads_modes_in_octal() {
        let Line::Create(args) = parsed("baio create v#a --size 4K --mode 640") else {
            panic!("not create");
        };
        assert_eq!(args.mode, 0o640);
        let Line::Create(args) = parsed("baio create v#a --size 4K --owner 7") else {
            panic!("not create");
        };
        assert_eq!((args.mode, args.owner, args.group), (0o600, Some(7), None));
        for id in ["4294967295", "4294967296", "-1", "+1", "root", ""] {
            assert!(parse_id(id).is_err(), "{id}");
        }
        for mode in ["0888", "01777", "+600", "rw", ""] {
            assert!(parse_mode(mode).is_err(), "{mode}");
        }
    }

    #[test]
    fn an_owner_is_a_user_a_group_or_both() {
        let read = |text| parse_owner(text).map(|to| (to.owner_uid, to.owner_gid));
        assert_eq!(read("7"), Ok((Some(7), None)));
        assert_eq!(read("7:8"), Ok((Some(7), Some(8))));
        assert_eq!(read(":8"), Ok((None, Some(8))));
        for wrong in ["", ":", "7:", "root", "7:8:9", "4294967295", "-1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn limits_are_sizes_numbers_or_none() {
        let Line::Quota(args) = parsed("baio quota v 1000 --blocks 1M --segments none") else {
            panic!("not quota");
        };
        assert_eq!(
            (args.uid, args.blocks, args.segments),
            (1000, Some(LimitArg(Some(1 << 20))), Some(LimitArg(None)))
        );
        for wrong in ["-1", "+1", "many", "", "18446744073709551615"] {
            assert!(parse_segments_limit(wrong).is_err(), "{wrong}");
        }
        assert!(parse_blocks_limit("4kB").is_err());
    }
}
