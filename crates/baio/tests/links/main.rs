//! What a link does beside reading and writing, and what whoever uses it may do meanwhile: `Local`, `Remote`, or both.

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
