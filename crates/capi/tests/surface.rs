//! What the library shows is what the header names, under a version; and the header is what the source makes.

mod common;

use std::collections::BTreeSet;
use std::process::Command;

use common::{ended_well, in_crate, installed, skipped, text};

/// The functions of the header.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(in_crate("include/baio.h")).unwrap();
    let code = header
        .lines()
        .filter(|line| !line.starts_with([' ', '/', '#', '}']) && !line.starts_with("typedef"));
    let names = code.filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next());
    names
        .filter(|name| name.starts_with("baio_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_library_shows_the_names_of_the_header_and_no_other() {
    let library = installed().join("lib/libbaio.so.0");
    let symbols = Command::new("nm")
        .args(["-D", "--defined-only", "--with-symbol-versions"])
        .arg(library)
        .output()
        .unwrap();
    ended_well(&symbols, "nm");
    let shown: BTreeSet<String> = text(&symbols.stdout)
        .lines()
        .filter_map(|line| line.split(' ').nth(2).map(str::to_owned))
        .filter(|name| !name.starts_with("BAIO_0"))
        .collect();
    let declared: BTreeSet<String> = declared().iter().map(|name| format!("{name}@@BAIO_0")).collect();
    assert!(declared.len() > 20, "{declared:?}");
    assert_eq!(shown, declared);
}

#[test]
fn the_library_says_its_name_and_is_found_by_pkg_config() {
    let lib = installed().join("lib");
    let dynamic = Command::new("readelf")
        .arg("-d")
        .arg(lib.join("libbaio.so.0"))
        .output()
        .unwrap();
    assert!(
        text(&dynamic.stdout).contains("soname: [libbaio.so.0]"),
        "{}",
        text(&dynamic.stdout)
    );
    let mut pkg_config = Command::new("pkg-config");
    pkg_config
        .env("PKG_CONFIG_PATH", lib.join("pkgconfig"))
        .args(["--cflags", "--libs", "baio"]);
    let Ok(flags) = pkg_config.output() else {
        return skipped(
            "surface::the_library_says_its_name_and_is_found_by_pkg_config",
            "pkg-config",
        );
    };
    ended_well(&flags, "pkg-config");
    assert!(text(&flags.stdout).contains("-lbaio"), "{}", text(&flags.stdout));
}

#[test]
fn the_header_is_what_the_source_makes() {
    let cbindgen = std::env::var("CBINDGEN").unwrap_or_else(|_| "cbindgen".into());
    if Command::new(&cbindgen).arg("--version").output().is_err() {
        return skipped("surface::the_header_is_what_the_source_makes", "cbindgen");
    }
    let checked = Command::new(in_crate("header.sh")).arg("--check").output().unwrap();
    assert!(
        checked.status.success(),
        "run crates/capi/header.sh:\n{}",
        text(&checked.stdout)
    );
}

#[test]
fn every_function_has_a_page_and_mandoc_finds_nothing_in_them() {
    let mut pages = String::new();
    for page in std::fs::read_dir(in_crate("man")).unwrap() {
        let page = page.unwrap().path();
        pages.push_str(&std::fs::read_to_string(&page).unwrap());
        match Command::new("mandoc")
            .args(["-T", "lint", "-W", "warning"])
            .arg(&page)
            .output()
        {
            Ok(said) => assert!(said.status.success(), "{}", text(&said.stdout)),
            Err(_) => skipped(
                "surface::every_function_has_a_page_and_mandoc_finds_nothing_in_them",
                "mandoc",
            ),
        }
    }
    for name in declared() {
        assert!(pages.contains(&format!(".Fo {name}\n")), "{name} has no manual page");
    }
}
