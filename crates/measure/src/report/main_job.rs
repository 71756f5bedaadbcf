//! The main job: one volume, segments of two owners, a file that goes in by asynchronous batches and comes back in random
//! order, verified; and what the volume refuses the second owner.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Instant;

use baio::{Access, CreateOptions, Durability, Fault, Identity, Link, Local, Segment};
use baio_console::failure::Failure;
use baio_stress::Random;
use serde::Serialize;
use serde_json::json;

use crate::report::files::{self, Way, new_segment, options_of};
use crate::report::findings::Findings;
use crate::report::setting::{Setting, storage_failure};

/// Bytes that are carried when no input is named.
const DEFAULT_BYTES: usize = 64 << 20;
const CHUNK: usize = 64 << 10;
const DEPTH: usize = 32;

/// Two users. Embedded, the volume believes who the caller says it is; that guards against mistakes only.
const FIRST: Identity = Identity::new(1001, 1001);
const SECOND: Identity = Identity::new(1002, 1002);

pub(crate) fn run(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let bytes = input(setting.input.as_deref())?;
    let path = setting.dir.join("segments.img");
    findings.is_wrong = !carry_both_ways(&path, bytes, findings).map_err(storage_failure)?;

    let refused = refusals(&path).map_err(storage_failure)?;
    let (first, second) = (FIRST.uid, SECOND.uid);
    findings
        .lines
        .push(format!("uid {second} is refused what belongs to uid {first}:"));
    findings.lines.extend(refused.iter().map(Trial::line));
    findings.lines.push(
        "(embedded, this guards against mistakes only: whoever may open the volume's file can do anything)".into(),
    );
    let all_refused = refused.iter().all(|trial| trial.held);
    let part = json!({ "part": "refusals", "refused": refused, "all_refused": all_refused });
    findings.parts.push(part);
    findings.is_wrong |= !all_refused;
    Ok(())
}

/// In order in, in random order back. Whether these were the same bytes.
fn carry_both_ways(path: &Path, mut bytes: Vec<u8>, findings: &mut Findings) -> baio::Result<bool> {
    let (volume, segment) = new_segment(path, "data", bytes.len() as u64, &options_of(FIRST))?;
    let hash = blake3::hash(&bytes);
    let mut order: Vec<usize> = (0..bytes.len().div_ceil(CHUNK)).collect();
    let begun = Instant::now();
    let mut import = pass(&volume, &segment, &order, Way::In, &mut bytes)?;
    segment.sync(Durability::Data).wait()?;
    import.seconds = begun.elapsed().as_secs_f64();
    import.tell("import", "imported and synced", findings);

    let mut random = Random::new(7);
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    bytes.fill(0);
    let read = pass(&volume, &segment, &order, Way::Out, &mut bytes)?;
    read.tell("read", "read back in random order", findings);
    let same = blake3::hash(&bytes) == hash;
    let said = if same { "the same bytes" } else { "DIFFERENT BYTES" };
    findings.lines.push(format!("BLAKE3 {hash}: {said}"));
    drop(segment);
    volume.close()?;
    Ok(same)
}

/// The bytes to carry, a multiple of 4 KiB long: direct I/O moves whole blocks, so the end is filled up with zeroes.
fn input(path: Option<&Path>) -> Result<Vec<u8>, Failure> {
    let own = std::env::current_exe();
    let source = match (path, &own) {
        (Some(path), _) => path,
        (None, Ok(own)) => own,
        (None, Err(error)) => {
            let failure = Failure::from_io("report", error).on("this program's own file");
            return Err(failure.needing("a file to carry").cured_by("name one by --input"));
        }
    };
    // A pipe would be waited for, a device read without end.
    let is_strange = source
        .metadata()
        .is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir());
    if is_strange {
        return Err(Failure::new("report", "EINVAL", "the input is not a regular file")
            .on(source.display().to_string())
            .needing("a regular file")
            .cured_by("copy what it gives into a file, and name that by --input"));
    }
    let mut bytes = std::fs::read(source).map_err(|error| unreadable(source, &error))?;
    if bytes.is_empty() {
        return Err(Failure::new("report", "EINVAL", "the input is empty")
            .on(source.display().to_string())
            .needing("a file of at least one byte")
            .cured_by("name another one by --input, or leave it out"));
    }
    if path.is_none() {
        let once = bytes.len();
        while bytes.len() < DEFAULT_BYTES {
            let more = once.min(DEFAULT_BYTES - bytes.len());
            bytes.extend_from_within(..more);
        }
        bytes.truncate(DEFAULT_BYTES);
    }
    bytes.resize(bytes.len().next_multiple_of(4096), 0);
    Ok(bytes)
}

