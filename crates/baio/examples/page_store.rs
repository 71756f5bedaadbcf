//! A store of pages with its own caching and prefetching.
//!
//! ```sh
//! baio format /tmp/vol --size 64M
//! baio create /tmp/vol#pages --size 16M
//! cargo run -p baio --example page_store -- /tmp/vol pages
//! ```

use std::collections::HashMap;

use baio::{Access, Buffer, Link, Local, Segment, SegmentOp, Ticket};

struct PageStore {
    segment: Segment<Local>,
    cache: HashMap<u64, Buffer>,
    coming: HashMap<u64, Ticket>,
}

impl PageStore {
    /// Asks for pages that will be needed; the next wait sends all of them to the device together.
    fn prefetch(&mut self, pages: &[u64]) -> baio::Result<()> {
        for &page in pages {
            if !self.cache.contains_key(&page) && !self.coming.contains_key(&page) {
                let read = SegmentOp::Read { offset: page * 4096 };
                let request = self.segment.request(read, self.segment.buffer(4096)?);
                let ticket = self.segment.submit(request); // with every slot taken it is read when it is needed
                self.coming.extend(ticket.map(|ticket| (page, ticket)));
            }
        }
        Ok(())
    }

    fn page(&mut self, page: u64) -> Result<&[u8], Box<dyn std::error::Error>> {
        self.prefetch(&[page])?;
        if let Some(ticket) = self.coming.remove(&page) {
            let outcome = self.segment.link().wait(ticket)?.ok_or("the ticket is stale")?;
            outcome.result?;
            self.cache.extend(outcome.memory.into_buffer().map(|b| (page, b)));
        }
        Ok(self.cache.get(&page).ok_or("every slot is taken")?)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [volume, name] = &std::env::args().skip(1).collect::<Vec<_>>()[..] else {
        return Err("usage: page_store VOLUME SEGMENT".into());
    };
    let (volume, cache, coming) = (Local::open(volume)?, HashMap::new(), HashMap::new());
    let segment = volume.open_segment(name, Access::Read).wait()?;
    let mut store = PageStore { segment, cache, coming };
    store.prefetch(&[0, 7, 3])?; // an index page and the leaves it points to, wherever they lie
    let first = store.page(0)?[0];
    println!("page 0 begins with {first}; {} more on the way", store.coming.len());
    Ok(volume.close()?)
}
