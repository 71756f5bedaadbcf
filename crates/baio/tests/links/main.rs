//! Links: all but reading and writing. On `Local`, on `Remote`, or on both.

#[path = "../common/mod.rs"]
mod common;

mod cached_links;
mod changes_while_open;
mod closing;
mod discards_and_fences;
mod inside_with_pool;
mod joined_futures;
mod local_io;
mod opens_left_half_way;
mod opens_that_truncate;
mod wakers_drop_futures;
