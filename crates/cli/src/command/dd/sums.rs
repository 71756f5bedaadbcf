//! Hashes of bytes that come in order, which say where two of them differ first.

use blake3::{Hash, Hasher};

/// A difference is told by the first run of so many bytes that has one.
const RUN_BYTES: u64 = 16 << 20;

/// The hashes of bytes that come in order: of all of them, and of each run.
#[derive(Debug, Default)]
pub(super) struct Sums {
    whole: Hasher,
    run: Hasher,
    run_bytes: u64,
    runs: Vec<Hash>,
}

impl Sums {
    pub(super) fn add(&mut self, mut bytes: &[u8]) {
        self.whole.update(bytes);
        while !bytes.is_empty() {
            let left = usize::try_from(RUN_BYTES - self.run_bytes).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(bytes.len().min(left));
            self.run.update(now);
            self.run_bytes += now.len() as u64;
            if self.run_bytes == RUN_BYTES {
                self.end_run();
            }
            bytes = later;
        }
    }

    /// Of all that came.
    pub(super) fn hash(&self) -> String {
        self.whole.finalize().to_hex().to_string()
    }

    fn end_run(&mut self) {
        self.runs.push(self.run.finalize());
        self.run.reset();
        self.run_bytes = 0;
    }

    /// Where the first run begins that the other has not.
    pub(super) fn first_difference(&self, other: &Sums) -> Option<u64> {
        let mut runs = self.runs.iter().zip(&other.runs);
        let differs = runs.position(|(one, two)| one != two);
        let differs = differs.unwrap_or(self.runs.len().min(other.runs.len()));
        (self.whole.finalize() != other.whole.finalize()).then_some(differs as u64 * RUN_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(parts: &[&[u8]]) -> Sums {
        let mut sums = Sums::default();
        parts.iter().for_each(|part| sums.add(part));
        sums
    }

    #[test]
    fn how_the_bytes_came_does_not_matter() {
        assert_eq!(sums(&[b"abc", b"", b"d"]).first_difference(&sums(&[b"abcd"])), None);
        assert_eq!(sums(&[b"abc"]).first_difference(&sums(&[b"abcd"])), Some(0));
    }

    #[test]
    fn the_run_that_differs_is_told() {
        let run = RUN_BYTES as usize;
        let one = vec![7; 2 * run + 10];
        let mut other = one.clone();
        other[run + 5] ^= 1;
        assert_eq!(sums(&[&one]).first_difference(&sums(&[&other])), Some(RUN_BYTES));
        other = one.clone();
        other[2 * run + 1] ^= 1;
        assert_eq!(sums(&[&one]).first_difference(&sums(&[&other])), Some(2 * RUN_BYTES));
    }
}
