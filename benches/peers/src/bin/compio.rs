//! compio: one task a read. It has no registered buffers, and its own reads do not use the files that can be registered, so the
//! read here is an operation of one's own, as its documentation offers, which does.

use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::rc::Rc;

use baio_peers::{Aligned, BLOCK, Load, Outcome, page};
use compio::driver::{OpCode, OpEntry, ProactorBuilder};
use compio::runtime::RuntimeBuilder;
use io_uring::{opcode, types};

struct ReadRegistered {
    offset: u64,
    page: Box<Aligned>,
}

// SAFETY: the page is the operation's, which the driver keeps until the kernel has answered.
unsafe impl OpCode for ReadRegistered {
    type Control = ();

    fn create_entry(&mut self, (): &mut ()) -> OpEntry {
        let read = opcode::Read::new(types::Fixed(0), self.page.0.as_mut_ptr(), BLOCK as u32);
        OpEntry::Submission(read.offset(self.offset).build())
    }
}

fn main() -> Outcome {
    let load = Rc::new(Load::from_arguments()?);
    let file = std::fs::File::options()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(&load.path)?;
    let mut proactor = ProactorBuilder::new();
    proactor.capacity(256).single_issuer(true).defer_taskrun(true);
    let runtime = RuntimeBuilder::new().with_proactor(proactor).build()?;
    runtime.block_on(async {
        compio::runtime::register_files(&[file.as_raw_fd()])?;
        let pages: Vec<_> = (0..load.depth).map(|_| page()).collect();
        load.start();
        let spawn = |page| compio::runtime::spawn(read(Rc::clone(&load), page));
        let tasks: Vec<_> = pages.into_iter().map(spawn).collect();
        for task in tasks {
            task.await.map_err(|_| "a task has panicked")?;
        }
        load.report("compio");
        Ok(())
    })
}

async fn read(load: Rc<Load>, mut page: Box<Aligned>) {
    while let Some(offset) = load.next() {
        let since = load.clock();
        let ended = compio::runtime::submit(ReadRegistered { offset, page }).await;
        load.ended(since, ended.0.expect("a read failed"));
        page = ended.1.page;
    }
}
