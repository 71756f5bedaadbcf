//! 10,000 durable writes of 4 KiB from eight tasks. To measure, add `--release`.
//!
//! ```sh
//! cargo run -p baio --example durable -- /tmp/file
//! ```

use baio::{Durability, File, Link, Local, Result};
use tokio::task::{LocalSet, spawn_local};

fn main() -> Result<()> {
    let path = std::env::args().nth(1).expect("usage: durable FILE");
    let link = Local::new()?;
    let tasks = async {
        let file = File::options().write().create().direct().open(&link, path).await?;
        let write = async |file: File<Local>, task: u64| {
            let mut page = file.buffer(4096)?;
            for nth in (task..10_000).step_by(8) {
                let written = file.write_all_at(nth * 4096, page).durable(Durability::Data);
                page = written.await?.buffer;
            }
            Result::Ok(())
        };
        let tasks: Vec<_> = (0..8).map(|task| spawn_local(write(file.clone(), task))).collect();
        for task in tasks {
            task.await.expect("it does not panic")?;
        }
        Result::Ok(())
    };
    link.block_on(LocalSet::new().run_until(tasks))??;
    link.close()
}
