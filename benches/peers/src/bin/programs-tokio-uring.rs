//! The three programs by tokio-uring, in one thread, with registered buffers and the ring's flags of its random reads.

use std::rc::Rc;

use baio_peers::programs::{CHUNK, Chunks, DEPTH, Memory, Program, READERS, WRITERS, WRITES, Work, places};
use baio_peers::{BLOCK, Outcome};
use tokio_uring::buf::fixed::{FixedBuf, FixedBufRegistry};
use tokio_uring::buf::{IoBuf, IoBufMut};
use tokio_uring::fs::File;

struct Fixed(Memory);

// SAFETY: the memory is a box's, which stays where it is, and all of it was written once.
unsafe impl IoBuf for Fixed {
    fn stable_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }

    fn bytes_init(&self) -> usize {
        self.0.len()
    }

    fn bytes_total(&self) -> usize {
        self.0.len()
    }
}

// SAFETY: as above.
unsafe impl IoBufMut for Fixed {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    unsafe fn set_init(&mut self, _: usize) {}
}

fn buffers(count: usize, bytes: usize) -> std::io::Result<(FixedBufRegistry<Fixed>, Vec<FixedBuf>)> {
    let registry = FixedBufRegistry::new((0..count).map(|_| Fixed(Memory::new(bytes))));
    registry.register()?;
    let buffers = (0..count).map(|index| registry.check_out(index).expect("registered above"));
    let buffers = buffers.collect();
    Ok((registry, buffers))
}

fn main() -> Outcome {
    let mut ring = tokio_uring::uring_builder();
    ring.setup_single_issuer().setup_coop_taskrun();
    let mut builder = tokio_uring::builder();
    builder.entries(256).uring_builder(&ring);
    builder.start(run(Work::from_arguments()))
}

async fn run(work: Work) -> Outcome {
    match &work.program {
        Program::Copy { from, to } => {
            let from = work.to_read(from)?;
            let bytes = from.metadata()?.len();
            let (from, to) = (File::from_std(from), File::from_std(work.to_fill(to, bytes)?));
            let shared = Rc::new((from, to, Chunks::of(bytes)));
            let (_registry, buffers) = buffers(DEPTH, CHUNK)?;
            let mut tasks = Vec::new();
            for mut buffer in buffers {
                let shared = Rc::clone(&shared);
                tasks.push(tokio_uring::spawn(async move {
                    while let Some(at) = shared.2.next() {
                        let (result, back) = shared.0.read_fixed_at(buffer, at).await;
                        assert_eq!(result.expect("a read failed"), CHUNK);
                        let (result, back) = shared.1.write_fixed_at(back, at).await;
                        assert_eq!(result.expect("a write failed"), CHUNK);
                        buffer = back;
                    }
                }));
            }
            for task in tasks {
                task.await?;
            }
            shared.1.sync_data().await?;
        }
        Program::Durable { file } => {
            let file = Rc::new(File::from_std(work.to_write_durably(file)?));
            let (_registry, buffers) = buffers(WRITERS as usize, BLOCK)?;
            let mut tasks = Vec::new();
            for (task, mut buffer) in (0..).zip(buffers) {
                let file = Rc::clone(&file);
                tasks.push(tokio_uring::spawn(async move {
                    for nth in (task..WRITES).step_by(WRITERS as usize) {
                        let (result, back) = file.write_fixed_at(buffer, nth * BLOCK as u64).await;
                        assert_eq!(result.expect("a write failed"), BLOCK);
                        buffer = back;
                    }
                }));
            }
            for task in tasks {
                task.await?;
            }
        }
        Program::HotSet { file } => {
            let file = work.to_read(file)?;
            let pages = file.metadata()?.len() / BLOCK as u64;
            let file = Rc::new(File::from_std(file));
            let (_registry, buffers) = buffers(READERS as usize, BLOCK)?;
            let (mut readers, mut sum) = (Vec::new(), 0);
            for (reader, mut buffer) in (0..).zip(buffers) {
                let file = Rc::clone(&file);
                readers.push(tokio_uring::spawn(async move {
                    let mut sum = 0;
                    for at in places(reader, pages) {
                        let (result, back) = file.read_fixed_at(buffer, at).await;
                        assert_eq!(result.expect("a read failed"), BLOCK);
                        sum += u64::from(back[0]);
                        buffer = back;
                    }
                    sum
                }));
            }
            for reader in readers {
                sum += reader.await?;
            }
            println!("the sum of their first bytes is {sum}");
        }
    }
    Ok(())
}
