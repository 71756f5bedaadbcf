//! Seed 001 §4: direct and buffered I/O on the same data. A segment is written and read past our cache and through it, in an order drawn at
//! random; whatever was written last is what either way reads.

use baio::{Identity, Link, LinkOptions, Local, Segment};
use baio_console::failure::Failure;
use baio_stress::Random;
use serde_json::json;

use crate::figures::interrupt;
use crate::report::files::new_segment;
use crate::report::findings::Findings;
use crate::report::marks::Bound;
use crate::report::setting::{Setting, storage_failure};

const PAGE: u64 = 4096;
/// Four times what the cache has.
const BYTES: u64 = 16 << 20;
const CACHE: usize = 4 << 20;
const PAGES_MAX: u64 = 16;

/// Which way a request goes, and what it does.
const KINDS: [(&str, bool, bool); 4] = [
    ("direct reads", false, false),
    ("cached reads", true, false),
    ("direct writes", false, true),
    ("cached writes", true, true),
];

pub(crate) fn run(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let rounds = setting.either(500, 5_000);
    let path = setting.dir.join("mixed-paths.img");
    let options = LinkOptions {
        identity: Identity::effective(),
        ..LinkOptions::default()
    };
    let made = new_segment(&path, "mixed", BYTES, &options.with_cache(CACHE));
    let (volume, segment) = made.map_err(storage_failure)?;
    let told = mix(&segment, rounds)?;
    drop(segment);
    volume.close().map_err(storage_failure)?;

    findings.lines.push(format!(
        "{rounds} requests of 4 to {} KiB at random places of {} MiB, past our cache of {} MiB and through it; each read is compared with what \
         was written last",
        (PAGES_MAX * PAGE) >> 10,
        BYTES >> 20,
        CACHE >> 20
    ));
    for ((name, _, writes), (made, wrong)) in KINDS.iter().zip(told) {
        findings.figure("one segment, both ways", name, "", made as f64, None);
        if !writes {
            let figure = format!("{name} that differ");
            let none = Some(Bound::AtMost(0.0));
            findings.figure("one segment, both ways", &figure, "", wrong as f64, none);
            findings.is_wrong |= wrong > 0;
        }
    }
    let kinds = KINDS.iter().zip(told);
    let rows: Vec<_> = kinds
        .map(|((name, ..), (made, wrong))| json!({ "row": name, "requests": made, "wrong": wrong }))
        .collect();
    findings.parts.push(json!({ "part": "both ways", "rows": rows }));
    Ok(())
}

/// Of each kind how many were made, and how many gave other bytes than they should.
fn mix(segment: &Segment<Local>, rounds: u64) -> Result<[(u64, u64); 4], Failure> {
    let mut random = Random::new(41);
    // A new segment reads as zeros.
    let mut written = vec![0; BYTES as usize];
    let mut told = [(0, 0); 4];
    for _ in 0..rounds {
        interrupt::refuse()?;
        let kind = random.below(KINDS.len() as u64) as usize;
        let (_, is_cached, writes) = KINDS[kind];
        let pages = 1 + random.below(PAGES_MAX);
        let at = random.below(BYTES / PAGE - pages + 1) * PAGE;
        let place = at as usize..(at + pages * PAGE) as usize;
        let mut buffer = segment.buffer(place.len()).map_err(storage_failure)?;
        if writes {
            random.fill(&mut buffer);
            written[place.clone()].copy_from_slice(&buffer);
        }
        let request = if writes {
            segment.write_at(at, buffer)
        } else {
            segment.read_at(at, buffer)
        };
        let request = if is_cached { request.cached() } else { request };
        let done = request.wait().map_err(|failed| storage_failure(failed.error))?;
        told[kind].0 += 1;
        told[kind].1 += u64::from(done.buffer[..] != written[place]);
    }
    Ok(told)
}
