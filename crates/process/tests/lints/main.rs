//! What holds for the source of every crate, and is read there.

mod circles;
mod every_crate_asks;
mod links_of_pages;
mod long_functions;
mod sources;
mod stories_by_name;
