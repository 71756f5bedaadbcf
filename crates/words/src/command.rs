//! Commands to a core or a broker: everything besides requests, which is too rare or too large for a ring.
//!
//! Every link carries the same value. A core in the caller's thread gets it directly, one on a thread of its own through the exchange, and a
//! broker as a message of a session ([`Question`](crate::session::Question)); the table at the end of this file has the kinds of messages. Only
//! handles are translated, since each side numbers them itself ([`Command::handle_mut`]).

use crate::account::Limits;
use crate::codec::kinds;
use crate::handle::Handle;
use crate::hint::Hint;
use crate::identity::{Access, OwnershipChange};
use crate::operation_name::OperationName;
use crate::segment::{CreateOptions, ResizeOptions};

/// The feature of a session whose client goes on with the next broker: it may ask [`Command::Opening`] and [`Command::OpenKnown`].
pub const GOES_ON: u64 = 1;
/// The feature of logs: `ClaimLog`, `ReleaseLog` and `LogClaimed` exist.
pub const FEATURE_LOGS: u64 = 1 << 8;
/// The feature of ownership: `ChangeOwnership` exists.
pub const FEATURE_OWNERSHIP: u64 = 1 << 9;
/// The feature of growing: the kind `grow` exists.
pub const FEATURE_GROW: u64 = 1 << 10;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Make a segment. Answered by `Segment`.
    Create {
        /// What its caller calls it.
        operation: OperationName,
        /// In whose name.
        owner_uid: u32,
        /// Its name.
        name: String,
        /// What it is to be like.
        options: CreateOptions,
    },
    /// Delete a segment. Answered by `Segment`, as it was.
    Delete {
        /// What its caller calls it.
        operation: OperationName,
        /// Whose it is.
        owner_uid: u32,
        /// Its name.
        name: String,
    },
    /// Give a segment another size. Answered by `Segment`. One that only grows is a question of its own, with the feature
    /// [`FEATURE_GROW`].
    Resize {
        /// What its caller calls it.
        operation: OperationName,
        /// Whose it is.
        owner_uid: u32,
        /// Its name.
        name: String,
        /// What it is to become.
        options: ResizeOptions,
    },
    /// Give a segment another name. Answered by `Segment`.
    Rename {
        /// What its caller calls it.
        operation: OperationName,
        /// Whose it is.
        owner_uid: u32,
        /// Its name.
        old: String,
        /// Its new name.
        new: String,
    },
    /// With the feature [`FEATURE_OWNERSHIP`]: give a segment another owner, group or mode. Answered by
    /// `Segment`.
    ChangeOwnership {
        /// What its caller calls it.
        operation: OperationName,
        /// Whose it is.
        owner_uid: u32,
        /// Its name.
        name: String,
        /// What becomes another.
        change: OwnershipChange,
    },
    /// Open a segment. Answered by `Opened`. The ring closes the handle.
    Open {
        /// Whose it is.
        owner_uid: u32,
        /// Its name.
        name: String,
        /// For what.
        access: Access,
    },
    /// With the feature [`GOES_ON`]: open a segment, and tell which one it is. Answered by `OpenedKnown`.
    OpenKnown {
        /// Its owner.
        owner_uid: u32,
        /// Its name, or the one that it had.
        name: String,
        /// To do what.
        access: Access,
        /// This segment and no other, whatever its name is now; without, the one that has the name.
        identity: Option<[u8; 16]>,
    },
    /// The segments that the one who asks may see. Answered by one `Segments` or more.
    List,
    /// The volume. Answered by `Volume`.
    Info,
    /// What a user holds and may hold. Answered by `Account`.
    Quota {
        /// The user.
        uid: u32,
    },
    /// Set what a user may hold. Answered by `Account`.
    SetQuota {
        /// The user.
        uid: u32,
        /// In blocks and segments.
        limits: Limits,
    },
    /// Tell the page cache what will be read. Answered by `Count`.
    Hint {
        /// Of which segment.
        handle: Handle,
        /// What.
        hint: Hint,
    },
    /// Hold all changes of the volume back. Answered by `Frozen`.
    Freeze,
    /// Let them go on. Answered by `Done`.
    Thaw {
        /// The number that `Frozen` told.
        freeze: u64,
    },
    /// Bytes behind a handle. Answered by `Count`.
    Size {
        /// The handle.
        handle: Handle,
    },
    /// Give another process what this handle opens. Answered by `HandedOn`, with a connected socket. Of a broker only.
    HandOn {
        /// The handle.
        handle: Handle,
        /// At most this.
        access: Access,
    },
    /// Take back what was handed on. Answered by `Done`. Of a broker only.
    Revoke {
        /// The number that `HandedOn` told.
        grant: u64,
    },
    /// Who uses the broker, and how much. Answered by `Status`.
    Status,
    /// With the feature [`GOES_ON`]: which opening of which volume this is. Answered by `Opening`.
    Opening,
    /// End the question with that id early, if it can be. Has no answer of its own. Of a broker only.
    Cancel {
        /// The other question's id.
        question: u32,
    },
    /// Move segments together. Answered by `Defragged`, by a broker for who may see the whole volume.
    Defrag,
    /// Read all metadata and compare. Answered by `Checked`, for who may see the whole volume.
    Check,
    /// Have what is behind a handle for a log of one's own: nobody else writes there. Answered by `LogClaimed`. With
    /// [`FEATURE_LOGS`].
    ClaimLog {
        /// A handle to write.
        handle: Handle,
    },
    /// Give it back. Answered by `Done`.
    ReleaseLog {
        /// The handle that `LogClaimed` told.
        handle: Handle,
    },
}

