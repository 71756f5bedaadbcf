//! The three programs by glommio, in one thread. Its direct files for the copy and for the durable writes, whose reads give memory
//! that cannot be written, so that a copy copies each chunk in memory once; its buffered ones for the hot set.

use std::rc::Rc;

use baio_peers::programs::{CHUNK, Chunks, DEPTH, Program, READERS, WRITERS, WRITES, Work, places};
use baio_peers::{BLOCK, Outcome};
use glommio::io::{BufferedFile, DmaFile, OpenOptions};
use glommio::{LocalExecutorBuilder, Placement};

fn main() -> Outcome {
    let work = Work::from_arguments();
    // Memory that is registered must hold what is under way.
    let builder = LocalExecutorBuilder::new(Placement::Unbound).ring_depth(256);
    let executor = builder.io_memory(4 * DEPTH * CHUNK).make()?;
    executor.run(run(work))
}

async fn run(work: Work) -> Outcome {
    let mut tasks = Vec::new();
    match &work.program {
        Program::Copy { from, to } => {
            let from = DmaFile::open(from).await?;
            let bytes = from.file_size().await?;
            let to = DmaFile::create(to).await?;
            to.pre_allocate(bytes, false).await?;
            let shared = Rc::new((from, to, Chunks::of(bytes)));
            for _ in 0..DEPTH {
                let shared = Rc::clone(&shared);
                tasks.push(glommio::spawn_local(async move {
                    while let Some(at) = shared.2.next() {
                        let read = shared.0.read_at_aligned(at, CHUNK).await.expect("a read failed");
                        let mut chunk = shared.1.alloc_dma_buffer(CHUNK);
                        chunk.as_bytes_mut().copy_from_slice(&read);
                        drop(read);
                        let written = shared.1.write_at(chunk, at).await;
                        assert_eq!(written.expect("a write failed"), CHUNK);
                    }
                }));
            }
            for task in tasks {
                task.await;
            }
            shared.1.fdatasync().await?;
        }
        Program::Durable { file } => {
            let mut options = OpenOptions::new();
            options.write(true).create(true).custom_flags(libc::O_DSYNC);
            let file = Rc::new(options.dma_open(file).await?);
            for task in 0..WRITERS {
                let file = Rc::clone(&file);
                tasks.push(glommio::spawn_local(async move {
                    let page = Rc::new({
                        let mut page = file.alloc_dma_buffer(BLOCK);
                        page.as_bytes_mut().fill(1);
                        page
                    });
                    for nth in (task..WRITES).step_by(WRITERS as usize) {
                        let written = file.write_rc_at(Rc::clone(&page), nth * BLOCK as u64).await;
                        assert_eq!(written.expect("a write failed"), BLOCK);
                    }
                }));
            }
            for task in tasks {
                task.await;
            }
        }
        Program::HotSet { file } => {
            let file = Rc::new(BufferedFile::open(file).await?);
            let pages = file.file_size().await? / BLOCK as u64;
            let (mut readers, mut sum) = (Vec::new(), 0);
            for reader in 0..READERS {
                let file = Rc::clone(&file);
                readers.push(glommio::spawn_local(async move {
                    let mut sum = 0;
                    for at in places(reader, pages) {
                        let page = file.read_at(at, BLOCK).await.expect("a read failed");
                        sum += u64::from(page[0]);
                    }
                    sum
                }));
            }
            for reader in readers {
                sum += reader.await;
            }
            println!("the sum of their first bytes is {sum}");
        }
    }
    Ok(())
}
