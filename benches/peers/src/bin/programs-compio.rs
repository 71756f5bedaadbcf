//! The three programs by compio, in one thread, with the ring's flags of its random reads.

use std::mem::MaybeUninit;
use std::rc::Rc;

use baio_peers::programs::{CHUNK, Chunks, DEPTH, Memory, Program, READERS, WRITERS, WRITES, Work, places};
use baio_peers::{BLOCK, Outcome};
use compio::buf::{IoBuf, IoBufMut, SetLen};
use compio::driver::ProactorBuilder;
use compio::fs::OpenOptions;
use compio::io::{AsyncReadAt, AsyncWriteAt};
use compio::runtime::RuntimeBuilder;

struct Owned(Memory);

impl IoBuf for Owned {
    fn as_init(&self) -> &[u8] {
        &self.0
    }
}

impl SetLen for Owned {
    unsafe fn set_len(&mut self, _: usize) {}
}

impl IoBufMut for Owned {
    fn as_uninit(&mut self) -> &mut [MaybeUninit<u8>] {
        let (start, len) = (self.0.as_mut_ptr(), self.0.len());
        // SAFETY: bytes that are written are such as may not be.
        unsafe { std::slice::from_raw_parts_mut(start.cast(), len) }
    }
}

fn main() -> Outcome {
    let mut proactor = ProactorBuilder::new();
    proactor.capacity(256).single_issuer(true).defer_taskrun(true);
    let runtime = RuntimeBuilder::new().with_proactor(proactor).build()?;
    runtime.block_on(run(Work::from_arguments()))
}

async fn run(work: Work) -> Outcome {
    let mut tasks = Vec::new();
    match &work.program {
        Program::Copy { from, to } => {
            let bytes = std::fs::metadata(from)?.len();
            drop(work.to_fill(to, bytes)?);
            let from = OpenOptions::new()
                .read(true)
                .custom_flags(work.flags())
                .open(from)
                .await?;
            let to = OpenOptions::new()
                .write(true)
                .custom_flags(work.flags())
                .open(to)
                .await?;
            let chunks = Rc::new(Chunks::of(bytes));
            for _ in 0..DEPTH {
                let (from, mut to, chunks) = (from.clone(), to.clone(), Rc::clone(&chunks));
                tasks.push(compio::runtime::spawn(async move {
                    let mut chunk = Owned(Memory::new(CHUNK));
                    while let Some(at) = chunks.next() {
                        let read = from.read_at(chunk, at).await;
                        assert_eq!(read.0.expect("a read failed"), CHUNK);
                        let written = to.write_at(read.1, at).await;
                        assert_eq!(written.0.expect("a write failed"), CHUNK);
                        chunk = written.1;
                    }
                }));
            }
            for task in tasks {
                task.await.map_err(|_| "a task has panicked")?;
            }
            to.sync_data().await?;
        }
        Program::Durable { file } => {
            let flags = work.flags() | libc::O_DSYNC;
            let file = OpenOptions::new().write(true).custom_flags(flags).open(file).await?;
            for task in 0..WRITERS {
                let mut file = file.clone();
                tasks.push(compio::runtime::spawn(async move {
                    let mut page = Owned(Memory::new(BLOCK));
                    for nth in (task..WRITES).step_by(WRITERS as usize) {
                        let written = file.write_at(page, nth * BLOCK as u64).await;
                        assert_eq!(written.0.expect("a write failed"), BLOCK);
                        page = written.1;
                    }
                }));
            }
            for task in tasks {
                task.await.map_err(|_| "a task has panicked")?;
            }
        }
        Program::HotSet { file } => {
            let pages = std::fs::metadata(file)?.len() / BLOCK as u64;
            let file = OpenOptions::new().read(true).open(file).await?;
            let (mut readers, mut sum) = (Vec::new(), 0);
            for reader in 0..READERS {
                let file = file.clone();
                readers.push(compio::runtime::spawn(async move {
                    let (mut page, mut sum) = (Owned(Memory::new(BLOCK)), 0);
                    for at in places(reader, pages) {
                        let read = file.read_at(page, at).await;
                        assert_eq!(read.0.expect("a read failed"), BLOCK);
                        page = read.1;
                        sum += u64::from(page.0[0]);
                    }
                    sum
                }));
            }
            for reader in readers {
                sum += reader.await.map_err(|_| "a task has panicked")?;
            }
            println!("the sum of their first bytes is {sum}");
        }
    }
    Ok(())
}
