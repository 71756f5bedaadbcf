//! The claim: no file of a crate uses, by whatever way, what uses it. Files that stand in a circle can be read only together.
//!
//! A file uses another by its `use` paths; what a module hands on from one of its own is taken from there. A parent may use its children, and they what it
//! shows to others. They make a circle where they name what the parent keeps to itself. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use crate::sources;

/// What items are declared by. A private module is seen by all below it, and meant to be.
const ITEMS: [&str; 9] = [
    "fn", "struct", "enum", "trait", "type", "const", "static", "union", "mod",
];

/// A module: its names from the crate on.
type Module = Vec<String>;

/// One name that a `use` brings, and from where.
struct Import {
    name: String,
    path: Vec<String>,
}

/// What is read of a file.
struct Source {
    path: String,
    imports: Vec<Import>,
    /// What it declares, and whether others see it.
    declares: BTreeMap<String, bool>,
}

/// The files of one crate, by their modules.
#[derive(Default)]
struct Crate(BTreeMap<Module, Source>);

/// The module that a file is, by its path below `src`.
fn module_of(path: &Path) -> Module {
    let names = path.with_extension("");
    let mut names: Module = names
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_str().unwrap().to_owned()),
            _ => None,
        })
        .collect();
    if matches!(names.last().map(String::as_str), Some("lib" | "main" | "mod")) {
        names.pop();
    }
    names
}

/// Without comments, and without the tests at its end.
fn code(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let lines = text[..end].lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The line without what says who may see it, and whether anything does.
fn without_visibility(line: &str) -> (&str, bool) {
    match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => (rest.split_once(')').map_or(rest, |(_, rest)| rest).trim_start(), true),
        Some(rest) if rest.starts_with(' ') => (rest.trim_start(), true),
        _ => (line, false),
    }
}

/// The paths of a `use`, its braces taken apart.
fn take_apart(before: &[String], text: &str, imports: &mut Vec<Import>) {
    let mut path = before.to_vec();
    let text = text.trim();
    if let Some((head, group)) = text.split_once('{') {
        path.extend(
            head.split("::")
                .map(str::trim)
                .filter(|name| !name.is_empty())
                .map(str::to_owned),
        );
        let group = group.trim_end().strip_suffix('}').unwrap_or(group);
        let (mut depth, mut begin) = (0, 0);
        for (at, letter) in group.char_indices() {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    take_apart(&path, &group[begin..at], imports);
                    begin = at + 1;
                }
                _ => {}
            }
        }
        return take_apart(&path, &group[begin..], imports);
    }
    let (text, alias) = match text.split_once(" as ") {
        Some((text, alias)) => (text, Some(alias.trim())),
        None => (text, None),
    };
    path.extend(
        text.split("::")
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(str::to_owned),
    );
    if text.is_empty() || path.len() < 2 {
        return;
    }
    if path.last().unwrap() == "self" {
        path.pop();
    }
    let name = alias.unwrap_or(path.last().unwrap()).to_owned();
    imports.push(Import { name, path });
}

impl Source {
    fn read(path: String, text: &str) -> Source {
        let code = code(text);
        let (mut imports, mut declares) = (Vec::new(), BTreeMap::new());
        let mut lines = code.lines();
        while let Some(line) = lines.next() {
            let (what, is_seen) = without_visibility(line.trim_start());
            if let Some(used) = what.strip_prefix("use ") {
                let mut used = used.to_owned();
                while !used.contains(';') {
                    let Some(line) = lines.next() else { break };
                    used += line;
                }
                let used = used.split(';').next().unwrap_or_default();
                take_apart(&[], used, &mut imports);
            } else if !line.starts_with(' ') {
                let words = ["async ", "unsafe ", "const ", "extern \"C\" "];
                let short = words.iter().fold(what, |what, word| match what.strip_prefix(word) {
                    Some(rest) if ITEMS.iter().any(|item| rest.starts_with(item)) => rest,
                    _ => what,
                });
                let named = short.split_once(' ').filter(|(item, _)| ITEMS.contains(item));
                let name =
                    named.map(|(_, rest)| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap());
                if let Some(name) = name {
                    declares.insert(name.to_owned(), is_seen || short.starts_with("mod "));
                }
            }
        }
        Source {
            path,
            imports,
            declares,
        }
    }
}

