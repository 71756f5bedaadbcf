//! `baio dd`: as GNU dd, on files, segments, through a broker.

#[path = "../support/mod.rs"]
mod support;

mod agrees_with_gnu_dd;
mod cut_volume;
mod failures;
mod in_order;
mod random;
mod refusals;
mod round_trip;
mod segments;
mod served;
mod signals;
