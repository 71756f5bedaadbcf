//! Fields as bytes: a writer that says what is too long, and a reader that checks every length.

use std::fmt;

use crate::handle::Handle;

/// The longest message in bytes.
pub const MESSAGE_MAX: usize = 65536;
/// Bytes before the first field.
pub(crate) const HEADER_BYTES: usize = 8;
/// The longest name in bytes.
pub const NAME_MAX: usize = 255;
/// The longest text in bytes.
pub const TEXT_MAX: usize = 4096;
/// The most ranges that one hint names.
pub const RANGES_MAX: usize = 1024;
/// The most warnings that one answer carries.
pub const WARNINGS_MAX: usize = 8;
/// The most users of which one answer tells.
pub const OWNERS_MAX: usize = 960;
/// The most segments that could not be moved, and problems, of which one answer tells.
pub const FINDINGS_MAX: usize = 64;
/// The most segments that a client keeps of lists whose last answer has not come: those of a volume of 64 TiB, as they are made.
pub const LIST_MAX: usize = 1 << 24;
/// The longest text of one of these in bytes: all of them fit into a message.
pub const FINDING_TEXT_MAX: usize = 256;

/// What cannot be decoded: no correct peer sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The byte of the message at which it was noticed: the first one of the field.
    pub at: usize,
    /// What is wrong there.
    pub what: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a malformed message: {} at byte {}", self.what, self.at)
    }
}

impl std::error::Error for Malformed {}

/// A message was not made, because something in it is longer than the protocol allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// What is too long.
    pub what: &'static str,
    /// How long it is: bytes, or items of a list.
    pub len: usize,
    /// How long it may be.
    pub max: usize,
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} is too long: need at most {}",
            self.what, self.len, self.max
        )
    }
}

impl std::error::Error for TooLong {}

/// The start of a text that fits into so many bytes, whole characters only.
#[must_use]
pub fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = bytes_max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A message while it is made.
#[derive(Debug)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    /// The first thing that did not fit.
    too_long: Option<TooLong>,
}

impl Writer {
    /// A message with its header.
    pub(crate) fn new(kind: u16, id: u32) -> Writer {
        let mut bytes = Vec::with_capacity(64);
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&[0, 0]);
        bytes.extend_from_slice(&id.to_le_bytes());
        Writer { bytes, too_long: None }
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// A name: never cut, because what is left would name something else.
    pub(crate) fn name(&mut self, name: &str) {
        self.check("a name", name.len(), NAME_MAX);
        self.cut(name, NAME_MAX);
    }

    /// A text for people: cut.
    pub(crate) fn text(&mut self, text: &str) {
        self.cut(text, TEXT_MAX);
    }

    pub(crate) fn opt_text(&mut self, text: Option<&str>) {
        text.is_some().put(self);
        if let Some(text) = text {
            self.text(text);
        }
    }

    /// A string, cut to so many bytes (at most `u16::MAX`).
    pub(crate) fn cut(&mut self, text: &str, bytes_max: usize) {
        let text = cut(text, bytes_max);
        (text.len() as u16).put(self);
        self.raw(text.as_bytes());
    }

    /// Notes that something is too long; the first such thing is reported.
    pub(crate) fn check(&mut self, what: &'static str, len: usize, max: usize) {
        if len > max && self.too_long.is_none() {
            self.too_long = Some(TooLong { what, len, max });
        }
    }

    /// What was written, where nothing in it can be too long.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn finish(mut self) -> Result<Vec<u8>, TooLong> {
        self.check("a message", self.bytes.len(), MESSAGE_MAX);
        match self.too_long {
            Some(too_long) => Err(too_long),
            None => Ok(self.bytes),
        }
    }
}

