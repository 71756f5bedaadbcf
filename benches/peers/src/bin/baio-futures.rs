//! baio as a library: futures on a segment, joined and driven by `block_on`. The segment lies in a volume of its own, which is
//! made when it is missing: `baio-futures VOLUME --make BYTES`.

use baio::{
    Access, Backend, Buffer, CreateOptions, Durability, EngineOptions, FormatOptions, Link, LinkOptions, Local, Segment,
};
use baio_peers::{BLOCK, Load, Outcome};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

const SEGMENT: &str = "pages";
const PIECE: usize = 1 << 20;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [path, option, bytes] = &arguments[..]
        && option == "--make"
    {
        return make(path, bytes.parse()?);
    }
    let load = Load::from_arguments()?;
    let engine = EngineOptions {
        backend: Backend::Uring,
        arena_bytes: 4 << 20,
        register_arena: true,
        ..EngineOptions::default()
    };
    let volume = Local::open_to_read(
        &load.path,
        &LinkOptions {
            engine,
            ..LinkOptions::default()
        },
    )?;
    let segment = volume.open_segment(SEGMENT, Access::Read).wait()?;
    load.set_size(segment.info().size_bytes);
    let mut buffers = Vec::with_capacity(load.depth);
    for _ in 0..load.depth {
        let mut buffer = segment.buffer(BLOCK)?;
        buffer.fill(1);
        buffers.push(buffer);
    }
    load.start();
    let mut tasks: FuturesUnordered<_> = buffers
        .into_iter()
        .map(|buffer| read(&load, &segment, buffer))
        .collect();
    volume.block_on(async { while tasks.next().await.is_some() {} })?;
    load.report("baio-futures");
    Ok(())
}

async fn read(load: &Load, segment: &Segment<Local>, mut buffer: Buffer) {
    while let Some(offset) = load.next() {
        let since = load.clock();
        let done = segment.read_at(offset, buffer).await.expect("a read failed");
        load.ended(since, done.bytes);
        buffer = done.buffer;
    }
}

/// A volume with one segment of so many bytes, all of them written.
fn make(path: &str, bytes: u64) -> Outcome {
    let size_bytes = Some(bytes + bytes / 16 + (64 << 20));
    baio::format(
        path,
        &FormatOptions {
            size_bytes,
            force: true,
            ..FormatOptions::default()
        },
    )?;
    let volume = Local::open(path)?;
    volume.create_segment(SEGMENT, &CreateOptions::of_size(bytes)).wait()?;
    let segment = volume.open_segment(SEGMENT, Access::Write).wait()?;
    let mut buffer = segment.buffer(PIECE)?;
    for (at, byte) in buffer.iter_mut().enumerate() {
        *byte = (at * 31 + at / 251) as u8;
    }
    for offset in (0..bytes).step_by(PIECE) {
        buffer = segment.write_at(offset, buffer).wait()?.buffer;
    }
    segment.sync(Durability::Full).wait()?;
    drop(segment);
    Ok(volume.close()?)
}
