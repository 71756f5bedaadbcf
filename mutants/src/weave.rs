//! The sample beside the original, in one copy of the workspace, and its test binaries.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::find::{Change, Mutant};

/// The tests of one story, which may be a test binary or a module of one, and where the binary must stand to run.
#[derive(Clone)]
pub struct Story {
    pub name: String,
    pub program: PathBuf,
    pub folder: PathBuf,
    /// Those to run; all if there are none.
    pub tests: Vec<String>,
}

impl Story {
    /// The stories of a binary, one a module: some end in an instant, and others beside them take minutes.
    fn apart(self) -> Result<Vec<Story>, String> {
        let listed = Command::new(&self.program)
            .current_dir(&self.folder)
            .args(["--list", "--format=terse"])
            .output()
            .map_err(|e| format!("{}: {e}", self.name))?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let mut stories = BTreeMap::<String, Vec<String>>::new();
        for test in listed.lines().filter_map(|line| line.strip_suffix(": test")) {
            let Some((module, _)) = test.split_once("::") else {
                return Ok(vec![self]);
            };
            stories.entry(module.into()).or_default().push(test.into());
        }
        let apart = stories.into_iter().map(|(module, tests)| Story {
            name: format!("{}::{module}", self.name),
            tests,
            ..self.clone()
        });
        Ok(apart.collect())
    }
}

/// What each mutated crate asks: is this one on? With `BAIO_MUTANT_SEEN` set, who asks is written down instead.
const ASK: &str = r#"
#[doc(hidden)]
#[allow(missing_docs, dead_code)]
pub mod mutant {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::LazyLock;
    static ON: LazyLock<u32> = LazyLock::new(|| std::env::var("BAIO_MUTANT").ok().and_then(|v| v.parse().ok()).unwrap_or(0));
    static SEEN: LazyLock<Option<std::ffi::OsString>> = LazyLock::new(|| std::env::var_os("BAIO_MUTANT_SEEN"));
    static KNOWN: [AtomicBool; 65536] = [const { AtomicBool::new(false) }; 65536];
    #[inline]
    pub fn on(id: u32) -> bool {
        if SEEN.is_some() { note(id); }
        *ON == id
    }
    #[cold]
    fn note(id: u32) {
        use std::io::Write;
        if KNOWN[id as usize & 65535].swap(true, Ordering::Relaxed) { return; }
        if let Some(path) = SEEN.as_ref() {
            if let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path) {
                let _ = file.write_all(format!("{id}\n").as_bytes());
            }
        }
    }
}
"#;

/// Weaves the sample and builds the tests; mutants that the compiler refuses are taken out of the sample.
pub fn build(root: &Path, place: &Path, sample: &mut Vec<Mutant>, again: bool) -> Result<Vec<Story>, String> {
    for (at, mutant) in sample.iter_mut().enumerate() {
        mutant.id = at as u32 + 1;
    }
    let tree = place.join("tree");
    let refused = place.join("refused.txt");
    if again {
        let known = std::fs::read_to_string(&refused).unwrap_or_default();
        let known: BTreeSet<u32> = known.lines().filter_map(|line| line.parse().ok()).collect();
        sample.retain(|mutant| !known.contains(&mutant.id));
    } else {
        let _ = std::fs::remove_dir_all(&tree);
        let _ = std::fs::remove_file(&refused);
        copy(root, &tree)?;
    }
    for round in 0..40 {
        let lines = write(root, &tree, sample)?;
        let (tests, bad) = compile(&tree)?;
        if bad.is_empty() {
            println!("built with {} mutants", sample.len());
            return Ok(tests);
        }
        let out: BTreeSet<u32> = bad
            .iter()
            .flat_map(|(file, line)| blamed(&lines, file, *line))
            .collect();
        println!("round {round}: the compiler refuses {} mutants", out.len());
        if out.is_empty() {
            return Err(format!("the tree does not build, and no mutant is to blame: {bad:?}"));
        }
        let mut text = std::fs::read_to_string(&refused).unwrap_or_default();
        for id in &out {
            text.push_str(&format!("{id}\n"));
        }
        std::fs::write(&refused, text).map_err(|e| e.to_string())?;
        sample.retain(|mutant| !out.contains(&mutant.id));
    }
    Err("forty rounds, and the compiler still refuses".into())
}

