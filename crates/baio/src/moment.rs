//! Moments of the clock by which threads sleep.

use std::time::{Duration, Instant};

/// So long from now; beyond the clock's end, an age.
pub(crate) fn from_now(patience: Duration) -> Instant {
    const AGE: Duration = Duration::from_secs(1 << 32);
    let now = Instant::now();
    now.checked_add(patience)
        .or_else(|| now.checked_add(AGE))
        .unwrap_or(now)
}