/// A message while it is read.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// Where the next field begins.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn raw(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let left = self.bytes.get(self.at..).unwrap_or_default();
        let Some(field) = left.get(..len) else {
            return Err(malformed(self.at, "an end before the end of a field"));
        };
        self.at += len;
        Ok(field)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.raw(N)?);
        Ok(array)
    }

    pub(crate) fn text(&mut self) -> Result<String, Malformed> {
        self.string(TEXT_MAX, "a text of more than 4096 bytes")
    }

    pub(crate) fn opt_text(&mut self) -> Result<Option<String>, Malformed> {
        match bool::take(self)? {
            true => Ok(Some(self.text()?)),
            false => Ok(None),
        }
    }

    pub(crate) fn string(&mut self, bytes_max: usize, too_long: &'static str) -> Result<String, Malformed> {
        let at = self.at;
        let len = usize::from(u16::take(self)?);
        if len > bytes_max {
            return Err(malformed(at, too_long));
        }
        match std::str::from_utf8(self.raw(len)?) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(malformed(at, "a string that is not UTF-8")),
        }
    }

    /// A name that is one of these; "unknown" for one that only a newer peer has.
    pub(crate) fn one_of(&mut self, known: &[&'static str]) -> Result<&'static str, Malformed> {
        let name = String::take(self)?;
        let known = known.iter().copied().find(|known| *known == name);
        Ok(known.unwrap_or("unknown"))
    }

    /// The count of a list that may not be longer than that.
    pub(crate) fn count(&mut self, max: usize, too_long: &'static str) -> Result<usize, Malformed> {
        let at = self.at;
        let count = u32::take(self)? as usize;
        match count > max {
            true => Err(malformed(at, too_long)),
            false => Ok(count),
        }
    }

    /// The message must end here.
    pub(crate) fn end(self) -> Result<(), Malformed> {
        match self.at == self.bytes.len() {
            true => Ok(()),
            false => Err(malformed(self.at, "bytes behind the last field")),
        }
    }
}

pub(crate) fn malformed(at: usize, what: &'static str) -> Malformed {
    Malformed { at, what }
}

/// A value of one of a few kinds, told by a byte; `None` for a byte that tells none.
pub(crate) fn choice<T>(
    reader: &mut Reader<'_>,
    known: impl FnOnce(u8) -> Option<T>,
    unknown: &'static str,
) -> Result<T, Malformed> {
    let at = reader.at();
    known(u8::take(reader)?).ok_or(malformed(at, unknown))
}

/// What can stand in a message.
pub(crate) trait Field: Sized {
    fn put(&self, writer: &mut Writer);
    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed>;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Field for $number {
            fn put(&self, writer: &mut Writer) {
                writer.raw(&self.to_le_bytes());
            }

            fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
                Ok(<$number>::from_le_bytes(reader.array()?))
            }
        }
    )*};
}

numbers! { u8 u16 u32 u64 }

impl Field for bool {
    fn put(&self, writer: &mut Writer) {
        u8::from(*self).put(writer);
    }

    fn take(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
        let known = |byte| match byte {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        choice(reader, known, "a bool that is neither 0 nor 1")
    }
}

impl Field for [u8; 16] {
    fn put(&self, writer: &mut Writer) {
        writer.raw(self);
    }

    fn take(reader: &mut Reader<'_>) -> Result<[u8; 16], Malformed> {
        reader.array()
    }
}

/// A name. Texts, which may be longer, have methods of their own.
impl Field for String {
    fn put(&self, writer: &mut Writer) {
        writer.name(self);
    }

