//! A B-tree with transactions on the buffer pool, for any number of tasks at once. With a value it puts a pair, without one it gets it.
//! ```sh
//! baio format /tmp/vol --size 64M && baio create /tmp/vol#tree --size 16M && baio create /tmp/vol#log --size 16M
//! cargo run -p baio --example btree -- /tmp/vol 7 49 && cargo run -p baio --example btree -- /tmp/vol 7
//! ```
//! A transaction runs on the core's thread, where nothing else happens meanwhile, on copies of the pages that it changes; for a page that
//! is not in the cache it stops, and runs again when that is there. Its commit appends the copies to the log as one record and puts
//! them into the pool under its LSN, all in one go: nobody sees half of one. The pages follow the log (`set_log`): none is written
//! before its record is durable, so there is nothing to undo. Then the next transaction may run; this one waits until its record is
//! durable. A log that is half full ends in a checkpoint. Page 0 of `tree`: pages in use, and the root.

use baio::{Access, Durability, Handle, Link, LinkOptions, Log, LogOptions, Lsn, Mode, PAGE, Pool, Remote, Segment};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Mutex;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
type Pages = BTreeMap<u64, Node>;
type Run<T> = Arc<dyn Fn(&mut Transaction<'_, '_>) -> Result<T> + Send + Sync>;
const PAIRS: usize = PAGE / 16 - 1;
const CHANGES_MAX: usize = 60; // Pages that one transaction may change.
fn words(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.as_chunks().0.iter();
    words.map(|word| u64::from_le_bytes(*word)).collect()
}
fn bytes(words: impl Iterator<Item = u64>) -> Vec<u8> {
    let words = words.chain(std::iter::repeat(0)).take(PAGE / 8);
    words.flat_map(u64::to_le_bytes).collect()
}
#[derive(Clone)]
struct Node {
    level: u64,
    pairs: Vec<(u64, u64)>,
}
impl Node {
    fn of(page: &[u8]) -> Node {
        let words = words(page);
        let (level, count) = (words[0], (words[1] as usize).min(PAIRS));
        let pairs = words[2..2 + 2 * count].as_chunks().0.iter();
        let pairs = pairs.map(|[key, value]| (*key, *value)).collect();
        Node { level, pairs }
    }

    fn image(&self) -> Vec<u8> {
        let pairs = self.pairs.iter().flat_map(|(key, value)| [*key, *value]);
        bytes([self.level, self.pairs.len() as u64].into_iter().chain(pairs))
    }
}

pub(crate) struct Tree {
    pages: Segment<Remote>,
    log: Log<Remote>,
    writer: Mutex<()>, // Transactions change the tree one at a time, and wait for the log together.
}

impl Tree {
    /// Brings the tree to where the log ends. Where there is none yet the tree is empty.
    pub(crate) async fn open(pages: Segment<Remote>, log: Segment<Remote>) -> Result<Tree> {
        let options = LogOptions {
            batch_bytes_max: 64 << 10, // The log may be small.
            ..LogOptions::default()
        };
        let log = log.open_or_create_log(&options).await?;
        pages.set_log(&log).await?;
        let writer = Mutex::new(());
        let tree = Tree { pages, log, writer };
        let mut records = tree.log.records(tree.log.head_lsn());
        while let Some(record) = records.next_record().await? {
            let Some((head, images)) = record.payload().split_at_checked(PAGE) else {
                continue; // Of a checkpoint.
            };
            // What the log has is durable: no page of it need be held back.
            for (page, image) in words(head).into_iter().skip(1).zip(images.chunks(PAGE)) {
                let write = tree.pages.write_at(page * PAGE as u64, image.to_vec());
                write.mode(Mode::Cached).await?;
            }
        }
        drop(records);
        tree.checkpoint().await?;
        Ok(tree)
    }

    /// Makes safe in their pages what the log was for, and gives up its space.
    async fn checkpoint(&self) -> Result<()> {
        let here = self.log.append_durable(b"").await?; // Pages that were held back for a record that never came wait for this one.
        self.pages.sync(Durability::Data).mode(Mode::Cached).await?;
        self.log.truncate(here).await?;
        Ok(())
    }

    /// Appends the record of a transaction and puts its pages into the pool.
    async fn commit(&self, changed: Pages, record: Vec<u8>) -> Result<Lsn> {
        // From here on no page of it goes to the device: each waits for the record that is to come.
        let (mut pins, next) = (Vec::new(), self.log.end_lsn());
        for page in changed.keys() {
            let pin = self.pages.pin(*page).await?;
            pin.changeable(next.0).await?;
            pins.push(pin);
        }
        let (tree, log) = (self.pages.handle(), self.log.clone());
        let put = self.pages.link().with_pool(move |pool| {
            let lsn = log.append(&record)?;
            for (page, node) in &changed {
                let put = |now: &mut [u8]| now.copy_from_slice(&node.image());
                pool.change(tree, *page, lsn.0, put)?.ok_or("it is held")?;
            }
            Ok(lsn)
        });
        put.await?
    }

