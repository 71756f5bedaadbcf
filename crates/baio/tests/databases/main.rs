//! The examples that are databases do what they say.

#[path = "../common/child.rs"]
mod child;

mod btree_example;
mod kv_example;
