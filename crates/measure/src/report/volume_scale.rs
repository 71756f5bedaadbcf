//! A volume of 4 TiB, sparse, with as many segments as asked for: how many bucket pairs an open by name reads, how long an
//! open takes after a clean close and after a crash (against dd over the same ranges), what a durable create costs, and how
//! much memory the open volume takes.
//!
//! The segments are made by real creates, many at a time. Before that, zeroes are written over the inode table and over the
//! blocks to be given away, where they stand for "never written" as a hole does: else the volume file would be made of as
//! many extents as segments, and the file system would be measured.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use baio::FormatOptions;
use baio_console::failure::Failure;
use baio_storage::segment::layout::Layout;
use baio_stress::drop_pages_of;
use serde_json::json;

use crate::figures::command_line::CommandLine;
use crate::figures::worker::many_segments::{Filled, Job, Use, Used};
use crate::figures::{interrupt, median, worker};
use crate::report::findings::Findings;
use crate::report::marks::Bound;
use crate::report::setting::{Setting, storage_failure};

const SIZE_BYTES: u64 = 4 << 40;
const BLOCK_BYTES: u64 = 4096;
const PIECE: usize = 1 << 20;

/// Segments, if nobody says how many.
pub(super) const SEGMENTS: u64 = 20_000;
pub(super) const SEGMENTS_QUICK: u64 = 2_000;

/// What the project has set itself.
const PAIRS_MAX: f64 = 1.15; // 1.1, rounded
const CLEAN_SECONDS_MAX: f64 = 1.0;
const DD_RATIO_MIN: f64 = 0.7;
/// Zeroing and its flush are two of them.
const ROUNDS_MAX: f64 = 4.5; // 4, rounded

pub(crate) fn run(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let (rounds, opens) = setting.either((1, 10_000), (3, 1_000_000));
    let path = setting.dir.join("scale.volume");
    Scale(findings).measure(&path, setting.segments, rounds, opens)
}

struct Scale<'a>(&'a mut Findings);

