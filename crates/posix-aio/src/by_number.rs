//! A hash of descriptors.

use std::hash::Hasher;

/// Numbers of descriptors are spread well enough.
#[derive(Default)]
pub(crate) struct ByNumber(u64);

impl Hasher for ByNumber {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 << 8 | u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn write_i32(&mut self, number: i32) {
        self.0 = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