impl Crate {
    /// The module in which what this path names is declared, and whether others see it there; none outside of the crate.
    fn find(&self, from: &Module, path: &[String], depth: usize) -> Option<(&Module, bool)> {
        let mut at = from.clone();
        let mut rest = path;
        match rest[0].as_str() {
            "crate" => {
                at.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|name| name == "super") {
                    at.pop()?;
                    rest = &rest[1..];
                }
            }
            name => {
                at.push(name.to_owned());
                self.0.get(&at)?;
                rest = &rest[1..];
            }
        }
        while let Some(name) = rest.first() {
            at.push(name.clone());
            if !self.0.contains_key(&at) {
                at.pop();
                break;
            }
            rest = &rest[1..];
        }
        let (module, source) = self.0.get_key_value(&at)?;
        let Some(name) = rest.first() else {
            return Some((module, true));
        };
        if let Some(&is_seen) = source.declares.get(name) {
            return Some((module, is_seen));
        }
        let handed_on = source
            .imports
            .iter()
            .filter(|import| import.name == *name || import.name == "*");
        handed_on
            .filter(|_| depth > 0)
            .filter_map(|import| {
                let mut path = import.path.clone();
                if import.name == "*" {
                    path.pop();
                    path.push(name.clone());
                }
                self.find(module, &path, depth - 1)
            })
            .next()
    }

    fn uses(&self, from: &Module, source: &Source) -> BTreeSet<&Module> {
        let found = source
            .imports
            .iter()
            .filter_map(|import| self.find(from, &import.path, 8));
        let counts = |(module, is_seen): &(&Module, bool)| *module != from && (!from.starts_with(module) || !is_seen);
        found.filter(counts).map(|(module, _)| module).collect()
    }

    /// Files that use each other, in one circle or several that share a file.
    fn circles(&self) -> BTreeSet<Vec<&str>> {
        let uses: BTreeMap<&Module, BTreeSet<&Module>> = self
            .0
            .iter()
            .map(|(module, source)| (module, self.uses(module, source)))
            .collect();
        let reached = |from: &Module| {
            let mut reached = BTreeSet::new();
            let mut next: Vec<&Module> = uses[from].iter().copied().collect();
            while let Some(module) = next.pop() {
                if reached.insert(module) {
                    next.extend(&uses[module]);
                }
            }
            reached
        };
        let all: BTreeMap<&Module, BTreeSet<&Module>> = uses.keys().map(|module| (*module, reached(module))).collect();
        let circle = |(module, reached): (&&Module, &BTreeSet<&Module>)| {
            let back = reached.iter().filter(|other| all[**other].contains(*module));
            back.map(|other| self.0[*other].path.as_str()).collect::<Vec<_>>()
        };
        all.iter().map(circle).filter(|circle| circle.len() > 1).collect()
    }
}

#[test]
fn no_file_uses_what_uses_it() {
    let mut crates = BTreeMap::<String, Crate>::new();
    for (path, text) in sources::all() {
        let mut parts = path.components();
        let package = parts.next().unwrap().as_os_str().to_str().unwrap().to_owned();
        let below = parts.as_path().strip_prefix("src").unwrap();
        let file = below.with_extension("").to_str().unwrap().to_owned();
        if !file.ends_with("tests") {
            // Of a library and its program the first is the crate: the program uses it by its name.
            let files = &mut crates.entry(package).or_default().0;
            files
                .entry(module_of(below))
                .or_insert_with(|| Source::read(file, &text));
        }
    }
    assert!(crates.len() > 15, "only {} crates were found", crates.len());
    let found: BTreeSet<String> = crates
        .iter()
        .flat_map(|(package, files)| {
            let circles = files.circles().into_iter();
            circles.map(move |circle| format!("{package}: {}", circle.join(" ")))
        })
        .collect();
    assert!(found.is_empty(), "files that use each other: {found:#?}");
}
