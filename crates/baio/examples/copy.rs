//! Copies a file with 32 requests in flight. To measure, add `--release`.
//!
//! ```sh
//! head -c 20M /dev/urandom > /tmp/from
//! cargo run -p baio --example copy -- /tmp/from /tmp/to
//! cmp /tmp/from /tmp/to
//! ```

use baio::{Durability, File, Link, Local, Result};
use futures_util::{StreamExt, TryStreamExt, stream};

const CHUNK: u64 = 256 << 10;

fn main() -> Result<()> {
    let [_, from, to] = &std::env::args().collect::<Vec<_>>()[..] else {
        panic!("usage: copy FROM TO")
    };
    let link = Local::new()?;
    link.block_on(async {
        let from = File::open(&link, from).await?;
        let to = File::options().write().create().truncate().open(&link, to).await?;
        let size = from.size().await?;
        let chunks = stream::iter((0..size).step_by(CHUNK as usize)).map(async |at| {
            let buffer = from.buffer(CHUNK.min(size - at) as usize)?;
            let read = from.read_exact_at(at, buffer).await?;
            to.write_all_at(at, read.buffer).await?;
            Result::Ok(())
        });
        chunks.buffer_unordered(32).try_collect::<()>().await?;
        to.sync(Durability::Data).await?;
        Ok(())
    })?
}
