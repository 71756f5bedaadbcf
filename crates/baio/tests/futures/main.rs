//! What futures carry and how they end, also under other runtimes and with other crates' buffers: the features of the library.

#[path = "../common/mod.rs"]
mod common;

mod buffers;
mod freezes;
#[cfg(feature = "metrics")]
mod metrics_socket;
mod nobody_waits_for_ever;
#[cfg(all(feature = "futures-io", feature = "tokio"))]
mod streams;
#[cfg(all(feature = "futures-io", feature = "tokio"))]
mod streams_over_bad_disks;
