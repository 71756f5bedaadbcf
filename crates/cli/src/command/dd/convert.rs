//! What `conv=` makes of the bytes between input and output, in the order of GNU dd: letters, then pairs of bytes.

use crate::operands::{Case, Conversion};

/// A conversion, and what it remembers of the records before.
pub(super) struct Convert {
    case: Option<Case>,
    swab: bool,
    /// The byte of a pair whose other one has not come yet.
    unpaired: Option<u8>,
}

impl Convert {
    pub(super) fn new(Conversion { case, swab }: Conversion) -> Convert {
        Convert {
            case,
            swab,
            unpaired: None,
        }
    }

    /// Is there anything to change?
    pub(super) fn changes(&self) -> bool {
        self.case.is_some() || self.swab
    }

    /// Changes a record. Its last byte waits for the next one where it has no other of its pair.
    pub(super) fn change(&mut self, record: &mut Vec<u8>) {
        match self.case {
            Some(Case::Upper) => record.make_ascii_uppercase(),
            Some(Case::Lower) => record.make_ascii_lowercase(),
            None => {}
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_go_across_records() {
        let mut convert = Convert::new(Conversion {
            case: Some(Case::Upper),
            swab: true,
        });
        let mut made = Vec::new();
        for record in ["abc", "de", "f", "g"] {
            let mut record = record.as_bytes().to_vec();
            convert.change(&mut record);
            made.append(&mut record);
        }
        made.extend(convert.take_unpaired());
        assert_eq!(made, b"BADCFEG");
    }
}
