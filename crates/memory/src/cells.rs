//! Many cells of shared memory at once, copied as fast as the machine can.
//!
//! A compiler must not merge atomics, so a loop of them moves eight bytes at a time. `rep movsq` is that loop in one instruction: the same aligned loads and stores of 64 bits, and the processor may merge them. The compiler
//! knows of it only that it reads and writes these bytes.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are moved at once. All of a region is touched in aligned cells of this size, also where a span ends within
/// one: atomics of several sizes on the same bytes would be a data race.
pub(crate) const CELL: usize = size_of::<u64>();

/// Fewer cells are moved one by one sooner than the instruction starts.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const AT_ONCE: usize = 32;

pub(crate) fn load(cell: &AtomicU64) -> [u8; CELL] {
    cell.load(Ordering::Relaxed).to_ne_bytes()
}

/// Stores bytes to as many cells as they fill.
///
/// # Panics
/// They do not fill all of these cells, and no more.
pub(crate) fn store_all(cells: &[AtomicU64], bytes: &[u8]) {
    assert_eq!(size_of_val(cells), bytes.len(), "bytes that fill the cells");
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if cells.len() >= AT_ONCE {
        // SAFETY: both sides have this many bytes (asserted) and cannot overlap: `bytes` is borrowed, and what is in cells never is. Cells may
        // be written through a shared borrow.
        return unsafe { move_cells(cells.as_ptr().cast_mut().cast(), bytes.as_ptr(), cells.len()) };
    }
    for (cell, bytes) in cells.iter().zip(bytes.chunks_exact(CELL)) {
        let mut word = [0; CELL];
        word.copy_from_slice(bytes);
        cell.store(u64::from_ne_bytes(word), Ordering::Relaxed);
    }
}

/// Loads all of these cells.
///
/// # Panics
/// There is not as much room as they have.
pub(crate) fn load_all(cells: &[AtomicU64], bytes: &mut [u8]) {
    assert_eq!(size_of_val(cells), bytes.len(), "room for the cells");
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if cells.len() >= AT_ONCE {
        // SAFETY: as in `store_all`; `bytes` is borrowed mutably.
        return unsafe { move_cells(bytes.as_mut_ptr(), cells.as_ptr().cast(), cells.len()) };
    }
    for (cell, bytes) in cells.iter().zip(bytes.chunks_exact_mut(CELL)) {
        bytes.copy_from_slice(&load(cell));
    }
}

/// # Safety
/// `count` words can be read at `from` and written at `to`, and do not overlap. Others may write to or read from the side that is
/// cells meanwhile.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn move_cells(to: *mut u8, from: *const u8, count: usize) {
    // SAFETY: the caller's. The direction flag is clear at each asm block (Rust reference, inline assembly).
    unsafe {
        std::arch::asm!(
            "rep movsq",
            inout("rcx") count => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On both sides of where the way changes.
    #[test]
    fn as_many_cells_as_there_are() {
        for count in [0, 1, 31, 32, 33, 512, 1000] {
            let bytes: Vec<u8> = (0..count * CELL).map(|at| (at * 7 + at / 251) as u8).collect();
            let cells: Vec<AtomicU64> = (0..count + 2).map(|_| AtomicU64::new(u64::MAX)).collect();
            store_all(&cells[1..=count], &bytes);
            let mut seen = vec![0; count * CELL];
            load_all(&cells[1..=count], &mut seen);
            assert_eq!(seen, bytes, "{count} cells");
            for beside in [0, count + 1] {
                assert_eq!(cells[beside].load(Ordering::Relaxed), u64::MAX, "beside {count} cells");
            }
        }
    }
}
