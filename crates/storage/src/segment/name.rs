//! Names of segments, and the keys by which inodes are found.
//!
//! A name is 1 to 255 bytes of UTF-8 without `#` (it separates volume and segment on the command line), `/` (the name space
//! is flat; a file system on top brings its own hierarchy, as the BAIO paper wants it) and control characters (a name is
//! printed in listings and logs). Names are compared as bytes: there is no case folding and no Unicode normalisation.
//!
//! A name alone finds nothing. The key is (owner's uid, name), so a stranger's segment of the same name is neither in the
//! way nor visible. The key without a name belongs to the owner's quota record.
//!
//! ```text
//! hash(key) = SipHash-2-4, keyed by the volume's 16 random bytes, over: uid (4 bytes, little-endian) ++ name bytes
//! bucket    = hash mod number of buckets
//! ```
//!
//! The seed keeps an owner from choosing names that fall into one bucket and make every look-up of the others long.

use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;

use siphasher::sip::SipHasher24;

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// The checked name of a segment; cloning it is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentName(Arc<str>);

impl SegmentName {
    /// Checks a name.
    pub fn new(name: &str) -> Result<Self, NameError> {
        check(name)?;
        Ok(Self(Arc::from(name)))
    }

    /// Checks a name that comes as bytes, from a disk or a peer.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NameError> {
        // The length first: it bounds the work that a hostile peer can ask for.
        check_length(bytes.len())?;
        let name = std::str::from_utf8(bytes).map_err(|error| NameError::NotUtf8 {
            at: error.valid_up_to(),
        })?;
        Self::new(name)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name's bytes, 1 to 255 of them.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

fn check(name: &str) -> Result<(), NameError> {
    check_length(name.len())?;
    match name
        .char_indices()
        .find(|(_, c)| matches!(c, '#' | '/') || c.is_control())
    {
        None => Ok(()),
        Some((at, '#')) => Err(NameError::Hash { at }),
        Some((at, '/')) => Err(NameError::Slash { at }),
        Some((at, found)) => Err(NameError::Control { at, found }),
    }
}

fn check_length(bytes: usize) -> Result<(), NameError> {
    match bytes {
        0 => Err(NameError::Empty),
        1..=NAME_BYTES_MAX => Ok(()),
        _ => Err(NameError::TooLong { bytes }),
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl AsRef<str> for SegmentName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl std::str::FromStr for SegmentName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        Self::new(name)
    }
}

/// Why a name was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// No byte at all.
    Empty,
    /// More than [`NAME_BYTES_MAX`] bytes.
    TooLong {
        /// How many there are.
        bytes: usize,
    },
    /// The bytes are no UTF-8.
    NotUtf8 {
        /// The first byte that is not.
        at: usize,
    },
    /// A `#`, which separates the volume from the segment.
    Hash {
        /// The byte where it stands.
        at: usize,
    },
    /// A `/`: the name space is flat.
    Slash {
        /// The byte where it stands.
        at: usize,
    },
    /// A control character.
    Control {
        /// The byte where it stands.
        at: usize,
        /// The character.
        found: char,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "a segment's name cannot be empty"),
            Self::TooLong { bytes } => {
                write!(
                    f,
                    "a segment's name has at most {NAME_BYTES_MAX} bytes, this one has {bytes}"
                )
            }
            Self::NotUtf8 { at } => write!(f, "a segment's name must be UTF-8, byte {at} is not"),
            Self::Hash { at } => {
                write!(
                    f,
                    "a segment's name cannot contain '#' (byte {at}): it separates volume and segment"
                )
            }
            Self::Slash { at } => {
                write!(
                    f,
                    "a segment's name cannot contain '/' (byte {at}): segments have no directories"
                )
            }
            Self::Control { at, found } => {
                write!(
                    f,
                    "a segment's name cannot contain the control character {found:?} (byte {at})"
                )
            }
        }
    }
}

impl std::error::Error for NameError {}

/// What an inode is found by: its owner and the name the owner gave it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The owner's uid.
    pub owner_uid: u32,
    /// The segment's name; `None` is the key of the owner's quota record.
    pub name: Option<SegmentName>,
}

impl Key {
    /// The key of a segment.
    pub fn segment(owner_uid: u32, name: SegmentName) -> Self {
        Self {
            owner_uid,
            name: Some(name),
        }
    }

    /// The key of an owner's quota record.
    pub fn quota(owner_uid: u32) -> Self {
        Self { owner_uid, name: None }
    }

    /// The name's bytes: none for a quota record.
    pub fn name_bytes(&self) -> &[u8] {
        self.name.as_ref().map_or(&[], SegmentName::as_bytes)
    }

    /// The keyed hash that chooses the first bucket of a probe.
    pub fn hash(&self, seed: &[u8; 16]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(seed);
        if !crate::seeded_bug("owners-share-their-hash") {
            hasher.write(&self.owner_uid.to_le_bytes());
        }
        hasher.write(self.name_bytes());
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_reason_is_its_own() {
        assert_eq!(SegmentName::new(""), Err(NameError::Empty));
        assert_eq!(
            SegmentName::new(&"x".repeat(256)),
            Err(NameError::TooLong { bytes: 256 })
        );
        assert_eq!(SegmentName::new("a#b"), Err(NameError::Hash { at: 1 }));
        assert_eq!(SegmentName::new("ab/c"), Err(NameError::Slash { at: 2 }));
        assert_eq!(SegmentName::new("a\n"), Err(NameError::Control { at: 1, found: '\n' }));
        assert_eq!(
            SegmentName::new("\u{85}"),
            Err(NameError::Control { at: 0, found: '\u{85}' })
        );
        assert_eq!(SegmentName::from_bytes(b"ab\xff"), Err(NameError::NotUtf8 { at: 2 }));
        assert_eq!(
            SegmentName::from_bytes(&[0xff; 300]),
            Err(NameError::TooLong { bytes: 300 })
        );
    }

    #[test]
    fn unusual_but_legal_names() {
        for name in [
            "x",
            " ",
            "..",
            "größe",
            "日本",
            "a b",
            &"é".repeat(127),
            &"x".repeat(255),
        ] {
            assert_eq!(
                SegmentName::new(name).map(|n| n.as_str().to_owned()),
                Ok(name.to_owned())
            );
        }
    }

    #[test]
    fn the_hash_is_siphash_2_4_of_uid_and_name() {
        // The reference vector of the SipHash paper: key 00..0f, input 00..0e.
        let seed: [u8; 16] = std::array::from_fn(|i| i as u8);
        let name = SegmentName(Arc::from(
            std::str::from_utf8(&[4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]).unwrap(),
        ));
        let key = Key::segment(u32::from_le_bytes([0, 1, 2, 3]), name);
        assert_eq!(key.hash(&seed), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn owners_do_not_share_a_key() {
        let name = SegmentName::new("log").unwrap();
        let (mine, theirs) = (Key::segment(1000, name.clone()), Key::segment(1001, name));
        assert_ne!(mine, theirs);
        assert_ne!(mine.hash(&[7; 16]), theirs.hash(&[7; 16]));
        assert_ne!(Key::quota(1000), mine);
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_name_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(name) = SegmentName::from_bytes(&bytes) {
                prop_assert_eq!(name.as_bytes(), &bytes[..]);
                prop_assert!(!name.as_str().contains(['#', '/']));
            }
        }
    }
}