    /// Runs until no page is missing; gives what came of it, and the pages that it changed.
    async fn attempt<T: Send + 'static>(&self, run: Run<T>) -> Result<(T, Pages)> {
        let (tree, mut pins) = (self.pages.handle(), Vec::new());
        loop {
            let run = Arc::clone(&run);
            let ran = self.pages.link().with_pool(move |pool| {
                let mut transaction = Transaction(pool, tree, Pages::new(), None);
                (run(&mut transaction), transaction.2, transaction.3)
            });
            match ran.await? {
                (_, _, Some(missing)) => pins.push(self.pages.pin(missing).await?),
                (done, changed, None) => return Ok((done?, changed)),
            }
        }
    }

    /// Only looks: beside any number of others, and beside a transaction, of which it sees all or nothing.
    pub(crate) async fn get(&self, key: u64) -> Result<Option<u64>> {
        Ok(self.attempt(Arc::new(move |run| run.get(key))).await?.0)
    }

    /// Runs a transaction, perhaps several times: all of it is done, durably, or nothing.
    pub(crate) async fn transact<T: Send + 'static>(&self, run: Run<T>) -> Result<T> {
        let writer = self.writer.lock().await;
        let (done, changed) = self.attempt(run).await?;
        if changed.len() > CHANGES_MAX {
            return Err("the transaction is too large".into());
        }
        let head = [changed.len() as u64].into_iter().chain(changed.keys().copied());
        let record = [bytes(head), changed.values().flat_map(Node::image).collect()].concat();
        let usage = self.log.usage().await?;
        if usage.used_bytes > usage.free_bytes {
            self.checkpoint().await?;
        }
        self.log.room(record.len()).await?;
        let lsn = self.commit(changed, record).await?;
        drop(writer); // Whoever sees this change before it is safe comes behind it in the log.
        self.log.durable(lsn).await?;
        Ok(done)
    }
}

/// A run of a transaction: the pool, the tree, the pages that it has changed, and the one that it misses.
pub(crate) struct Transaction<'a, 'b>(&'a mut Pool<'b>, Handle, Pages, Option<u64>);

impl Transaction<'_, '_> {
    fn node(&mut self, page: u64) -> Result<Node> {
        let found = match self.2.get(&page) {
            Some(node) => Some(node.clone()),
            None => self.0.read(self.1, page, Node::of)?,
        };
        self.3 = found.is_none().then_some(page);
        found.ok_or_else(|| "it runs again when the page is there".into())
    }

    /// Pages in use, and the root: at first an empty leaf.
    fn head(&mut self) -> Result<(u64, u64)> {
        Ok(self.node(0)?.pairs.first().copied().unwrap_or((2, 1)))
    }
    fn set(&mut self, page: u64, level: u64, pairs: Vec<(u64, u64)>) {
        self.2.insert(page, Node { level, pairs });
    }
    fn add(&mut self, level: u64, pairs: Vec<(u64, u64)>) -> Result<u64> {
        let (page, root) = self.head()?;
        self.set(0, 0, vec![(page + 1, root)]);
        self.set(page, level, pairs);
        Ok(page)
    }

    pub(crate) fn get(&mut self, key: u64) -> Result<Option<u64>> {
        let (_, mut page) = self.head()?;
        loop {
            let node = self.node(page)?;
            let found = node.pairs.partition_point(|pair| pair.0 <= key).saturating_sub(1);
            match node.pairs.get(found) {
                Some((_, below)) if node.level > 0 => page = *below,
                pair => return Ok(pair.filter(|pair| pair.0 == key).map(|pair| pair.1)),
            }
        }
    }

    pub(crate) fn put(&mut self, key: u64, value: u64) -> Result<()> {
        let (_, root) = self.head()?;
        if let Some(right) = self.put_below(root, key, value)? {
            let below = self.node(root)?;
            let above = self.add(below.level + 1, vec![(below.pairs[0].0, root), right])?;
            self.set(0, 0, vec![(above + 1, above)]);
        }
        Ok(())
    }

    /// Puts a pair below a page; gives what the page above must learn of, if this one was divided.
    fn put_below(&mut self, page: u64, key: u64, value: u64) -> Result<Option<(u64, u64)>> {
        let mut node = self.node(page)?;
        let after = node.pairs.partition_point(|pair| pair.0 <= key);
        let at = after.saturating_sub(1);
        if node.level > 0 {
            match self.put_below(node.pairs[at].1, key, value)? {
                Some(new) => node.pairs.insert(at + 1, new),
                None => return Ok(None),
            }
        } else if node.pairs.get(at).is_some_and(|pair| pair.0 == key) {
            node.pairs[at].1 = value;
        } else {
            node.pairs.insert(after, (key, value));
        }
        let mut new = None;
        if node.pairs.len() > PAIRS {
            let upper = node.pairs.split_off(PAIRS / 2);
            new = Some((upper[0].0, self.add(node.level, upper)?));
        }
        self.2.insert(page, node);
        Ok(new)
    }
}

pub(crate) async fn run(volume: &str, key: u64, value: Option<u64>) -> Result<Option<u64>> {
    let link = Remote::open_with(volume, &LinkOptions::default().with_cache(8 << 20))?;
    let pages = link.open_segment("tree", Access::Write).await?;
    let log = link.open_segment("log", Access::Write).await?;
    let tree = Tree::open(pages, log).await?;
    let found = match value {
        Some(value) => {
            tree.transact(Arc::new(move |run| run.put(key, value).map(|()| None)))
                .await?
        }
        None => tree.get(key).await?,
    };
    drop(tree);
    link.close()?;
    Ok(found)
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("usage: btree VOLUME KEY [VALUE]");
    let (volume, key) = (next()?, next()?);
    let value = arguments.next().map(|value| value.parse()).transpose()?;
    println!("{:?}", run(&volume, key.parse()?, value).await?);
    Ok(())
}
