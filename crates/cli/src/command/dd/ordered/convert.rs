//! What `conv=` makes of the bytes between input and output, in the order of GNU dd: characters, pairs of bytes, lines.
//!
//! ```text
//! record --> characters, letters (a table) --> swab --> block or unblock --> blocks of the output
//! ```
//!
//! What does not fit into a block of the output waits in the conversion: a line of three bytes may become a record of a gigabyte.

use super::charsets;
use crate::operands::{Case, Charset, Conversion, Lines};

/// A conversion and what it remembers of the records before.
pub(super) struct Convert {
    table: Option<Box<charsets::Table>>,
    swab: bool,
    /// The byte of a pair whose other one has not come yet.
    unpaired: Option<u8>,
    lines: Option<Lines>,
    newline: u8,
    space: u8,
    /// Where the next byte stands in its line or record.
    column: u64,
    /// Spaces that belong to the output only if something else follows them.
    pending: u64,
    /// Spaces, or one newline, that go before anything else.
    owed: (u8, u64),
    truncated: u64,
}

impl Convert {
    pub(super) fn new(conversion: Conversion) -> Convert {
        let identity = || Box::new(std::array::from_fn(|byte| byte as u8));
        let mut table: Option<Box<charsets::Table>> = None;
        let mut apply = |change: &dyn Fn(u8) -> u8| {
            let table = table.get_or_insert_with(identity);
            for byte in table.iter_mut() {
                *byte = change(*byte);
            }
        };
        let charset = |charset| move |byte: u8| charsets::of(charset)[usize::from(byte)];
        if conversion.charset == Some(Charset::Ascii) {
            apply(&charset(Charset::Ascii));
        }
        match conversion.case {
            Some(Case::Upper) => apply(&|byte| byte.to_ascii_uppercase()),
            Some(Case::Lower) => apply(&|byte| byte.to_ascii_lowercase()),
            None => {}
        }
        let (mut newline, mut space) = (b'\n', b' ');
        if let Some(other @ (Charset::Ebcdic | Charset::Ibm)) = conversion.charset {
            let change = charset(other);
            apply(&change);
            (newline, space) = (change(newline), change(space));
        }
        Convert {
            table,
            swab: conversion.swab,
            unpaired: None,
            lines: conversion.lines,
            newline,
            space,
            column: 0,
            pending: 0,
            owed: (space, 0),
            truncated: 0,
        }
    }

    /// What the lines are made of: the record after its bytes were changed one by one and in pairs.
    pub(super) fn change(&mut self, record: &mut Vec<u8>) {
        if let Some(table) = &self.table {
            for byte in record.iter_mut() {
                *byte = table[usize::from(*byte)];
            }
        }
        if self.swab {
            if let Some(unpaired) = self.unpaired.take() {
                record.insert(0, unpaired);
            }
            if !record.len().is_multiple_of(2) {
                self.unpaired = record.pop();
            }
            for pair in record.chunks_exact_mut(2) {
                pair.reverse();
            }
        }
    }

    /// The byte that found no partner: it goes as it is.
    pub(super) fn take_unpaired(&mut self) -> Option<u8> {
        self.unpaired.take()
    }

    /// Moves bytes to `block` until that has `room` bytes, or there is nothing more to move; says how many were taken.
    pub(super) fn fill(&mut self, bytes: &[u8], block: &mut Vec<u8>, room: usize) -> usize {
        let Some(lines) = self.lines else {
            let taken = bytes.len().min(room.saturating_sub(block.len()));
            block.extend_from_slice(bytes.get(..taken).unwrap_or_default());
            return taken;
        };
        let mut taken = 0;
        while self.pay(block, room) {
            let Some(byte) = bytes.get(taken) else {
                break;
            };
            taken += usize::from(match lines {
                Lines::Block(length) => self.block(*byte, length, block),
                Lines::Unblock(length) => self.unblock(*byte, length, block),
            });
        }
        taken
    }

