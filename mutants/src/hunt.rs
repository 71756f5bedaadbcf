//! Which tests reach which mutants, and which mutants live.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::Asked;
use crate::find::Mutant;
use crate::weave::Story;

enum End {
    Passed,
    Failed,
    TooLong,
}

fn run(story: &Story, on: u32, seen: Option<&Path>, limit: Duration) -> End {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(&story.program);
    command
        .args(&story.tests)
        .current_dir(&story.folder)
        .env("BAIO_MUTANT", on.to_string())
        .env("RUST_BACKTRACE", "0");
    command.env("PROPTEST_FAILURE_PERSISTENCE", "off").process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if !story.tests.is_empty() {
        command.arg("--exact");
    }
    if let Some(seen) = seen {
        command.env("BAIO_MUTANT_SEEN", seen);
    }
    let began = Instant::now();
    let Ok(mut child) = command.spawn() else {
        return End::Failed;
    };
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return End::Passed,
            Ok(Some(_)) | Err(_) => return End::Failed,
            Ok(None) if began.elapsed() > limit => {
                // The whole group: some tests start children.
                let _ = Command::new("kill")
                    .args(["-KILL", "--", &format!("-{}", child.id())])
                    .status();
                let _ = child.wait();
                return End::TooLong;
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Turns the mutants on one by one.
pub fn hunt(place: &Path, sample: &[Mutant], tests: &[Story], asked: &Asked) -> Result<(), String> {
    let judged = if asked.lives { judged(place)? } else { HashMap::new() };
    let (reach, took) = survey(place, tests, asked.longest)?;
    let next = AtomicUsize::new(0);
    let table = Mutex::new(std::fs::File::create(place.join("result.tsv")).map_err(|e| e.to_string())?);
    let counts = Mutex::new(BTreeMap::<(&str, String), usize>::new());
    std::thread::scope(|scope| {
        for _ in 0..asked.jobs {
            scope.spawn(|| {
                while let Some(mutant) = sample.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (verdict, by) = match judged.get(&mutant.label()) {
                        Some(by) => ("killed", by.clone()),
                        None => judge(mutant, tests, &reach, &took),
                    };
                    if verdict == "LIVES" || verdict == "UNSEEN" {
                        println!("{verdict}  {}", mutant.label());
                    }
                    let folder = mutant.file.split('/').skip(1).take(3).collect::<Vec<_>>().join("/");
                    *counts.lock().unwrap().entry((verdict, folder)).or_default() += 1;
                    let mut table = table.lock().unwrap();
                    let _ = writeln!(table, "{}\t{verdict}\t{by}\t{}", mutant.id, mutant.label());
                }
            });
        }
    });
    let counts = counts.into_inner().unwrap();
    let mut totals: BTreeMap<&str, usize> = BTreeMap::new();
    for ((verdict, folder), count) in &counts {
        println!("{verdict:8} {count:5}  {folder}");
        *totals.entry(verdict).or_default() += count;
    }
    let all: usize = totals.values().sum();
    let killed = totals.get("killed").copied().unwrap_or(0) + totals.get("hangs").copied().unwrap_or(0);
    println!(
        "{killed} of {all} found ({:.1} %); {totals:?}",
        100.0 * killed as f64 / all.max(1) as f64
    );
    Ok(())
}

/// Those that an earlier run has killed, and by what. What hung is asked again: a busy machine looks like that too.
fn judged(place: &Path) -> Result<HashMap<String, String>, String> {
    let table = std::fs::read_to_string(place.join("result.tsv")).map_err(|e| format!("no earlier result: {e}"))?;
    Ok(table
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(4, '\t').skip(1);
            let (verdict, by, label) = (fields.next()?, fields.next()?, fields.next()?);
            (verdict == "killed").then(|| (label.to_owned(), by.to_owned()))
        })
        .collect())
}

fn judge(
    mutant: &Mutant,
    tests: &[Story],
    reach: &HashMap<u32, BTreeSet<usize>>,
    took: &[Duration],
) -> (&'static str, String) {
    let Some(reaching) = reach.get(&mutant.id) else {
        return ("UNSEEN", String::new());
    };
    let mut order: Vec<usize> = reaching.iter().copied().collect();
    order.sort_by_key(|&at| took[at]);
    for at in order {
        let limit = took[at] * 6 + Duration::from_secs(20);
        match run(&tests[at], mutant.id, None, limit) {
            End::Passed => {}
            End::Failed => return ("killed", tests[at].name.clone()),
            End::TooLong => return ("hangs", tests[at].name.clone()),
        }
    }
    ("LIVES", String::new())
}

/// Every test once with nothing changed: it must pass, and it tells what it reaches.
#[allow(clippy::type_complexity)]
fn survey(
    place: &Path,
    tests: &[Story],
    longest: Duration,
) -> Result<(HashMap<u32, BTreeSet<usize>>, Vec<Duration>), String> {
    let mut reach: HashMap<u32, BTreeSet<usize>> = HashMap::new();
    let mut took = vec![Duration::ZERO; tests.len()];
    let seen = place.join("seen.txt");
    for (at, test) in tests.iter().enumerate() {
        let _ = std::fs::remove_file(&seen);
        std::fs::write(&seen, "").map_err(|e| e.to_string())?;
        let began = Instant::now();
        match run(test, 0, Some(&seen), longest) {
            End::Passed => {}
            End::Failed => {
                println!("left out, it fails with nothing changed: {}", test.name);
                continue;
            }
            End::TooLong => {
                println!("left out, longer than {longest:?}: {}", test.name);
                continue;
            }
        }
        took[at] = began.elapsed();
        let ids = std::fs::read_to_string(&seen).map_err(|e| e.to_string())?;
        for id in ids.lines().filter_map(|line| line.parse().ok()) {
            reach.entry(id).or_default().insert(at);
        }
    }
    let whole: Duration = took.iter().sum();
    println!("{} stories, {whole:?} in all", tests.len());
    Ok((reach, took))
}
