//! A metadata page: 4096 bytes, written and checked as one.
//!
//! Every page that carries a checksum carries it as a little-endian CRC-32C (Castagnoli) over all 4096 bytes, with the four
//! bytes of the checksum field itself taken as zero. The field lies at a different offset in each structure, so the offset
//! is an argument here and a constant there.

use std::fmt;

use baio_engine::Errno;

/// Bytes of a metadata page, whatever the block size of the volume.
pub const PAGE_BYTES: usize = 4096;

/// [`PAGE_BYTES`] for arithmetic on device offsets.
pub const PAGE_BYTES_U64: u64 = PAGE_BYTES as u64;

/// The page that was never written.
static ZERO: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// What a read of a page gave. Nothing judges what was not read: an error of the device says nothing of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageRead<'a> {
    /// These bytes; fewer than a page where the device ends.
    Read(&'a [u8]),
    /// Nobody knows what is there, and why.
    Unread(Errno),
}

impl<'a> PageRead<'a> {
    /// All of a page; one that is not whole was not read.
    ///
    /// # Errors
    /// Why it was not read.
    pub fn whole(self) -> Result<&'a [u8; PAGE_BYTES], Errno> {
        match self {
            PageRead::Read(bytes) => bytes.try_into().map_err(|_| Errno::EIO),
            PageRead::Unread(errno) => Err(errno),
        }
    }
}

/// An owned metadata page, ready to be written.
#[derive(Clone, PartialEq, Eq)]
pub struct Page(Box<[u8; PAGE_BYTES]>);

impl Page {
    /// A page of zeroes.
    pub fn zeroed() -> Self {
        Self(Box::new(ZERO))
    }

    /// A copy of these bytes.
    pub fn copy_of(bytes: &[u8; PAGE_BYTES]) -> Self {
        Self(Box::new(*bytes))
    }

    /// The bytes, to be written.
    pub fn bytes(&self) -> &[u8; PAGE_BYTES] {
        &self.0
    }

    /// The bytes, to be read into or filled.
    pub fn bytes_mut(&mut self) -> &mut [u8; PAGE_BYTES] {
        &mut self.0
    }
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Page(crc32c {:08x})", crc32c::crc32c(self.0.as_slice()))
    }
}

/// The page that was never written, to be borrowed.
pub fn zero_page() -> &'static [u8; PAGE_BYTES] {
    &ZERO
}

/// Whether every byte is zero: such a page was never written, or was taken away.
pub fn is_zero(bytes: &[u8; PAGE_BYTES]) -> bool {
    bytes == &ZERO
}

/// CRC-32C of the page with the four bytes at `field_at` taken as zero.
///
/// An offset outside the page means that no byte is exempt; no caller has one.
pub fn checksum(bytes: &[u8; PAGE_BYTES], field_at: usize) -> u32 {
    let (before, rest) = bytes.split_at(field_at.min(PAGE_BYTES));
    let (field, after) = rest.split_at(rest.len().min(size_of::<u32>()));
    let crc = crc32c::crc32c(before);
    let crc = crc32c::crc32c_append(crc, &[0; size_of::<u32>()][..field.len()]);
    crc32c::crc32c_append(crc, after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_castagnoli_with_the_field_as_zero() {
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283, "the polynomial of RFC 3720");
        let mut page = Page::zeroed();
        page.bytes_mut()[100] = 7;
        let expected = crc32c::crc32c(page.bytes());
        page.bytes_mut()[16..20].copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(checksum(page.bytes(), 16), expected);
        assert_ne!(checksum(page.bytes(), 20), expected);
    }

    #[test]
    fn an_impossible_field_offset_is_no_panic() {
        let page = Page::zeroed();
        let whole = crc32c::crc32c(page.bytes());
        for field_at in [PAGE_BYTES - 2, PAGE_BYTES, usize::MAX] {
            assert_eq!(checksum(page.bytes(), field_at), whole);
        }
    }

    #[test]
    fn one_byte_makes_a_page_written() {
        let mut page = Page::zeroed();
        assert!(is_zero(page.bytes()));
        page.bytes_mut()[PAGE_BYTES - 1] = 1;
        assert!(!is_zero(page.bytes()));
    }
}