/// The mutants on the line that the compiler names, else the next ones below it: a match is named by its head.
fn blamed(lines: &Lines, file: &str, line: usize) -> Vec<u32> {
    let Some(ids) = lines.get(file) else { return Vec::new() };
    let near = ids
        .get(&line)
        .or_else(|| ids.range(line..line + 40).next().map(|(_, ids)| ids));
    near.into_iter().flatten().copied().collect()
}

fn copy(root: &Path, tree: &Path) -> Result<(), String> {
    let listed = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "-z"])
        .output()
        .map_err(|e| e.to_string())?;
    for name in listed.stdout.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let name = String::from_utf8_lossy(name).into_owned();
        let to = tree.join(&name);
        std::fs::create_dir_all(to.parent().unwrap_or(tree)).map_err(|e| e.to_string())?;
        std::fs::copy(root.join(&name), &to).map_err(|e| format!("{name}: {e}"))?;
    }
    Ok(())
}

type Lines = BTreeMap<String, BTreeMap<usize, BTreeSet<u32>>>;

/// Writes each mutated file, and tells which mutants stand on which line of it.
fn write(root: &Path, tree: &Path, sample: &[Mutant]) -> Result<Lines, String> {
    let mut files: BTreeMap<&str, Vec<&Mutant>> = BTreeMap::new();
    for mutant in sample {
        files.entry(&mutant.file).or_default().push(mutant);
    }
    // A file whose last mutant was refused goes back to what it was.
    let mut crates: BTreeSet<String> = BTreeSet::new();
    for file in git_sources(root)? {
        let name = file.split('/').take(3).collect::<Vec<_>>().join("/");
        let source = std::fs::read_to_string(root.join(&file)).map_err(|e| format!("{file}: {e}"))?;
        let mut text = match files.get(file.as_str()) {
            Some(mutants) => Weaver { text: &source, mutants }.all(),
            None => source,
        };
        if file.ends_with("/src/lib.rs") {
            text.push_str(ASK);
            crates.insert(name);
        }
        let to = tree.join(&file);
        if std::fs::read_to_string(&to).ok().as_deref() != Some(&text) {
            std::fs::write(&to, text).map_err(|e| format!("{file}: {e}"))?;
        }
    }
    let mut lines = Lines::new();
    for file in files.keys() {
        let text = std::fs::read_to_string(tree.join(file)).map_err(|e| e.to_string())?;
        for (at, line) in text.lines().enumerate() {
            for part in line.split("crate::mutant::on(").skip(1) {
                if let Some(id) = part.split(')').next().and_then(|id| id.parse().ok()) {
                    lines
                        .entry(file.to_string())
                        .or_default()
                        .entry(at + 1)
                        .or_default()
                        .insert(id);
                }
            }
        }
    }
    Ok(lines)
}

fn git_sources(root: &Path) -> Result<Vec<String>, String> {
    let listed = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "crates/*/src/*.rs"])
        .output();
    let listed = listed.map_err(|e| e.to_string())?.stdout;
    Ok(String::from_utf8_lossy(&listed).lines().map(str::to_string).collect())
}

struct Weaver<'a> {
    text: &'a str,
    mutants: &'a [&'a Mutant],
}

