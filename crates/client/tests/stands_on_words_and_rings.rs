//! The promise: what a client needs to speak to a service is words, rings, shared memory and its own process; neither the engine nor the volume is in its tree.

use std::process::Command;

/// The crates of this project that a package is built from, without itself.
fn ours_below(package: &str) -> Vec<String> {
    let mut tree = Command::new(env!("CARGO"));
    tree.args([
        "tree",
        "--locked",
        "--offline",
        "-e",
        "normal",
        "--prefix",
        "none",
        "-p",
        package,
    ]);
    let told = tree.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let (tree, why) = (
        String::from_utf8_lossy(&told.stdout),
        String::from_utf8_lossy(&told.stderr),
    );
    assert!(told.status.success(), "{why}");
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    let mut ours: Vec<_> = names
        .filter(|name| name.starts_with("baio"))
        .map(str::to_owned)
        .collect();
    ours.sort();
    ours.dedup();
    ours.retain(|name| name != package);
    ours
}

#[test]
fn a_client_needs_nothing_of_ours_but_words_and_rings() {
    // Threads and descriptors are had of the process by one way, whoever needs them.
    let below = ["baio-memory", "baio-process", "baio-ring", "baio-words"];
    assert_eq!(ours_below("baio-client"), below);
    assert_eq!(ours_below("baio-ring"), ["baio-memory", "baio-process", "baio-words"]);
    assert_eq!(ours_below("baio-memory"), ["baio-process", "baio-words"]);
    assert!(ours_below("baio-words").is_empty());
}

/// The canary: the service needs the rest.
#[test]
fn the_service_needs_the_engine_and_the_volume() {
    let below = ours_below("baio-broker");
    for name in ["baio-engine", "baio-memory", "baio-ring", "baio-storage", "baio-words"] {
        assert!(below.iter().any(|one| one == name), "{below:?}");
    }
}
