//! Seed 002: dd with asynchronous I/O. A file is read in order and directly, in blocks of 16 KiB to 1 MiB, by GNU dd, which has one block under way, and
//! by `baio dd` with 4 and 16. Theirs had "a rather large increase in throughput for block sizes under 128 KB", at a half to a third of the processor time,
//! and reached the peak with smaller blocks.
//!
//! The smaller blocks, 512 bytes to 8 KiB, are ours: the document has none.

use std::path::Path;

use baio_console::failure::Failure;
use baio_engine::{Caching, Descriptions, File, Open};
use baio_stress::Measurement;

use crate::figures::dd::Copy;
use crate::figures::middle;
use crate::report::comparison::{Peer, Side};
use crate::report::findings::Findings;
use crate::report::marks::{Mark, cpu, rate};
use crate::report::places::Site;
use crate::report::setting::Setting;

const KIB: u64 = 1 << 10;

/// Bytes of a block, and whether the quick report has it.
const SIZES: [(u64, bool); 12] = [
    (512, false),
    (KIB, false),
    (2 * KIB, false),
    (4 * KIB, true),
    (8 * KIB, false),
    (16 * KIB, true),
    (32 * KIB, false),
    (64 * KIB, true),
    (128 * KIB, false),
    (256 * KIB, true),
    (512 * KIB, false),
    (1024 * KIB, true),
];

/// Blocks from here on are the document's.
const DOCUMENTS: u64 = 16 * KIB;

const DEPTH: u32 = 16;

/// All of a side: bytes of a block, and bytes a second.
type Curve = Vec<(u64, f64)>;

/// What is read, and how often.
struct Reading<'a> {
    path: &'a Path,
    bytes: u64,
    /// At most so many blocks.
    blocks_max: u64,
    rounds: usize,
}

pub(crate) fn run(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let bytes = (setting.working_set / 4).max(1 << 20);
    let (blocks_max, rounds) = setting.either((4096, 1), (8192, 3));
    let site = Site::file_to_read(setting, "request-size", bytes)?;
    let bytes = site.bytes;
    let reading = Reading {
        path: &site.path,
        bytes,
        blocks_max,
        rounds,
    };
    findings.lines.push(format!(
        "{} MiB in order to /dev/null, or the first {blocks_max} blocks of it, nothing of it cached; {rounds} rounds, median of the ratios; \
         a request is a block",
        bytes >> 20
    ));
    let least = least_block(&site.path);
    let mut curves: Vec<(String, Curve)> = Vec::new();
    for (size, is_quick) in SIZES {
        if setting.quick && !is_quick {
            continue;
        }
        if size < least {
            let name = format!("blocks of {size} bytes");
            findings.skip(&name, &format!("direct reads there have at least {least} bytes"));
            continue;
        }
        reading.compare(size, &mut curves, findings)?;
    }
    for (name, curve) in &curves {
        // The small ones would make no peak.
        let documents = curve.iter().filter(|(size, _)| *size >= DOCUMENTS);
        if let Some(size) = near_peak(documents.copied()) {
            let said = format!("KiB is the smallest block with 97 % of the peak of {name}");
            findings.count(&said, &format!("near_peak_kib_{name}"), size as f64 / KIB as f64, None);
        }
    }
    Ok(())
}

/// The smallest of the document's blocks with which a side has 97 % of its peak.
fn near_peak(curve: impl Iterator<Item = (u64, f64)> + Clone) -> Option<u64> {
    let peak = curve.clone().map(|(_, rate)| rate).fold(0.0, f64::max);
    curve
        .filter(|(_, rate)| *rate >= 0.97 * peak)
        .map(|(size, _)| size)
        .min()
}

/// Bytes of the smallest direct read there.
fn least_block(path: &Path) -> u64 {
    let open = Open {
        descriptions: Descriptions::Only(Caching::Direct),
        ..Open::read()
    };
    // Who cannot open it will say why.
    File::open(path, &open).map_or(0, |file| file.direct_limits().offset.into())
}

fn marks(size: u64) -> Vec<Mark> {
    match size / KIB {
        4 => vec![rate(2.5), cpu(0.5)],
        16 => vec![rate(1.9), cpu(0.5)],
        _ => Vec::new(),
    }
}

impl Reading<'_> {
    fn side(&self, name: &str, size: u64, direct: bool, depth: Option<u32>) -> Side {
        let copy = Copy {
            path: self.path.to_owned(),
            size,
            blocks: (self.bytes / size).min(self.blocks_max),
            direct,
            depth,
        };
        Side::by(name, copy).cold(self.path)
    }

    fn compare(&self, size: u64, curves: &mut Vec<(String, Curve)>, findings: &mut Findings) -> Result<(), Failure> {
        let block = if size < KIB {
            format!("{size} bytes")
        } else {
            format!("{} KiB", size / KIB)
        };
        let ours = self.side(
            &format!("blocks of {block}, baio dd, {DEPTH} in flight"),
            size,
            true,
            Some(DEPTH),
        );
        let peers = vec![
            Peer::new(self.side("dd, direct", size, true, None), marks(size)),
            Peer::new(self.side("dd, buffered", size, false, None), []),
            Peer::new(self.side("baio dd, 4 in flight", size, true, Some(4)), []),
        ];
        let turns = findings.compare(self.rounds, ours, peers)?;
        let mut add = |name: &str, runs: &[Measurement]| {
            let point = (size, middle(runs, |run| run.bytes_per_second));
            match curves.iter_mut().find(|(known, _)| known == name) {
                Some((_, curve)) => curve.push(point),
                None => curves.push((name.to_owned(), vec![point])),
            }
        };
        add(&format!("baio dd, {DEPTH} in flight"), &turns.ours);
        turns.peers().for_each(|(name, runs)| add(name, runs));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_block_near_the_peak_is_found() {
        let curve = [(16, 50.0), (32, 97.0), (64, 96.0), (128, 100.0)];
        assert_eq!(near_peak(curve.into_iter()), Some(32));
        assert_eq!(near_peak(std::iter::empty()), None);
    }
}
