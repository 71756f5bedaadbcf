//! Rights of those who do not own a segment: eight words and ids in its inode.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::InodeError;

#[derive(Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawGrant {
    kind_and_rights: U32,
    id: U32,
}

/// Who is granted something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The user with this uid.
    User(u32),
    /// The members of the group with this gid.
    Group(u32),
}

/// A set of rights on a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights(u16);

impl Rights {
    /// May read.
    pub const READ: Self = Self(1);
    /// May write.
    pub const WRITE: Self = Self(2);
    /// May resize, rename, delete and grant.
    pub const MANAGE: Self = Self(4);
    /// All of them.
    pub const ALL: Self = Self(7);

    /// The set with these bits; `None` if one is unknown.
    pub fn from_bits(bits: u16) -> Option<Self> {
        (bits & !Self::ALL.0 == 0).then_some(Self(bits))
    }

    /// The bits of the set.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// Both sets together.
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are in the set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Rights on a segment for somebody who does not own it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// For whom.
    pub subject: Subject,
    /// Which.
    pub rights: Rights,
}

impl Grant {
    pub(super) fn encode(grant: Option<Self>) -> RawGrant {
        let Some(Self { subject, rights }) = grant else {
            return RawGrant::default();
        };
        let (kind, id) = match subject {
            Subject::User(uid) => (1, uid),
            Subject::Group(gid) => (2, gid),
        };
        RawGrant {
            kind_and_rights: (kind << 16 | u32::from(rights.bits())).into(),
            id: id.into(),
        }
    }

    pub(super) fn decode(at: usize, raw: &RawGrant) -> Result<Option<Self>, InodeError> {
        let (word, id) = (raw.kind_and_rights.get(), raw.id.get());
        let subject = match word >> 16 {
            0 if word == 0 && id == 0 => return Ok(None),
            1 => Subject::User(id),
            2 => Subject::Group(id),
            _ => return Err(InodeError::Grant { at }),
        };
        let rights = Rights::from_bits((word & 0xffff) as u16).ok_or(InodeError::Grant { at })?;
        Ok(Some(Self { subject, rights }))
    }
}
