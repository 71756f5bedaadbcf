//! glommio: one task a read, on its direct files, whose reads take registered buffers of the executor's. It has no registered
//! files. Not pinned to a processor, as nobody here is.

use std::rc::Rc;

use baio_peers::{BLOCK, Load, Outcome};
use glommio::io::DmaFile;
use glommio::{LocalExecutorBuilder, Placement};

fn main() -> Outcome {
    let load = Rc::new(Load::from_arguments()?);
    let executor = LocalExecutorBuilder::new(Placement::Unbound).ring_depth(256).make()?;
    executor.run(async {
        let file = Rc::new(DmaFile::open(&load.path).await?);
        // Touches the executor's memory once.
        let pages: Vec<_> = (0..load.depth).map(|_| file.alloc_dma_buffer(BLOCK)).collect();
        for mut page in pages {
            page.as_bytes_mut().fill(1);
        }
        load.start();
        let spawn = |_| glommio::spawn_local(read(Rc::clone(&load), Rc::clone(&file)));
        let tasks: Vec<_> = (0..load.depth).map(spawn).collect();
        for task in tasks {
            task.await;
        }
        load.report("glommio");
        Ok(())
    })
}

async fn read(load: Rc<Load>, file: Rc<DmaFile>) {
    while let Some(offset) = load.next() {
        let since = load.clock();
        let result = file.read_at_aligned(offset, BLOCK).await.expect("a read failed");
        load.ended(since, result.len());
    }
}
