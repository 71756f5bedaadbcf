//! Which share of a list a run takes: all of it, or what `BAIO_PLANTED_PART=K/N` says, every N-th from the K-th on (from 0).
//! A landing takes a quarter of the planted bugs, of the promises that are broken on purpose, and of the bad environments of the engine's
//! contract; the hash of its commit decides which (`.ci/run`). `.ci/long` takes all.

/// The share of `all` that this run takes; what it leaves out is printed.
pub(crate) fn ours<T: Clone>(all: &[T]) -> Vec<T> {
    let Ok(part) = std::env::var("BAIO_PLANTED_PART") else {
        return all.to_vec();
    };
    let numbers = part.split_once('/').map(|(k, n)| (k.parse(), n.parse()));
    let Some((Ok(k), Ok(n))) = numbers else {
        panic!("BAIO_PLANTED_PART={part}: needed K/N, two numbers");
    };
    let (k, n): (usize, usize) = (k, n);
    assert!(k < n, "BAIO_PLANTED_PART={part}: needed K below N");
    let mine: Vec<T> = all.iter().skip(k).step_by(n).cloned().collect();
    println!("part {part}: {} of {}", mine.len(), all.len());
    mine
}
