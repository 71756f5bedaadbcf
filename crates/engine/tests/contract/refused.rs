//! The contract is kept where what is young is refused: all at once, and where there is time one call or flag after another (docs/inside/kernels.md).
//! A filter stays with its process, so each has a child of its own. One request of each kind, in every way: `young_calls.rs`.

use std::process::Command;
use std::sync::PoisonError;

use crate::backends::{BACKENDS, Bench, tell};
use crate::environment::AioEvents;
use crate::young::{Refusal, YOUNG};
use crate::{ALONE, World, run_suite};

/// Names what is refused to a child, by its place among all.
const REFUSED: &str = "BAIO_REFUSED";
/// `each`: under every row in one word, for minutes. `whole`: the whole contract under every row in every word, for half an hour.
const MORE: &str = "BAIO_REFUSED_MORE";
const TEST: &str = "refused::the_contract_is_kept_whatever_young_call_is_refused";
const KEPT_BY: &str = "kept by ";

/// Cases of each kind that take no time.
const FAST: &str = "transfer::,durability::,pipes::,polling::,timers::";

/// Is this a child, where something is refused?
pub(crate) fn is_child() -> bool {
    std::env::var_os(REFUSED).is_some()
}

#[test]
fn the_contract_is_kept_whatever_young_call_is_refused() {
    if let Ok(place) = std::env::var(REFUSED) {
        let refusal = Refusal::each().nth(place.parse().expect("a place"));
        return run_in(refusal.expect("a refusal"));
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _events = AioEvents::reserve(false);
    let usual: Vec<&str> = BACKENDS
        .iter()
        .filter(|row| row.has_files() && Bench::new(row).starts_in_time().is_ok())
        .map(|row| row.name)
        .collect();
    let mut ways = 0;
    let more = more();
    let wanted = |refusal: Refusal| match more.as_deref() {
        None => refusal.is_of_the_worst(),
        Some("each") => refusal.is_last_word() && !refusal.is_of_streams(),
        Some("whole") => !refusal.is_of_streams(),
        Some(other) => panic!("{MORE} is each or whole, not {other}"),
    };
    for (place, refusal) in Refusal::each().enumerate() {
        if !wanted(refusal) {
            continue;
        }
        let kept_by = run_child(place, refusal);
        let without_ring: Vec<&str> = usual.iter().copied().filter(|name| *name != "uring").collect();
        let may_be = kept_by == usual || refusal.may_cost_the_ring() && kept_by == without_ring;
        assert!(may_be, "{}: kept by {kept_by:?} of {usual:?}", refusal.name());
        println!("{}: {KEPT_BY}{}", refusal.name(), kept_by.join(", "));
        ways += 1;
    }
    tell(&format!(
        "contract: of {} young calls and flags, refused in {ways} ways: kept in each by all of {} that start there",
        YOUNG.len(),
        usual.join(", ")
    ));
}

fn more() -> Option<String> {
    std::env::var(MORE).ok()
}

/// The backends that have kept it there.
fn run_child(place: usize, refusal: Refusal) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().expect("the path of this test"));
    child
        .args(["--exact", TEST, "--nocapture"])
        .env(REFUSED, place.to_string());
    if more().as_deref() != Some("whole") && std::env::var_os("BAIO_CASE").is_none() {
        child.env("BAIO_CASE", FAST);
    }
    let said = child.output().expect("a child of this test");
    let [out, err] = [&said.stdout, &said.stderr].map(|said| String::from_utf8_lossy(said));
    assert!(said.status.success(), "{}:\n{err}", refusal.name());
    let kept_by = out.lines().find_map(|line| line.split_once(KEPT_BY));
    let (_, names) = kept_by.unwrap_or_else(|| panic!("{}: it tells nothing", refusal.name()));
    names.split(' ').map(str::to_owned).collect()
}

fn run_in(refusal: Refusal) {
    refusal.begin();
    let ran = run_suite(World::Refusing(refusal));
    println!("\n{KEPT_BY}{}", ran.backends.join(" "));
}