fn unreadable(source: &Path, error: &std::io::Error) -> Failure {
    let (need, cure) = match error.kind() {
        ErrorKind::NotFound => ("a file that exists", "check the path of --input"),
        ErrorKind::PermissionDenied => ("the permission to read it", "check the permissions"),
        ErrorKind::IsADirectory => ("a file", "name a file in it by --input"),
        _ => (
            "a file that can be read",
            "name another one by --input, or leave it out",
        ),
    };
    let failure = Failure::from_io("report", error).on(source.display().to_string());
    failure.needing(need).cured_by(cure)
}

/// How a pass over the segment went.
struct Pass {
    bytes: usize,
    seconds: f64,
    requests: u64,
    batches: u64,
    in_flight_max: usize,
}

impl Pass {
    fn tell(&self, part: &str, what: &str, findings: &mut Findings) {
        let rate = self.bytes as f64 / self.seconds;
        let what = format!("{} MiB {what}", self.bytes >> 20);
        findings.figure(&what, "throughput", "MB/s", rate / 1e6, None);
        let each = self.requests as f64 / self.batches.max(1) as f64;
        findings.figure(&what, "requests in a batch", "", each, None);
        findings.figure(&what, "requests in flight", "", self.in_flight_max as f64, None);
        findings.parts.push(json!({
            "part": part,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "bytes_per_second": rate,
            "requests": self.requests,
            "batches": self.batches,
            "in_flight_max": self.in_flight_max,
        }));
    }
}

/// Carries the chunks of `bytes` in this order, with a number of requests in flight.
fn pass(volume: &Local, segment: &Segment<Local>, order: &[usize], way: Way, bytes: &mut [u8]) -> baio::Result<Pass> {
    let before = volume.stats().wait()?;
    let (started, len) = (Instant::now(), bytes.len());
    let pieces = order.iter().map(|chunk| (chunk * CHUNK, len.min((chunk + 1) * CHUNK)));
    let pieces = pieces.map(|(start, end)| (start as u64, end - start));
    let in_flight_max = files::carry((volume, segment), way, pieces, DEPTH, |at, piece| {
        let there = &mut bytes[at as usize..][..piece.len()];
        match way {
            Way::In => piece.copy_from_slice(there),
            Way::Out => there.copy_from_slice(piece),
        }
    })?;
    let after = volume.stats().wait()?;
    Ok(Pass {
        bytes: len,
        seconds: started.elapsed().as_secs_f64(),
        requests: after.requests - before.requests,
        batches: after.batches - before.batches,
        in_flight_max,
    })
}

/// Something that the second owner tried, and what came of it.
#[derive(Debug, Serialize)]
struct Trial {
    what: &'static str,
    answer: String,
    /// Was the answer the one that it must be?
    held: bool,
}

impl Trial {
    /// Something that must be refused as a matter of access; any other error would be no proof.
    fn refused(what: &'static str, result: &baio::Result<()>) -> Trial {
        let held = matches!(result, Err(error) if matches!(error.fault, Fault::Access { .. }));
        let answer = match result {
            Ok(()) => "ALLOWED".to_owned(),
            Err(error) => error.fault.to_string(),
        };
        Trial { what, answer, held }
    }

    fn line(&self) -> String {
        let wrong = if self.held { "" } else { ", which is WRONG" };
        format!("  {}: {}{wrong}", self.what, self.answer)
    }
}

/// What the second owner tries with the first one's segment, and what it is told.
fn refusals(path: &Path) -> baio::Result<Vec<Trial>> {
    let volume = Local::open_with(path, &options_of(SECOND))?;
    // A stranger's name is no obstacle: names belong to their owners.
    volume.create_segment("data", &CreateOptions::of_size(1 << 20)).wait()?;
    let seen = volume.list().wait()?;
    let only_own = seen.iter().all(|segment| segment.owner_uid == SECOND.uid);
    let open = |name, access| volume.open_segment_of(FIRST.uid, name, access).wait().map(drop);
    let create = volume
        .create_segment_of(FIRST.uid, "planted", &CreateOptions::of_size(4096))
        .wait()
        .map(drop);
    let present = Trial::refused("open its segment to read", &open("data", Access::Read));
    let mut absent = Trial::refused(
        "learn whether it has a segment of some name",
        &open("no-such-name", Access::Read),
    );
    // Two different answers would tell which names it has.
    absent.held &= absent.answer == present.answer;
    let listed = Trial {
        what: "list its segments",
        answer: if only_own {
            "only its own one is shown"
        } else {
            "ALLOWED"
        }
        .to_owned(),
        held: only_own,
    };
    let refused = vec![
        present,
        Trial::refused("open its segment to write", &open("data", Access::Write)),
        absent,
        Trial::refused("create in its name", &create),
        listed,
    ];
    volume.close()?;
    Ok(refused)
}
