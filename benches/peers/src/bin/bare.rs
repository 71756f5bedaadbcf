//! The floor: one ring, everything registered, no table of requests, nothing checked but the length.

use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use baio_peers::{BLOCK, Load, Outcome, page};
use io_uring::{IoUring, opcode, types};

fn main() -> Outcome {
    let load = Load::from_arguments()?;
    let file = std::fs::File::options()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(&load.path)?;
    let mut ring: IoUring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(load.depth as u32)?;
    let mut pages: Vec<_> = (0..load.depth).map(|_| page()).collect();
    let parts: Vec<_> = pages
        .iter_mut()
        .map(|page| libc::iovec {
            iov_base: page.0.as_mut_ptr().cast(),
            iov_len: BLOCK,
        })
        .collect();
    // SAFETY: the pages outlive the ring's last read: each is waited for.
    unsafe { ring.submitter().register_buffers(&parts)? };
    ring.submitter().register_files(&[file.as_raw_fd()])?;
    let (mut submitter, mut entries, mut results) = ring.split();
    submitter.register_ring_fd()?;
    let mut free: Vec<u16> = (0..load.depth as u16).collect();
    load.start();
    let (mut since, mut under_way) = (None, 0);
    loop {
        while let Some(index) = free.pop() {
            let Some(offset) = load.next() else { break };
            since = load.clock();
            let pointer = parts[index as usize].iov_base.cast();
            let read = opcode::ReadFixed::new(types::Fixed(0), pointer, BLOCK as u32, index).offset(offset);
            // SAFETY: its page is nobody else's until it has ended.
            unsafe { entries.push(&read.build().user_data(index.into()))? };
            under_way += 1;
            entries.sync();
            if entries.len() >= load.batch {
                submitter.submit()?;
                entries.sync();
            }
        }
        if under_way == 0 {
            break;
        }
        entries.sync();
        submitter.submit_and_wait(1)?;
        entries.sync();
        results.sync();
        for result in &mut results {
            load.ended(since, usize::try_from(result.result())?);
            under_way -= 1;
            free.push(result.user_data() as u16);
        }
    }
    load.report("bare");
    Ok(())
}
