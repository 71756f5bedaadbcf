//! The engine knows files and buffers and little else (kernel crates only). Ten direct dependencies are the
//! limit: whoever needs an eleventh changes this test and says why.

const MOST: usize = 10;

#[test]
fn the_engine_has_few_direct_dependencies() {
    let manifest = include_str!("../../Cargo.toml");
    let direct = dependencies(manifest);
    assert!(direct.contains(&"io-uring"), "the section was not found: {direct:?}");
    assert!(
        !direct.contains(&"tempfile"),
        "dependencies of tests do not count: {direct:?}"
    );
    assert!(direct.len() <= MOST, "{} direct dependencies: {direct:?}", direct.len());
}

/// Names in `[dependencies]`, `[build-dependencies]` and their target-specific forms.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            let table = section
                .strip_prefix("target.")
                .and_then(|s| s.rsplit('.').next())
                .unwrap_or(section);
            inside = table == "dependencies" || table == "build-dependencies";
            // A dependency may have a section of its own: [dependencies.NAME].
            names.extend(
                section
                    .strip_prefix("dependencies.")
                    .or(section.strip_prefix("build-dependencies.")),
            );
        } else if inside && !line.is_empty() && !line.starts_with('#') {
            names.extend(line.split(['=', '.', ' ']).next());
        }
    }
    names
}

#[test]
fn every_form_of_a_dependency_is_counted() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\na = \"1\"\nb.workspace = true\n# no = \"1\"\n\n\
                    [dependencies.c]\nversion = \"1\"\n[target.'cfg(unix)'.dependencies]\nd = \"1\"\n\
                    [build-dependencies]\ne = \"1\"\n[dev-dependencies]\nf = \"1\"\n";
    assert_eq!(dependencies(manifest), ["a", "b", "c", "d", "e"]);
}
