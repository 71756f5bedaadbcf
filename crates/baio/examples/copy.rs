//! Copies a file with 32 requests in flight. To measure, add `--release`.
//!
//! ```sh
//! head -c 20M /dev/urandom > /tmp/from
//! cargo run -p baio --example copy -- /tmp/from /tmp/to
//! cmp /tmp/from /tmp/to
//! ```

use baio::{Durability, File, Link, LinkOptions, Local, Result};
use futures_util::{StreamExt, TryStreamExt, stream};

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let mut word = || words.next().expect("usage: copy FROM TO");
    let mut options = LinkOptions::default();
    options.engine.arena_bytes = 16 << 20; // All of it is touched when it is registered.
    options.engine.register_arena = true;
    let link = Local::new_with(&options)?;
    link.block_on(async {
        let from = File::options().direct().open(&link, word()).await?;
        let new = File::options().write().create().truncate();
        let to = new.direct().open(&link, word()).await?;
        let size = from.size().await?;
        to.truncate(size).await?; // Direct writes that lengthen a file wait for each other.
        let chunks = stream::iter((0..size).step_by(256 << 10)).map(async |at| {
            let read = from.read_at(at, from.buffer(256 << 10)?).await?;
            Result::Ok(to.write_all_at(at, read.buffer).await?.bytes)
        });
        chunks.buffer_unordered(32).try_for_each(async |_| Ok(())).await?;
        to.truncate(size).await?; // The last chunk was written whole.
        to.sync(Durability::Data).await?;
        Ok(())
    })?
}
