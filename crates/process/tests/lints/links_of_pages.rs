//! Every link of a page leads to a file that is there, and to a heading of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::sources;

/// Where pages are, below the root.
const PLACES: [&str; 6] = [".", "docs", "crates", "benches", "packaging", "fuzz"];

#[test]
fn every_link_leads_somewhere() {
    let root = sources::crates().join("..");
    let mut pages = Vec::new();
    for place in PLACES {
        find(&root.join(place), place != ".", &mut pages);
    }
    let mut links = 0;
    let mut broken = Vec::new();
    for page in &pages {
        let text = fs::read_to_string(page).unwrap();
        for link in links_of(&text) {
            links += 1;
            if let Err(why) = leads(page, link) {
                broken.push(format!("{}: {link}: {why}", page.display()));
            }
        }
    }
    assert!(links > 200, "{links} links: pages are not found any more");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Pages of a directory, and of those below it, but for what is built there.
fn find(at: &Path, below: bool, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        let is_built = path.ends_with("target") || path.ends_with("node_modules");
        if path.is_dir() && below && !is_built {
            find(&path, below, pages);
        } else if path.extension().is_some_and(|end| end == "md") && path.is_file() {
            pages.push(path);
        }
    }
}

/// Lines that are no program.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_program = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        in_program ^= fence;
        !in_program && !fence
    })
}

/// Where the links of a page lead that stay in the repository. What stands between backquotes is no link.
fn links_of(text: &str) -> impl Iterator<Item = &str> {
    let outside = prose(text).flat_map(|line| line.split('`').step_by(2));
    let targets = outside.flat_map(|part| {
        let ends = part.match_indices("](").map(|(at, _)| &part[at + 2..]);
        ends.filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
    });
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

fn leads(page: &Path, link: &str) -> Result<(), String> {
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let to = match path {
        "" => page.to_owned(),
        path => page.parent().unwrap().join(path),
    };
    if !to.exists() {
        return Err("no such file".to_owned());
    }
    if heading.is_empty() || to.extension().is_none_or(|end| end != "md") {
        return Ok(());
    }
    match headings(&fs::read_to_string(to).unwrap()).contains(heading) {
        true => Ok(()),
        false => Err("no such heading".to_owned()),
    }
}

/// As GitHub names them.
fn headings(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let words = prose(text).filter_map(|line| {
        line.trim_start_matches('#')
            .strip_prefix(' ')
            .filter(|_| line.starts_with('#'))
    });
    words
        .map(|words| {
            let kept = words.to_lowercase();
            let kept = kept.chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
            let name: String = kept.map(|it| if it == ' ' { '-' } else { it }).collect();
            let times = seen.entry(name.clone()).or_default();
            *times += 1;
            match *times {
                1 => name,
                more => format!("{name}-{}", more - 1),
            }
        })
        .collect()
}
