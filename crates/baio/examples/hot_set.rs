//! Reads pages of a file a million times, mostly the same ones, without copying them. To measure, add `--release`.
//!
//! ```sh
//! head -c 100M /dev/urandom > /tmp/file
//! cargo run -p baio --example hot_set -- /tmp/file
//! ```

use baio::{File, Link, LinkOptions, Local, Result};
use futures_util::{StreamExt, TryStreamExt, stream};

fn main() -> Result<()> {
    let path = std::env::args().nth(1).expect("usage: hot_set FILE");
    let link = Local::new_with(&LinkOptions::default().with_cache(64 << 20))?;
    let sum = link.block_on(async {
        let file = File::options().cached().open(&link, path).await?;
        let pages = (file.size().await? / 4096).max(1);
        let readers = stream::iter(0..8_u64).map(async |mut random| {
            let mut sum = 0;
            for _ in 0..125_000 {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                // Nine of ten reads are of the first tenth.
                let among = if random >> 60 > 0 { pages / 10 + 1 } else { pages };
                let page = (random >> 20) % among.min(pages);
                let lent = file.read_pages(page..page + 1).await?;
                sum += lent.pages().map(|bytes| u64::from(bytes[0])).sum::<u64>();
            }
            Result::Ok(sum)
        });
        let sums = readers.buffer_unordered(8);
        sums.try_fold(0, async |all, sum| Ok(all + sum)).await
    })??;
    println!("the sum of their first bytes is {sum}");
    link.close()
}
