//! tokio-uring: one task a read, fixed buffers. It has no registered files. Its completions are found by epoll on the ring,
//! which DEFER_TASKRUN would keep silent; SINGLE_ISSUER and COOP_TASKRUN are the most that it can be given.

use std::os::unix::fs::OpenOptionsExt;
use std::rc::Rc;

use baio_peers::{Aligned, BLOCK, Load, Outcome, page};
use tokio_uring::buf::fixed::{FixedBuf, FixedBufRegistry};
use tokio_uring::buf::{IoBuf, IoBufMut};
use tokio_uring::fs::{File, OpenOptions};

struct Page(Box<Aligned>);

// SAFETY: the memory is a box's, which stays where it is, and all of it was written once.
unsafe impl IoBuf for Page {
    fn stable_ptr(&self) -> *const u8 {
        self.0.0.as_ptr()
    }

    fn bytes_init(&self) -> usize {
        BLOCK
    }

    fn bytes_total(&self) -> usize {
        BLOCK
    }
}

// SAFETY: as above.
unsafe impl IoBufMut for Page {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.0.0.as_mut_ptr()
    }

    unsafe fn set_init(&mut self, _: usize) {}
}

fn main() -> Outcome {
    let load = Rc::new(Load::from_arguments()?);
    let mut ring = tokio_uring::uring_builder();
    ring.setup_single_issuer().setup_coop_taskrun();
    let mut builder = tokio_uring::builder();
    builder.entries(256).uring_builder(&ring);
    builder.start(async {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(&load.path)
            .await?;
        let file = Rc::new(file);
        let registry = FixedBufRegistry::new((0..load.depth).map(|_| Page(page())));
        registry.register()?;
        let buffers = (0..load.depth).map(|index| registry.check_out(index).expect("registered above"));
        let buffers: Vec<FixedBuf> = buffers.collect();
        load.start();
        let spawn = |buffer| tokio_uring::spawn(read(Rc::clone(&load), Rc::clone(&file), buffer));
        let tasks: Vec<_> = buffers.into_iter().map(spawn).collect();
        for task in tasks {
            task.await?;
        }
        load.report("tokio-uring");
        Ok(())
    })
}

async fn read(load: Rc<Load>, file: Rc<File>, mut buffer: FixedBuf) {
    while let Some(offset) = load.next() {
        let since = load.clock();
        let (result, back) = file.read_fixed_at(buffer, offset).await;
        load.ended(since, result.expect("a read failed"));
        buffer = back;
    }
}
