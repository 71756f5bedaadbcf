//! The three programs by threads of the standard library that block: as many as there are requests under way.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use baio_peers::programs::{CHUNK, DEPTH, Memory, Program, READERS, WRITERS, WRITES, Work, places};
use baio_peers::{BLOCK, Outcome};

fn main() -> Outcome {
    let work = Work::from_arguments();
    match &work.program {
        Program::Copy { from, to } => {
            let from = work.to_read(from)?;
            let bytes = from.metadata()?.len();
            let to = work.to_fill(to, bytes)?;
            let next = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for _ in 0..DEPTH {
                    scope.spawn(|| {
                        let mut chunk = Memory::new(CHUNK);
                        loop {
                            let at = next.fetch_add(CHUNK as u64, Ordering::Relaxed);
                            if at >= bytes {
                                break;
                            }
                            from.read_exact_at(&mut chunk, at).expect("a read failed");
                            to.write_all_at(&chunk, at).expect("a write failed");
                        }
                    });
                }
            });
            to.sync_data()?;
        }
        Program::Durable { file } => {
            let file = work.to_write_durably(file)?;
            std::thread::scope(|scope| {
                for task in 0..WRITERS {
                    let file = &file;
                    scope.spawn(move || {
                        let page = Memory::new(BLOCK);
                        for nth in (task..WRITES).step_by(WRITERS as usize) {
                            file.write_all_at(&page, nth * BLOCK as u64).expect("a write failed");
                        }
                    });
                }
            });
        }
        Program::HotSet { file } => {
            let file = work.to_read(file)?;
            let pages = file.metadata()?.len() / BLOCK as u64;
            let reader = |reader| {
                let (mut page, mut sum) = (Memory::new(BLOCK), 0);
                for at in places(reader, pages) {
                    file.read_exact_at(&mut page, at).expect("a read failed");
                    sum += u64::from(page[0]);
                }
                sum
            };
            let sum: u64 = std::thread::scope(|scope| {
                let readers: Vec<_> = (0..READERS).map(|nth| scope.spawn(move || reader(nth))).collect();
                let sums = readers
                    .into_iter()
                    .map(|reader| reader.join().expect("a reader has panicked"));
                sums.sum()
            });
            println!("the sum of their first bytes is {sum}");
        }
    }
    Ok(())
}