impl Scale<'_> {
    /// Figures and their units; of the first of them what it is to be.
    fn tell(&mut self, name: &str, bound: Option<Bound>, figures: &[(&str, &str, f64)], part: serde_json::Value) {
        let mut bound = bound;
        for &(figure, unit, value) in figures {
            self.0.figure(name, figure, unit, value, bound.take());
        }
        self.0.parts.push(json!({ "name": name, "values": part }));
    }

    fn measure(&mut self, path: &Path, segments: u64, rounds: usize, opens: u64) -> Result<(), Failure> {
        let layout = make(path, segments)?;
        let filled: Filled = ask(&Job::Fill {
            path: path.to_owned(),
            segments,
        })?;
        let table_bytes = layout.table_bytes();
        self.tell(
            "the volume",
            None,
            &[
                ("durable creates", "1/s", segments as f64 / filled.seconds),
                ("inode table", "MiB", mib(table_bytes)),
            ],
            json!({ "segments": segments, "table_bytes": table_bytes, "filled_per_second": segments as f64 / filled.seconds }),
        );
        let look = Use {
            path: path.to_owned(),
            segments,
            names: segments.min(20_000),
            opens: 0,
            creates: 0,
            close: true,
        };
        let clean = self.clean_opens(&look, rounds)?;
        self.dirty_opens(&look, rounds, &layout)?;
        let long: Used = ask(&Job::Use(Use {
            opens,
            creates: 200,
            ..look.clone()
        }))?;
        self.in_use(&clean, &long, opens);
        let counts = [clean.segments, long.segments];
        self.0.is_wrong = counts != [segments; 2];
        if self.0.is_wrong {
            let wrong = format!("WRONG: the volume counts {counts:?} segments, of {segments}");
            self.0.lines.push(wrong);
        }
        Ok(())
    }

    fn clean_opens(&mut self, look: &Use, rounds: usize) -> Result<Used, Failure> {
        let mut used: Used = ask(&Job::Use(look.clone()))?;
        let mut seconds = vec![used.open_seconds];
        for _ in 1..rounds.max(2) {
            used = ask(&Job::Use(look.clone()))?;
            seconds.push(used.open_seconds);
        }
        let open = median(&seconds);
        self.tell(
            "an open after a clean close",
            Some(Bound::AtMost(CLEAN_SECONDS_MAX)),
            &[
                ("time", "s", open),
                ("read", "MiB", mib(used.open_bytes_read)),
                ("the close", "s", used.close_seconds.unwrap_or(f64::NAN)),
            ],
            json!({ "seconds": open, "bytes_read": used.open_bytes_read, "close_seconds": used.close_seconds }),
        );
        self.tell(
            "an open by name",
            Some(Bound::AtMost(PAIRS_MAX)),
            &[
                ("bucket pairs", "", used.pairs_per_name),
                ("requests", "", used.requests_per_name),
            ],
            json!({ "pairs": used.pairs_per_name, "requests": used.requests_per_name, "names": look.names }),
        );
        Ok(used)
    }

    /// In turn with dd over the inode table; every crash leaves some buckets to be healed.
    fn dirty_opens(&mut self, look: &Use, rounds: usize, layout: &Layout) -> Result<(), Failure> {
        let dirty = Use {
            names: 0,
            creates: 50,
            close: false,
            ..look.clone()
        };
        let dd = CommandLine::of(vec![
            "dd".to_owned(),
            format!("if={}", look.path.display()),
            "of=/dev/null".to_owned(),
            "bs=1M".to_owned(),
            "iflag=direct,skip_bytes,count_bytes".to_owned(),
            "status=none".to_owned(),
            format!("skip={}", layout.table_at()),
            format!("count={}", layout.table_bytes()),
        ]);
        self.0.lines.push(format!("the peer: {dd}"));
        let _: Used = ask(&Job::Use(dirty.clone()))?;
        let (mut ratios, mut rates) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let finished = dd.finish();
            let finished = finished.map_err(|said| Failure::new("report", "EIO", said).on("dd"))?;
            let dd_seconds = finished.ended.elapsed.as_secs_f64();
            let used: Used = ask(&Job::Use(dirty.clone()))?;
            let rate = |seconds: f64| layout.table_bytes() as f64 / seconds;
            rates.push(rate(used.open_seconds));
            ratios.push(dd_seconds / used.open_seconds);
        }
        let (rate, ratio) = (median(&rates), median(&ratios));
        self.tell(
            "an open after a crash",
            Some(Bound::AtLeast(DD_RATIO_MIN)),
            &[
                ("of dd's rate", "", ratio),
                ("the inode table", "MiB/s", rate / f64::from(1 << 20)),
            ],
            json!({ "bytes_per_second": rate, "ratio_to_dd": ratio, "ratios": ratios }),
        );
        Ok(())
    }

    /// Both after an open that read a snapshot and after one that read the table.
    fn in_use(&mut self, clean: &Used, used: &Used, opens: u64) {
        let segments = used.segments;
        let [reads, writes, syncs] = used.create_kinds;
        self.tell(
            "a durable create in the open volume",
            Some(Bound::AtMost(ROUNDS_MAX)),
            &[
                ("rounds of requests", "", used.create_rounds),
                ("reads", "", reads),
                ("writes", "", writes),
                ("syncs", "", syncs),
                ("time", "us", used.create_us),
            ],
            json!({ "rounds": used.create_rounds, "reads": reads, "writes": writes, "syncs": syncs, "us": used.create_us }),
        );
        let of = |used: &Used| used.open_rss.saturating_sub(used.engine_rss);
        let (clean_volume, volume) = (of(clean), of(used));
        let growth = used.later_rss as i64 - used.used_rss as i64;
        self.tell(
            "memory of the open volume",
            None,
            &[
                ("after a clean close", "MiB", mib(clean_volume)),
                ("after a crash, with the buffers that read the table", "MiB", mib(volume)),
                ("more for each million segments", "MiB", mib(volume) * 1e6 / segments as f64),
                ("an engine alone", "MiB", mib(used.engine_rss)),
                ("growth by many opens and closes", "MiB", growth as f64 / f64::from(1 << 20)),
            ],
            json!({ "volume_bytes": volume, "volume_bytes_clean": clean_volume, "engine_bytes": used.engine_rss, "growth_bytes": growth, "opens": opens }),
        );
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn ask<T: serde::de::DeserializeOwned>(job: &Job) -> Result<T, Failure> {
    worker::ask(&worker::Job::VolumeScale(job.clone())).map_err(|why| Failure::new("report", "EIO", why))
}

/// The volume of so many segments, with room for the creates that are measured, too.
fn format_of(segments: u64) -> FormatOptions {
    FormatOptions {
        size_bytes: Some(SIZE_BYTES),
        segments: Some(segments.saturating_add(segments / 50).max(16)),
        ..FormatOptions::default()
    }
}

/// Where everything is in it.
fn layout_of(format: &FormatOptions) -> Result<Layout, Failure> {
    let planned = Layout::plan(SIZE_BYTES, SIZE_BYTES, format.block_size, format.segments);
    planned.map(|(_, layout)| layout).map_err(|error| {
        Failure::new("report", "EINVAL", error.to_string())
            .on("--segments")
            .needing("as many segments as a volume of 4 TiB has room for")
            .cured_by("choose fewer")
    })
}

/// Where its segments will write: from which byte on, and how many.
fn ranges_of(format: &FormatOptions, layout: &Layout) -> [(u64, u64); 3] {
    let data = format.segments.unwrap_or(0).saturating_mul(BLOCK_BYTES);
    [
        (layout.table_at(), layout.table_bytes()),
        (layout.mirror_at(), layout.table_bytes()),
        (layout.data_at(), data),
    ]
}

/// Bytes that the volume of so many segments takes of its sparse file; 0 where there is no such volume, which is told when it is made.
pub(super) fn room(segments: u64) -> u64 {
    let format = format_of(segments);
    let ranges = layout_of(&format).map(|layout| ranges_of(&format, &layout));
    let sum = |ranges: [(u64, u64); 3]| ranges.iter().fold(0_u64, |sum, (_, len)| sum.saturating_add(*len));
    ranges.map_or(0, sum)
}

/// Formats the volume and writes zeroes where its segments will write.
fn make(path: &Path, segments: u64) -> Result<Layout, Failure> {
    let format = format_of(segments);
    let layout = layout_of(&format)?;
    baio::format(path, &format).map_err(storage_failure)?;
    let told = |error: std::io::Error| Failure::from_io("report", &error).on(path.display().to_string());
    let file = OpenOptions::new().write(true).open(path).map_err(told)?;
    // It may take minutes.
    write_zeroes(&file, &ranges_of(&format, &layout), &mut interrupt::refuse, told)?;
    // And none of it in the kernel's cache.
    drop_pages_of(path).map_err(told)?;
    Ok(layout)
}

/// In pieces. Before each it asks whether it may go on.
fn write_zeroes(
    file: &File,
    ranges: &[(u64, u64)],
    go_on: &mut dyn FnMut() -> Result<(), Failure>,
    told: impl Fn(std::io::Error) -> Failure,
) -> Result<(), Failure> {
    let zeros = vec![0; PIECE];
    for &(start, len) in ranges {
        let mut at = 0;
        while at < len {
            go_on()?;
            let some = (len - at).min(PIECE as u64);
            file.write_all_at(&zeros[..some as usize], start + at).map_err(&told)?;
            at += some;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroes_are_written_until_somebody_wants_an_end() {
        let file = tempfile::tempfile().unwrap();
        let told = |error: std::io::Error| Failure::from_io("report", &error);
        let mut asked = 0;
        let mut go_on = || {
            asked += 1;
            match asked {
                3 => Err(Failure::new("report", "EINTR", "interrupted")),
                _ => Ok(()),
            }
        };
        let piece = PIECE as u64;
        assert!(write_zeroes(&file, &[(0, piece), (8 * piece, 4 * piece)], &mut go_on, told).is_err());
        assert_eq!(file.metadata().unwrap().len(), 9 * piece);
        write_zeroes(&file, &[(0, 10)], &mut || Ok(()), told).unwrap();
    }
}
