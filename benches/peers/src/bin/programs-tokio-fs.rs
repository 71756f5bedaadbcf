//! The three programs by tokio::fs. Its files have one place each and go through memory of their own, so that each task opens the
//! file for itself, and nothing is direct. The hot set is read as tokio::fs itself would, on the pool of blocking threads, but by
//! one call where its files need two (to seek and to read).

use std::io::SeekFrom;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use baio_peers::programs::{CHUNK, DEPTH, Memory, Program, READERS, WRITERS, WRITES, Work, places};
use baio_peers::{BLOCK, Outcome};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

#[tokio::main]
async fn main() -> Outcome {
    let work = Work::from_arguments();
    assert!(!work.direct, "not by tokio::fs");
    let mut tasks = Vec::new();
    match &work.program {
        Program::Copy { from, to } => {
            let bytes = std::fs::metadata(from)?.len();
            let whole = work.to_fill(to, bytes)?;
            let next = Arc::new(AtomicU64::new(0));
            for _ in 0..DEPTH {
                let (mut from, mut to) = (File::open(from).await?, File::options().write(true).open(to).await?);
                from.set_max_buf_size(CHUNK);
                to.set_max_buf_size(CHUNK);
                let next = Arc::clone(&next);
                tasks.push(tokio::spawn(async move {
                    let mut chunk = vec![0; CHUNK];
                    loop {
                        let at = next.fetch_add(CHUNK as u64, Ordering::Relaxed);
                        if at >= bytes {
                            break std::io::Result::Ok(());
                        }
                        from.seek(SeekFrom::Start(at)).await?;
                        from.read_exact(&mut chunk).await?;
                        to.seek(SeekFrom::Start(at)).await?;
                        to.write_all(&chunk).await?;
                        to.flush().await?;
                    }
                }));
            }
            for task in tasks {
                task.await??;
            }
            File::from_std(whole).sync_data().await?;
        }
        Program::Durable { file } => {
            for task in 0..WRITERS {
                let mut file = File::from_std(work.to_write_durably(file)?);
                tasks.push(tokio::spawn(async move {
                    let page = vec![1; BLOCK];
                    for nth in (task..WRITES).step_by(WRITERS as usize) {
                        file.seek(SeekFrom::Start(nth * BLOCK as u64)).await?;
                        file.write_all(&page).await?;
                        file.flush().await?;
                    }
                    Ok(())
                }));
            }
            for task in tasks {
                task.await??;
            }
        }
        Program::HotSet { file } => {
            let file = Arc::new(work.to_read(file)?);
            let pages = file.metadata()?.len() / BLOCK as u64;
            let (mut readers, mut sum) = (Vec::new(), 0);
            for reader in 0..READERS {
                let file = Arc::clone(&file);
                readers.push(tokio::spawn(async move {
                    let (mut page, mut sum) = (Memory::new(BLOCK), 0);
                    for at in places(reader, pages) {
                        let file = Arc::clone(&file);
                        let read = move || file.read_exact_at(&mut page, at).map(|()| page);
                        page = tokio::task::spawn_blocking(read).await??;
                        sum += u64::from(page[0]);
                    }
                    std::io::Result::Ok(sum)
                }));
            }
            for reader in readers {
                sum += reader.await??;
            }
            println!("the sum of their first bytes is {sum}");
        }
    }
    Ok(())
}