    /// Puts what goes first; says whether there is room behind it.
    fn pay(&mut self, block: &mut Vec<u8>, room: usize) -> bool {
        let (byte, count) = self.owed;
        let paid = count.min(room.saturating_sub(block.len()) as u64);
        block.resize(block.len() + paid as usize, byte);
        self.owed.1 -= paid;
        block.len() < room
    }

    /// A byte of a line that becomes a record: always taken.
    fn block(&mut self, byte: u8, length: u64, block: &mut Vec<u8>) -> bool {
        if byte == self.newline {
            self.owed = (self.space, length.saturating_sub(self.column));
            self.column = 0;
            return true;
        }
        if self.column < length {
            block.push(byte);
        } else if self.column == length {
            self.truncated += 1;
        }
        self.column += 1;
        true
    }

    /// A byte of a record that becomes a line; says whether it was taken, for something else may have to go first.
    fn unblock(&mut self, byte: u8, length: u64, block: &mut Vec<u8>) -> bool {
        if self.column >= length {
            self.column = 0;
            self.pending = 0;
            self.owed = (self.newline, 1);
            return false;
        }
        if byte == self.space {
            self.pending += 1;
        } else if self.pending > 0 {
            self.owed = (self.space, std::mem::take(&mut self.pending));
            return false;
        } else {
            block.push(byte);
        }
        self.column += 1;
        true
    }

    /// The input has ended: what the last line or record lacks is owed from now on.
    pub(super) fn end(&mut self) {
        if self.column == 0 {
            return;
        }
        self.owed = match self.lines {
            Some(Lines::Block(length)) => (self.space, length.saturating_sub(self.column)),
            Some(Lines::Unblock(_)) => (self.newline, 1),
            None => return,
        };
        self.column = 0;
    }

    /// Is there anything that goes before anything else?
    pub(super) fn owes(&self) -> bool {
        self.owed.1 > 0
    }

    /// Lines that were longer than a record.
    pub(super) fn truncated(&self) -> u64 {
        self.truncated
    }

    /// With what `conv=sync` fills up a record.
    pub(super) fn padding(&self) -> u8 {
        if self.lines.is_some() { b' ' } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Converts records, and gathers blocks of `room` bytes.
    fn convert(conversion: Conversion, records: &[&str], room: usize) -> String {
        let mut convert = Convert::new(conversion);
        let mut out = Vec::new();
        let mut feed = |convert: &mut Convert, bytes: &[u8]| {
            let mut bytes = bytes;
            loop {
                let mut block = Vec::new();
                let taken = convert.fill(bytes, &mut block, room);
                bytes = &bytes[taken..];
                out.append(&mut block);
                if bytes.is_empty() && !convert.owes() {
                    return;
                }
            }
        };
        for record in records {
            let mut record = record.as_bytes().to_vec();
            convert.change(&mut record);
            feed(&mut convert, &record);
        }
        if let Some(byte) = convert.take_unpaired() {
            feed(&mut convert, &[byte]);
        }
        convert.end();
        feed(&mut convert, &[]);
        String::from_utf8(out).unwrap()
    }

    fn lines(lines: Lines) -> Conversion {
        Conversion {
            lines: Some(lines),
            ..Conversion::default()
        }
    }

    #[test]
    fn lines_become_records_and_back() {
        for room in [1, 2, 3, 7, 100] {
            let made = convert(lines(Lines::Block(4)), &["a\nabcd", "e\n\n", "xy"], room);
            assert_eq!(made, "a   abcd    xy  ", "{room}");
            let made = convert(lines(Lines::Unblock(4)), &["a   ab", " d    x y  "], room);
            assert_eq!(made, "a\nab d\n\nx y\n\n", "{room}");
        }
    }

    #[test]
    fn pairs_go_across_records() {
        let swab = Conversion {
            swab: true,
            ..Conversion::default()
        };
        assert_eq!(convert(swab, &["abc", "de", "f", "g"], 3), "badcfeg");
    }

    #[test]
    fn a_line_that_is_cut_counts_once() {
        let mut convert = Convert::new(lines(Lines::Block(2)));
        let mut block = Vec::new();
        convert.fill(b"abcdef\nab\nabc", &mut block, 100);
        assert_eq!(convert.truncated(), 2);
    }
}
