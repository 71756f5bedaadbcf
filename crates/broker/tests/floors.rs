//! Who may import whom: what both sides share knows the engine's types at most, so that a client of another process needs
//! no storage; and the two sides never import each other.

/// The lines of a file that import, without its comments.
fn imports(source: &str) -> Vec<&str> {
    let lines = source.lines().map(str::trim);
    lines.filter(|line| !line.starts_with("//")).collect()
}

fn knows(source: &str, word: &str) -> bool {
    imports(source).iter().any(|line| line.contains(word))
}

#[test]
fn what_both_sides_share_knows_no_storage() {
    for (name, source) in [
        ("ring", include_str!("../src/ring.rs")),
        ("doorbell", include_str!("../src/doorbell.rs")),
        ("exchange", include_str!("../src/exchange.rs")),
        ("connection", include_str!("../src/connection.rs")),
    ] {
        assert!(!knows(source, "baio_storage"), "{name} imports storage");
        assert!(!knows(source, "service::"), "{name} imports the service");
        assert!(!knows(source, "control::"), "{name} imports the control path");
    }
    assert!(!knows(include_str!("../src/ring.rs"), "baio_engine"));
}

/// The canary: the service does.
#[test]
fn the_service_knows_storage() {
    let service = include_str!("../src/service.rs");
    assert!(knows(service, "baio_storage") && !knows(service, "baio::"));
}
