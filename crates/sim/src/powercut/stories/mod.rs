//! What is done on the device, and what must be there afterwards.

use std::collections::BTreeMap;

use baio_engine::sim::Random;

use super::place::Place;
use super::worker::{Failure, Worker};

mod dd;
mod log;
mod pairs;
mod segments;

/// What was seen, by name: how much was looked at, and [`PLAIN_LOST`].
pub type Seen = BTreeMap<&'static str, u64>;

/// What was acknowledged, not as durable, and is gone.
pub const PLAIN_LOST: &str = "plain_lost";

/// Adds to a count.
pub fn count(seen: &mut Seen, what: &'static str, times: u64) {
    *seen.entry(what).or_default() += times;
}

/// One story: who prepares the device, hears what the worker says, and judges what is there.
pub trait Story {
    /// Makes what the worker begins with, on a blank device.
    ///
    /// # Errors
    /// It cannot be made.
    fn prepare(&mut self, place: &dyn Place, random: &mut Random) -> Result<(), Failure>;

    /// Goes on with a device that another process has prepared.
    fn resume(&mut self, _place: &dyn Place) {}

    /// The next worker has numbers from here on.
    fn first(&self) -> u64;

    /// Takes a line of the worker.
    ///
    /// # Errors
    /// It says nothing that is known.
    fn hear(&mut self, line: &str) -> Result<(), Failure>;

    /// Opens what a cut has left, and looks at all of it.
    ///
    /// # Errors
    /// A promise is broken.
    fn judge(&mut self, place: &mut dyn Place, random: &mut Random, seen: &mut Seen) -> Result<(), Failure>;
}

/// Makes a story.
pub type Make = fn() -> Box<dyn Story>;

/// All stories, by name.
pub const ALL: [(&str, Make); 7] = [
    ("log", || Box::new(log::LogStory::default())),
    ("volume", || Box::new(segments::SegmentsStory::new(segments::VOLUME))),
    ("cache", || Box::new(segments::SegmentsStory::new(segments::CACHE))),
    ("moves", || Box::new(segments::SegmentsStory::new(segments::MOVES))),
    ("kv", || Box::new(pairs::KvStory::default())),
    ("btree", || Box::new(pairs::BtreeStory::default())),
    ("dd", || Box::new(dd::DdStory::default())),
];

/// Works until the power is cut. It says on a line what goes wrong before.
///
/// # Errors
/// There is no such story; or what went wrong.
pub fn work(worker: &Worker) -> Result<(), Failure> {
    match worker.task.story.as_str() {
        "log" => log::work(worker),
        "volume" => segments::work(worker, &segments::VOLUME),
        "cache" => segments::work(worker, &segments::CACHE),
        "moves" => segments::work(worker, &segments::MOVES),
        "kv" => pairs::work_on_kv(worker),
        "btree" => pairs::work_on_btree(worker),
        "dd" => dd::work(worker),
        story => Err(format!("there is no story `{story}`").into()),
    }
}
