//! What a request costs when many tasks wait for few slots: 100 tasks and 100,000 over 128 slots, on both links, in turn. The mark: at
//! most 1.2.
//!
//!     cargo bench -p baio --bench slots

use std::path::Path;
use std::time::{Duration, Instant};

use baio::{EngineOptions, File, Link, LinkOptions, Local, Mode, Remote};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

/// Forty of each of 100,000 tasks: it is the cost of a request that is compared, and a task is made and ended once.
const REQUESTS: usize = 4_000_000;
const ROUNDS: usize = 5;

fn main() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    std::fs::write(&path, vec![7; 64 << 10]).expect("a file");
    let options = LinkOptions {
        engine: EngineOptions {
            slots: 128,
            ..EngineOptions::default()
        },
        ..LinkOptions::default()
    };
    compare("Local", &Local::new_with(&options).expect("a link"), &path);
    compare("Remote", &Remote::new_with(&options).expect("a link"), &path);
}

fn compare<L: Link>(name: &str, link: &L, path: &Path) {
    let file = File::options().open(link, path).wait().expect("the file");
    run(link, &file, 100);
    for _ in 0..ROUNDS {
        let (few, many) = (run(link, &file, 100), run(link, &file, 100_000));
        let each = |took: Duration| took.as_nanos() as f64 / REQUESTS as f64;
        let ratio = each(many) / each(few);
        println!(
            "{name:6} 100 tasks {:6.0} ns a request, 100,000 tasks {:6.0}, ratio {ratio:.2}",
            each(few),
            each(many)
        );
    }
}

fn run<L: Link>(link: &L, file: &File<L>, tasks: usize) -> Duration {
    let task = || async {
        let mut buffer = vec![0; 64];
        for _ in 0..REQUESTS / tasks {
            let read = file.read_at(0, buffer).mode(Mode::Kernel).await;
            buffer = read.expect("a read").buffer;
        }
    };
    let mut all: FuturesUnordered<_> = (0..tasks).map(|_| task()).collect();
    let begun = Instant::now();
    link.block_on(async { while all.next().await.is_some() {} })
        .expect("the link");
    begun.elapsed()
}
