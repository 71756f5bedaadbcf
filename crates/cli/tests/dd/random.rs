//! Promise: any operands that make sense together do what GNU dd does. Each seed is a case; a failure prints it.
//! `BAIO_DD_SEEDS=10000` runs so many.

use crate::support::Place;
use crate::support::gnu;

const SEEDS: u64 = 300;

const INPUTS: [&str; 12] = [
    "bin", "text", "even", "one", "empty", "holes", "holes9", "all", "|bin", "|text", "<bin", "|even",
];
const TARGETS: [&str; 5] = ["-", "old", "old", "short", "pipe"];
const SIZES: [u64; 11] = [1, 2, 3, 7, 10, 100, 512, 513, 1000, 4096, 10_000];

/// A generator that needs no crate.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

fn conversions(dice: &mut Dice) -> Vec<&'static str> {
    let mut found = Vec::new();
    for (word, chances) in [
        ("swab", 4),
        ("sync", 4),
        ("noerror", 5),
        ("notrunc", 2),
        ("sparse", 4),
        ("fsync", 9),
    ] {
        if dice.one_in(chances) {
            found.push(word);
        }
    }
    if dice.one_in(4) {
        found.push(dice.of(&["ucase", "lcase"]));
    }
    found
}

fn operands(dice: &mut Dice, target: &str) -> String {
    let mut words = Vec::new();
    match dice.below(5) {
        0 => {}
        1 | 2 => words.push(format!("bs={}", dice.of(&SIZES))),
        3 => words.push(format!("ibs={} obs={}", dice.of(&SIZES), dice.of(&SIZES))),
        _ => words.push(format!("{}={}", dice.of(&["ibs", "obs"]), dice.of(&SIZES))),
    }
    let mut converts = conversions(dice);
    let bytes = |dice: &mut Dice| if dice.one_in(3) { "B" } else { "" };
    if dice.one_in(3) {
        let mark = bytes(dice);
        words.push(format!("count={}{mark}", dice.below(12)));
    }
    if dice.one_in(3) {
        let mark = bytes(dice);
        words.push(format!("{}={}{mark}", dice.of(&["skip", "iseek"]), dice.below(8)));
    }
    // A pipe has no positions, and what that and a failing sync together say is nobody's promise.
    if dice.one_in(3) && (target != "pipe" || !converts.contains(&"fsync")) {
        // In bytes and below a block GNU dd cuts what lies before: docs/inside/dd.md.
        let mark = if converts.contains(&"notrunc") { bytes(dice) } else { "" };
        words.push(format!("{}={}{mark}", dice.of(&["seek", "oseek"]), dice.below(8)));
    }
    if dice.one_in(4) {
        words.push("iflag=fullblock".to_owned());
    }
    // Thousands of durable writes would take their time.
    let small = words
        .first()
        .is_some_and(|sizes| sizes.split(' ').any(|size| size.len() < "bs=100".len()));
    if dice.one_in(6) && !small {
        words.push(format!("oflag={}", dice.of(&["dsync", "sync", "nocache"])));
    } else if dice.one_in(6) {
        words.push("oflag=append".to_owned());
        // Zeros that are passed over before an append are lost to GNU dd.
        converts.retain(|word| *word != "sparse");
    }
    if !converts.is_empty() {
        words.push(format!("conv={}", converts.join(",")));
    }
    if dice.one_in(8) {
        words.push(format!("status={}", dice.of(&["none", "noxfer", "progress"])));
    }
    words.join(" ")
}

#[test]
fn whatever_makes_sense_together() {
    let place = Place::new();
    if !gnu::is_there(&place) {
        return;
    }
    gnu::write_inputs(&place);
    let mut found = Vec::new();
    let seeds = std::env::var("BAIO_DD_SEEDS").map_or(SEEDS, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        let dice = &mut Dice(seed);
        let (input, target) = (dice.of(&INPUTS), dice.of(&TARGETS));
        let operands = operands(dice, target);
        let told = gnu::differences(&place, (input, target, &operands));
        if !told.is_empty() {
            found.push(format!("seed {seed}"));
            found.extend(told);
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    println!("{seeds} cases agree with GNU dd");
}
