//! What a newer kernel would give: the lines of the engine's table (`baio_engine::kernel`) that were found lacking while all else was
//! looked at.

use baio::Region;
use baio_console::output::Table;
use baio_engine::kernel;
use serde::Serialize;

/// One of them.
#[derive(Serialize)]
pub(super) struct Lack {
    name: &'static str,
    /// The first kernel that has it.
    since: &'static str,
    what: &'static str,
    /// What is done without.
    instead: &'static str,
}

/// Those that were found, and those that nothing but a try can tell.
pub(super) fn found() -> Vec<Lack> {
    baio_engine::try_the_kernel();
    // It has what there is, or is made without.
    let _ = Region::create(4096);
    let lack = |line: &kernel::Line| Lack {
        name: line.name,
        since: line.since,
        what: line.what,
        instead: line.instead,
    };
    kernel::lacking().map(lack).collect()
}

/// What only a file can tell: what its file system and its device have of it.
const ON_A_PATH: [kernel::Feature; 3] = [
    kernel::Feature::DirectLimits,
    kernel::Feature::AtomicWrites,
    kernel::Feature::Uncached,
];

/// Where no path was named and this kernel lacks something, so that it may lack those too.
pub(super) fn add_untried(lacks: &[Lack], table: &mut Table) {
    let is_untried = |line: &&kernel::Line| lacks.iter().all(|lack| lack.name != line.name);
    let lines = ON_A_PATH.iter().map(|feature| feature.line());
    let names: Vec<_> = lines
        .filter(is_untried)
        .map(|line| format!("{} ({})", line.name, line.since))
        .collect();
    if !lacks.is_empty() && !names.is_empty() {
        let told = format!("`baio doctor PATH` shows {} too", names.join(", "));
        table.row(["  not tried", &told]);
    }
}

/// In one sentence.
pub(super) fn add_outline(lacks: &[Lack], table: &mut Table) {
    let names: Vec<_> = lacks
        .iter()
        .map(|lack| format!("{} ({})", lack.name, lack.since))
        .collect();
    if !names.is_empty() {
        let told = format!("would give {}; everything works without", names.join(", "));
        table.row(["a newer kernel", &told]);
    }
}

/// With what is done instead.
pub(super) fn add_rows(lacks: &[Lack], table: &mut Table) {
    for lack in lacks {
        let Lack {
            name,
            since,
            what,
            instead,
        } = lack;
        let told = format!("{what}, since Linux {since}; instead: {instead}");
        table.row([&format!("  lacks {name}"), &told]);
    }
}