    fn take(reader: &mut Reader<'_>) -> Result<String, Malformed> {
        reader.string(NAME_MAX, "a name of more than 255 bytes")
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, writer: &mut Writer) {
        self.is_some().put(writer);
        if let Some(value) = self {
            value.put(writer);
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<Option<T>, Malformed> {
        match bool::take(reader)? {
            true => Ok(Some(T::take(reader)?)),
            false => Ok(None),
        }
    }
}

/// A list. No room is made for what a peer says that it counts: the items must be there.
impl<T: Field> Field for Vec<T> {
    fn put(&self, writer: &mut Writer) {
        (self.len() as u32).put(writer);
        for item in self {
            item.put(writer);
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<Vec<T>, Malformed> {
        let count = u32::take(reader)?;
        (0..count).map(|_| T::take(reader)).collect()
    }
}

impl<T: Field> Field for Box<T> {
    fn put(&self, writer: &mut Writer) {
        T::put(self, writer);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Box<T>, Malformed> {
        Ok(Box::new(T::take(reader)?))
    }
}

/// What a handle is in a message: whose it is, both sides know. Decoded it is nobody's (no core has the number 0) until the receiver has
/// found it in its own table.
impl Field for Handle {
    fn put(&self, writer: &mut Writer) {
        self.index.put(writer);
        self.generation.put(writer);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Handle, Malformed> {
        let index = Field::take(reader)?;
        Ok(Handle::from_parts(0, index, Field::take(reader)?))
    }
}

/// A choice is a byte; one list for both directions. What stands behind `or` is sent as the word before it.
macro_rules! words {
    ($choice:ty, $unknown:literal { $($byte:literal $word:ident $(or $same:ident)*),* $(,)? }) => {
        impl $crate::codec::Field for $choice {
            fn put(&self, writer: &mut $crate::codec::Writer) {
                let word: u8 = match self {
                    $(Self::$word $(| Self::$same)* => $byte,)*
                };
                $crate::codec::Field::put(&word, writer);
            }

            fn take(reader: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::Malformed> {
                let known = |byte| match byte {
                    $($byte => Some(Self::$word),)*
                    _ => None,
                };
                $crate::codec::choice(reader, known, $unknown)
            }
        }
    };
}

/// A struct is its fields in this order; one list for both directions, so that they cannot differ.
macro_rules! record {
    ($record:ty { $($field:ident),* $(,)? }) => {
        impl $crate::codec::Field for $record {
            fn put(&self, writer: &mut $crate::codec::Writer) {
                $($crate::codec::Field::put(&self.$field, writer);)*
            }

            fn take(reader: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::Malformed> {
                // Fields of an expression are evaluated in the order in which they are written.
                Ok(Self { $($field: $crate::codec::Field::take(reader)?),* })
            }
        }
    };
}

/// The kinds of an enum of messages: its number, its variant, its name, its fields in order. A variant that is two kinds has a row for
/// each: the first says by `if` which of its values it is for, the last makes by `with` of what was decoded what it stands for.
macro_rules! kinds {
    ($messages:ident {
        $($kind:literal $variant:ident $name:literal
            $(($inner:ident))? $({ $($field:ident),* $(,)? })? $(with $fix:ident)? $(if $is:expr)?;)*
    }) => {
        #[allow(unused_variables, reason = "most kinds are told by the variant alone")]
        impl $messages {
            /// Every kind: its number and its name.
            pub const KINDS: &'static [(u16, &'static str)] = &[$(($kind, $name)),*];

            /// The number and the name of its kind.
            fn kind_and_name(&self) -> (u16, &'static str) {
                match self {
                    $($messages::$variant $(($inner))? $({ $($field),* })? $(if $is)? => ($kind, $name),)*
                }
            }

            /// The number of its kind.
            #[must_use]
            pub fn kind(&self) -> u16 {
                self.kind_and_name().0
            }

            /// The name of its kind.
            #[must_use]
            pub fn name(&self) -> &'static str {
                self.kind_and_name().1
            }

            /// The message.
            ///
            /// # Errors
            /// A name, a list or the whole is longer than the protocol allows.
            pub fn encode(&self, id: u32) -> Result<Vec<u8>, $crate::codec::TooLong> {
                use $crate::codec::Field as _;
                let mut writer = $crate::codec::Writer::new(self.kind(), id);
                let to = &mut writer;
                match self {
                    $($messages::$variant $(($inner))? $({ $($field),* })? $(if $is)? => {
                        $($inner.put(to);)?
                        $($($field.put(to);)*)?
                    })*
                }
                writer.finish()
            }

            /// The body of a message of that kind; `None` if it is no kind of these.
            pub(crate) fn take(
                kind: u16,
                from: &mut $crate::codec::Reader<'_>,
            ) -> Option<Result<$messages, $crate::codec::Malformed>> {
                use $crate::codec::Field;
                let body = |from: &mut $crate::codec::Reader<'_>| {
                    Ok(Some(match kind {
                        $($kind => {
                            let taken = $messages::$variant
                                $(({ let $inner = Field::take(from)?; $inner }))?
                                $({ $($field: Field::take(from)?),* })?;
                            $(let taken = $fix(taken);)?
                            taken
                        })*
                        _ => return Ok(None),
                    }))
                };
                body(from).transpose()
            }
        }
    };
}

pub(crate) use {kinds, record, words};