impl Weaver<'_> {
    fn all(&self) -> String {
        let mut order: Vec<&Mutant> = self.mutants.to_vec();
        // The outermost first; of those that rewrite the same bytes each wraps the next.
        order.sort_by_key(|m| (m.change.range().start, usize::MAX - m.change.range().end, m.id));
        self.part(0, self.text.len(), &order)
    }

    /// The text from `start` to `end` with the mutants that lie in it.
    fn part(&self, start: usize, end: usize, mutants: &[&Mutant]) -> String {
        let mut out = String::new();
        let mut at = start;
        let mut index = 0;
        while index < mutants.len() {
            let range = mutants[index].change.range();
            if range.start < at || range.end > end {
                index += 1;
                continue;
            }
            // All that lie inside of this one.
            let inner_end = mutants[index + 1..].iter().take_while(|m| {
                let other = m.change.range();
                other.start < range.end && other.end <= range.end && range.end > range.start
            });
            let count = inner_end.count();
            out.push_str(&self.text[at..range.start]);
            out.push_str(&self.one(mutants[index], &mutants[index + 1..index + 1 + count]));
            at = range.end;
            index += 1 + count;
        }
        out.push_str(&self.text[at..end]);
        out
    }

    fn one(&self, mutant: &Mutant, inner: &[&Mutant]) -> String {
        let on = format!("crate::mutant::on({})", mutant.id);
        let inside = |range: &std::ops::Range<usize>| {
            let within: Vec<&Mutant> = inner
                .iter()
                .filter(|m| m.change.range().start >= range.start && m.change.range().end <= range.end)
                .copied()
                .collect();
            self.part(range.start, range.end, &within)
        };
        match &mutant.change {
            Change::Operator { left, right, old, new } => {
                // A second operator for the same operands wraps the first: the first is then the original branch.
                let same: Vec<&Mutant> = inner
                    .iter()
                    .filter(|m| m.change.range() == mutant.change.range())
                    .copied()
                    .collect();
                let original = if same.is_empty() {
                    format!("{} {old} {}", inside(left), inside(right))
                } else {
                    inside(&(left.start..right.end))
                };
                let (l, r) = (inside(left), inside(right));
                format!("(if {on} {{ {l} {new} {r} }} else {{ {original} }})")
            }
            Change::Bare { whole, inner: bare } => {
                let _ = whole;
                let bare = inside(bare);
                format!("(if {on} {{ {bare} }} else {{ !{bare} }})")
            }
            Change::Fixed { condition, value: true } => format!("({on} || ({}))", inside(condition)),
            Change::Fixed {
                condition,
                value: false,
            } => format!("(!{on} && ({}))", inside(condition)),
            Change::Omit { statement } => format!("if !{on} {{ {} }}", inside(statement)),
            Change::NoArm { guard: None, .. } => format!(" if !{on}"),
            Change::NoArm { guard: Some(guard), .. } => format!("(!{on} && ({}))", inside(guard)),
            Change::Returns { value, .. } => format!(" if {on} {{ return {value}; }} "),
        }
    }
}

/// Builds the tests; the second part is where the compiler objected.
fn compile(tree: &Path) -> Result<(Vec<Story>, BTreeSet<(String, usize)>), String> {
    let packages = [
        "baio-words",
        "baio-memory",
        "baio-ring",
        "baio-client",
        "baio-engine",
        "baio-storage",
        "baio-broker",
        "baio",
        "baio-sim",
    ];
    let mut command = Command::new("cargo");
    command.current_dir(tree).args([
        "test",
        "--no-run",
        "--locked",
        "--message-format=json",
        "--lib",
        "--tests",
    ]);
    for package in packages {
        command.args(["-p", package]);
    }
    let output = command
        .env("RUSTFLAGS", "--cap-lints warn -A warnings")
        .env("CARGO_TARGET_DIR", tree.join("../build"))
        .stderr(std::process::Stdio::null())
        .output()
        .map_err(|e| format!("cargo: {e}"))?;
    let (mut tests, mut bad) = (Vec::new(), BTreeSet::new());
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else {
            continue;
        };
        if message["reason"] == "compiler-message" && message["message"]["level"] == "error" {
            collect(&message["message"], &mut bad);
        }
        if message["reason"] == "compiler-artifact"
            && message["profile"]["test"] == true
            && let Some(program) = message["executable"].as_str()
        {
            let folder = Path::new(message["manifest_path"].as_str().unwrap_or(""))
                .parent()
                .unwrap_or(tree);
            let package = folder.file_name().unwrap_or_default().to_string_lossy();
            let binary = Story {
                name: format!("{package}::{}", message["target"]["name"].as_str().unwrap_or("")),
                program: program.into(),
                folder: folder.to_path_buf(),
                tests: Vec::new(),
            };
            match message["target"]["kind"][0] == "test" {
                true => tests.extend(binary.apart()?),
                false => tests.push(binary),
            }
        }
    }
    if !output.status.success() && bad.is_empty() {
        return Err("cargo test --no-run failed without a place; run it in the tree".into());
    }
    Ok((tests, bad))
}

/// A path without `..`: a test may include a source file by its path.
fn plain(file: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in file.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

fn collect(message: &serde_json::Value, bad: &mut BTreeSet<(String, usize)>) {
    for span in message["spans"].as_array().into_iter().flatten() {
        let file = plain(span["file_name"].as_str().unwrap_or(""));
        let (from, to) = (
            span["line_start"].as_u64().unwrap_or(0),
            span["line_end"].as_u64().unwrap_or(0),
        );
        if span["is_primary"] == true {
            bad.extend((from..=to.min(from + 3)).map(|line| (file.clone(), line as usize)));
        }
    }
}