/// The right that a command takes of whoever asks, before a volume looks whose the segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// None: it looks, at what the one who asks may see, or is about what the one who asks has.
    None,
    /// To open segments so.
    Open(Access),
    /// To change segments, and what users may hold.
    Change,
    /// To keep the whole volume: for who may see it.
    Upkeep,
}

impl Command {
    /// What one must be allowed who asks this.
    #[must_use]
    pub fn right(&self) -> Right {
        match self {
            Command::Open { access, .. } | Command::OpenKnown { access, .. } | Command::HandOn { access, .. } => {
                Right::Open(*access)
            }
            Command::ClaimLog { .. } => Right::Open(Access::Write),
            Command::Create { .. }
            | Command::Delete { .. }
            | Command::Resize { .. }
            | Command::Rename { .. }
            | Command::ChangeOwnership { .. }
            | Command::SetQuota { .. } => Right::Change,
            Command::Freeze | Command::Defrag | Command::Check => Right::Upkeep,
            Command::List
            | Command::Info
            | Command::Quota { .. }
            | Command::Hint { .. }
            | Command::Thaw { .. }
            | Command::Size { .. }
            | Command::Revoke { .. }
            | Command::ReleaseLog { .. }
            | Command::Status
            | Command::Opening
            | Command::Cancel { .. } => Right::None,
        }
    }

