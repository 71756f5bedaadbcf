//! How long one poll holds the thread of a tokio runtime, in processor time, while a large segment is made and resized and many are
//! listed on a `Local` link: PATH, GiB of the segment, segments of the list. PATH is made, and deleted at the end. To measure, add `--release`.
//!
//! ```sh
//! cargo run -p baio --features tokio --example longest_poll -- /tmp/longest 1 100
//! ```
//!
//! Both kinds of polls count: of the operation, and of the link's driver, which makes the turns.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use baio::{CreateOptions, FormatOptions, Link, Local, ResizeOptions, Result};
use rustix::time::{ClockId, clock_gettime};

fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// A future, and how long its longest poll was.
struct Timed<F>(Pin<Box<F>>, Rc<Cell<Duration>>);

impl<F: Future> Future for Timed<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let begin = thread_time();
        let polled = self.0.as_mut().poll(context);
        self.1.set(self.1.get().max(thread_time() - begin));
        polled
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = arguments.first().expect("usage: longest_poll PATH [GIB] [SEGMENTS]");
    let number = |at: usize, default| {
        arguments
            .get(at)
            .map_or(default, |text| text.parse().expect("a number"))
    };
    let (bytes, segments) = (number(1, 1_u64) << 30, number(2, 1000_u64));
    let format = FormatOptions {
        size_bytes: Some(bytes + bytes / 8 + segments * 3 * 8192 + (1 << 30)),
        segments: Some(segments + 100),
        ..FormatOptions::default()
    };
    baio::format(path, &format)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let local = tokio::task::LocalSet::new();
    let done = local.block_on(&runtime, async {
        let link = Local::open(path)?;
        let longest = Rc::new(Cell::new(Duration::ZERO));
        let driver = Timed(Box::pin(link.drive_tokio()), Rc::clone(&longest));
        let driver = tokio::task::spawn_local(driver);
        let tell = |what: &str| println!("{what}: the longest poll {:?}", longest.replace(Duration::ZERO));
        let timed = |work| Timed(Box::pin(work), Rc::clone(&longest));
        timed(link.create_segment("large", &CreateOptions::of_size(bytes))).await?;
        tell("create");
        timed(link.resize_segment("large", &ResizeOptions::to_size(bytes + bytes / 8))).await?;
        tell("resize by an eighth");
        for first in (0..segments).step_by(32) {
            let names = first..segments.min(first + 32);
            let made = names.map(|name| link.create_segment(&name.to_string(), &CreateOptions::of_size(4096)));
            futures_util::future::try_join_all(made).await?;
        }
        longest.set(Duration::ZERO);
        let listed = Timed(Box::pin(link.list()), Rc::clone(&longest)).await?;
        tell(&format!("list of {}", listed.len()));
        driver.abort();
        link.close()
    });
    std::fs::remove_file(path).expect("it was made");
    done
}
