//! The contract is kept where what is young is refused: one call or flag after another, and then all at once (docs/engine.md, "What a kernel
//! may lack"). A filter stays with its process, so each has a child of its own. With the other words for it, `young_calls.rs`.

use std::process::Command;
use std::sync::PoisonError;

use crate::backends::{BACKENDS, Bench, tell};
use crate::environment::AioEvents;
use crate::young::{Refusal, YOUNG};
use crate::{ALONE, World, run_suite};

/// Names what is refused to a child, by its place among all.
const REFUSED: &str = "BAIO_REFUSED";
/// Has the whole contract run, under each of them in each word, which takes half an hour: `.ci/long`.
const WHOLE: &str = "BAIO_REFUSED_WHOLE";
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
    let wanted = |refusal: Refusal| !refusal.is_of_streams() && (is_whole() || refusal.is_of_the_few());
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
        "contract: {} young calls and flags refused alone and all at once, in {ways} ways: kept in each by all of {} that start there",
        YOUNG.len(),
        usual.join(", ")
    ));
}

fn is_whole() -> bool {
    std::env::var_os(WHOLE).is_some()
}

/// The backends that have kept it there.
fn run_child(place: usize, refusal: Refusal) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().expect("the path of this test"));
    child
        .args(["--exact", TEST, "--nocapture"])
        .env(REFUSED, place.to_string());
    if !is_whole() && std::env::var_os("BAIO_CASE").is_none() {
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