    /// What is being done, for messages: `cannot ... THE OBJECT`.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        match self {
            Command::Create { .. } => "create",
            Command::Delete { .. } => "delete",
            Command::Resize { .. } => "resize",
            Command::Rename { .. } => "rename",
            Command::ChangeOwnership { .. } => "change the ownership of",
            Command::Open { .. } | Command::OpenKnown { .. } => "open",
            Command::List => "list",
            Command::Info | Command::Status | Command::Opening => "stat",
            Command::Quota { .. } => "show the quota",
            Command::SetQuota { .. } => "set the quota",
            Command::Defrag => "defragment",
            Command::Check => "check",
            Command::Freeze => "freeze",
            Command::Thaw { .. } => "thaw",
            Command::Size { .. } => "measure",
            Command::Hint { .. } => "hint",
            Command::HandOn { .. } => "hand on",
            Command::Revoke { .. } => "take back",
            Command::Cancel { .. } => "cancel",
            Command::ClaimLog { .. } => "open the log in",
            Command::ReleaseLog { .. } => "close the log in",
        }
    }

    /// The handle that it is about, to be translated into what the next one calls it.
    pub fn handle_mut(&mut self) -> Option<&mut Handle> {
        match self {
            Command::Hint { handle, .. }
            | Command::Size { handle }
            | Command::HandOn { handle, .. }
            | Command::ClaimLog { handle }
            | Command::ReleaseLog { handle } => Some(handle),
            // Each by its name: a new verb with a handle must not pass a border untranslated.
            Command::Create { .. }
            | Command::Delete { .. }
            | Command::Resize { .. }
            | Command::Rename { .. }
            | Command::ChangeOwnership { .. }
            | Command::Open { .. }
            | Command::OpenKnown { .. }
            | Command::List
            | Command::Info
            | Command::Quota { .. }
            | Command::SetQuota { .. }
            | Command::Freeze
            | Command::Thaw { .. }
            | Command::Revoke { .. }
            | Command::Status
            | Command::Opening
            | Command::Cancel { .. }
            | Command::Defrag
            | Command::Check => None,
        }
    }

    /// The name of an operation that can have one: those that change segments.
    pub fn name_mut(&mut self) -> Option<&mut OperationName> {
        match self {
            Command::Create { operation, .. }
            | Command::Delete { operation, .. }
            | Command::Resize { operation, .. }
            | Command::Rename { operation, .. }
            | Command::ChangeOwnership { operation, .. } => Some(operation),
            _ => None,
        }
    }

    /// Does it change nothing, so that it can be asked again of the next broker?
    #[must_use]
    pub fn only_looks(&self) -> bool {
        matches!(
            self,
            Command::Open { .. }
                | Command::OpenKnown { .. }
                | Command::List
                | Command::Info
                | Command::Quota { .. }
                | Command::Status
                | Command::Opening
                | Command::Size { .. }
                | Command::Hint { .. }
        )
    }

    /// The feature that it comes with, which a session must have; 0 for those of the protocol's first version.
    #[must_use]
    pub fn feature(&self) -> u64 {
        match self {
            Command::OpenKnown { .. } | Command::Opening => GOES_ON,
            Command::ClaimLog { .. } | Command::ReleaseLog { .. } => FEATURE_LOGS,
            Command::ChangeOwnership { .. } => FEATURE_OWNERSHIP,
            Command::Resize { options, .. } if options.grows_only => FEATURE_GROW,
            _ => 0,
        }
    }
}

/// What was decoded as a `grow`.
fn growing(mut command: Command) -> Command {
    if let Command::Resize { options, .. } = &mut command {
        options.grows_only = true;
    }
    command
}

// The kinds of questions, as `docs/inside/shm-protocol.md` has them.
kinds! { Command {
    0x0101 Create "create" { operation, owner_uid, name, options };
    0x0102 Delete "delete" { operation, owner_uid, name };
    0x0103 Resize "resize" { operation, owner_uid, name, options } if !options.grows_only;
    0x0104 Rename "rename" { operation, owner_uid, old, new };
    0x0105 Open "open" { owner_uid, name, access };
    0x0106 List "list";
    0x0107 Info "info";
    0x0108 Quota "quota" { uid };
    0x0109 SetQuota "set quota" { uid, limits };
    0x010a Hint "hint" { handle, hint };
    0x010b Freeze "freeze";
    0x010c Thaw "thaw" { freeze };
    0x010d Size "size" { handle };
    0x010e HandOn "hand on" { handle, access };
    0x010f Revoke "revoke" { grant };
    0x0110 Status "status";
    0x0111 Cancel "cancel" { question };
    0x0112 Defrag "defrag";
    0x0113 Check "check";

    0x0120 OpenKnown "open known" { owner_uid, name, access, identity };
    0x0121 Opening "opening";

    0x0128 ChangeOwnership "change ownership" { operation, owner_uid, name, change };
    0x0129 Resize "grow" { operation, owner_uid, name, options } with growing;

    0x0130 ClaimLog "claim log" { handle };
    0x0131 ReleaseLog "release log" { handle };
} }
