//! Copies a file into a segment with 32 requests in flight: `cargo run -p baio --example copy -- VOLUME SEGMENT FILE`.

use std::os::unix::fs::FileExt;

use baio::{Access, CreateOptions, Durability, Local, SegmentOp, Wait};

const DEPTH: u64 = 32;
const CHUNK: u64 = 256 << 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [volume, name, path] = &arguments[..] else {
        return Err("usage: copy VOLUME SEGMENT FILE".into());
    };
    let file = std::fs::File::open(path)?;
    let size = file.metadata()?.len();

    let volume = Local::open(volume)?;
    volume.create_segment(name, &CreateOptions::of_size(size))?;
    let segment = volume.open_segment(name, Access::Write)?;

    let (mut at, mut in_flight) = (0, 0);
    while at < size || in_flight > 0 {
        while at < size && in_flight < DEPTH {
            // Direct I/O moves whole blocks; the rest of the last one stays zero.
            let len = CHUNK.min(size - at);
            let mut buffer = segment.buffer(len.next_multiple_of(4096) as usize)?;
            buffer[len as usize..].fill(0);
            file.read_exact_at(&mut buffer[..len as usize], at)?;
            let write = segment.request(SegmentOp::Write { offset: at }, buffer);
            segment.submit(write).map_err(|_| "every slot is taken")?;
            at += len;
            in_flight += 1;
        }
        volume.turn(Wait::one())?;
        while let Some(outcome) = volume.next_outcome() {
            outcome.result?;
            in_flight -= 1;
        }
    }
    volume.block_on(segment.sync(Durability::Data))?.result?;
    Ok(volume.close()?)
}
