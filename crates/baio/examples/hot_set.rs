//! Reads pages of a file a million times, mostly the same ones, without copying them. To measure, add `--release`.
//!
//! ```sh
//! head -c 100M /dev/urandom > /tmp/file
//! cargo run -p baio --example hot_set -- /tmp/file
//! ```
//!
//! Each of two threads has a link with a cache of its own, and four readers: they share nothing.

use baio::{File, Link, Local, Options, Result};
use futures_util::future::try_join_all;

fn read(readers: std::ops::Range<u64>) -> Result<u64> {
    let path = std::env::args().nth(1).expect("usage: hot_set FILE");
    let link = Local::new_with(&Options::default().with_cache(32 << 20))?;
    link.block_on(async {
        let file = File::options().cached().open(&link, path).await?;
        let pages = (file.size().await? / 4096).max(1);
        let reader = async |mut random: u64, mut sum: u64| {
            for _ in 0..125_000 {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                // Fifteen of sixteen reads are of the first tenth.
                let page = (random >> 20) % pages / if random >> 60 > 0 { 10 } else { 1 };
                let lent = file.read_pages(page..page + 1).await?;
                sum += lent.pages().map(|page| u64::from(page[0])).sum::<u64>();
            }
            Result::Ok(sum)
        };
        Ok(try_join_all(readers.map(|nth| reader(nth, 0))).await?.iter().sum())
    })?
}

fn main() {
    let other = std::thread::spawn(|| read(4..8).unwrap());
    let sum = read(0..4).unwrap() + other.join().unwrap();
    println!("the sum of their first bytes is {sum}");
}
