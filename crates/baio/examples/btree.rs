//! A B-tree with transactions on the buffer pool, for any number of tasks at once:
//! `cargo run --release -p baio --example btree -- VOLUME KEY [VALUE]` puts or gets in two segments, made by
//! `baio create VOLUME#tree --size 16M` and `baio create VOLUME#log --size 16M`.
//!
//! A transaction runs on the core's thread, where nothing else happens meanwhile, on copies of the pages that it changes. A page that
//! is not in the cache ends the run; the page is brought in, and it runs again. Its commit writes the copies to the log, durably, and
//! then puts them into the pool, all in one go; so nobody sees half of one, there is nothing to undo after a crash, and the log is
//! only read forward. A full log ends in a checkpoint.
//!
//! A page of `tree`: level (0: a leaf), count, pairs of key and value or page, in order; page 0 has one pair: pages in use, and the
//! root. Page 0 of `log`: the last transaction that needs none; then for each a page (number, count, hash, its pages) and these.

use std::collections::BTreeMap;
use std::sync::Arc;

use baio::{Access, Durability, Handle, Link, Options, PAGE, Pin, Pool, Remote, Segment};
use tokio::sync::Mutex;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
type Pages = BTreeMap<u64, Node>;
const PAIRS: usize = PAGE / 16 - 1;
const CHANGES_MAX: usize = 60; // Pages that one transaction may change.

fn words(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.as_chunks().0.iter();
    words.map(|word| u64::from_le_bytes(*word)).collect()
}

fn bytes(words: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    bytes.resize(PAGE, 0);
    bytes
}

fn hash(images: &[u8]) -> u64 {
    let add = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(29);
    words(images).into_iter().fold(0xcbf2_9ce4_8422_2325, add)
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
    log: Segment<Remote>,
    writer: Mutex<(u64, u64)>, // The last transaction, and where its record ends: for one at a time.
}

impl Tree {
    /// Brings the tree to where the log ends.
    pub(crate) async fn open(pages: Segment<Remote>, log: Segment<Remote>) -> Result<Tree> {
        let first = log.read_exact_at(0, log.buffer(PAGE)?).await?.buffer;
        let (mut last, mut end) = (words(&first)[0], PAGE as u64);
        pages.link().set_durable_lsn(last).await?;
        let writer = Mutex::default();
        let tree = Tree { pages, log, writer };
        loop {
            let head = words(&tree.log.read_at(end, tree.log.buffer(PAGE)?).await?.buffer);
            let (number, count) = (head[0], (head[1] as usize).min(CHANGES_MAX));
            let images = tree.log.buffer(count * PAGE)?;
            let images = tree.log.read_at(end + PAGE as u64, images).await?.buffer;
            if number <= last || head[2] != hash(&images) {
                break;
            }
            (last, end) = (number, end + ((1 + count) * PAGE) as u64);
            let changed = head[3..].iter().copied().zip(images.chunks(PAGE).map(Node::of));
            tree.apply(changed.collect(), number).await?;
        }
        *tree.writer.lock().await = (last, end);
        Ok(tree)
    }

    /// Puts pages that the log has into the pool, all in one go, and lets them go to the device.
    async fn apply(&self, changed: Pages, lsn: u64) -> Result<()> {
        let mut pins: Vec<Pin<Remote>> = Vec::new();
        for page in changed.keys() {
            let pin = self.pages.pin(*page).await?;
            pin.changeable(lsn).await?;
            pins.push(pin);
        }
        let tree = self.pages.handle();
        let put = self.pages.link().with_pool(move |pool| {
            for (page, node) in &changed {
                let put = |now: &mut [u8]| now.copy_from_slice(&node.image());
                pool.change(tree, *page, lsn, put)?.ok_or("it is held")?;
            }
            Ok(pool.set_durable_lsn(lsn)?)
        });
        put.await?
    }

    /// Runs until no page is missing; gives what came of it, and the pages that it changed.
    async fn attempt<T: Send + 'static>(
        &self,
        run: impl Fn(&mut Transaction<'_, '_>) -> Result<T> + Send + Sync + 'static,
    ) -> Result<(T, Pages)> {
        let (run, tree, mut pins) = (Arc::new(run), self.pages.handle(), Vec::new());
        loop {
            let run = Arc::clone(&run);
            let ran = self.pages.link().with_pool(move |pool| {
                let (changed, missing) = (Pages::new(), None);
                let mut transaction = Transaction {
                    pool,
                    tree,
                    changed,
                    missing,
                };
                (run(&mut transaction), transaction.changed, transaction.missing)
            });
            match ran.await? {
                (_, _, Some(missing)) => pins.push(self.pages.pin(missing).await?),
                (done, changed, None) => return Ok((done?, changed)),
            }
        }
    }

    /// Only looks: beside any number of others, and beside a transaction, of which it sees all or nothing.
    pub(crate) async fn get(&self, key: u64) -> Result<Option<u64>> {
        self.attempt(move |transaction| transaction.get(key))
            .await
            .map(|(found, _)| found)
    }

    /// Runs a transaction, perhaps several times: all of it is done, durably, or nothing.
    pub(crate) async fn transact<T: Send + 'static>(
        &self,
        run: impl Fn(&mut Transaction<'_, '_>) -> Result<T> + Send + Sync + 'static,
    ) -> Result<T> {
        let (last, end) = &mut *self.writer.lock().await;
        let (done, changed) = self.attempt(run).await?;
        if changed.len() > CHANGES_MAX {
            return Err("the transaction is too large".into());
        }
        let images: Vec<u8> = changed.values().flat_map(Node::image).collect();
        if *end + (PAGE + images.len()) as u64 > self.log.info().size_bytes {
            // A checkpoint: what the log was for is made safe, and it begins anew.
            self.pages.flush_to(*last).await?;
            self.write(0, &bytes([*last])).await?;
            *end = PAGE as u64;
        }
        *last += 1; // The number is used up, whatever becomes of it.
        let head = [*last, changed.len() as u64, hash(&images)].into_iter();
        let record = [bytes(head.chain(changed.keys().copied())), images].concat();
        let at = std::mem::replace(end, u64::MAX / 2); // Nobody knows what is there if it fails: a checkpoint comes first.
        self.write(at, &record).await?;
        *end = at + record.len() as u64;
        self.apply(changed, *last).await?;
        Ok(done)
    }

    async fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let mut buffer = self.log.buffer(bytes.len())?;
        buffer.copy_from_slice(bytes);
        self.log.write_all_at(at, buffer).durable(Durability::Data).await?;
        Ok(())
    }
}

/// A run of a transaction: it sees the tree as it is, with its own changes.
pub(crate) struct Transaction<'a, 'b> {
    pool: &'a mut Pool<'b>,
    tree: Handle,
    changed: Pages,
    missing: Option<u64>,
}

impl Transaction<'_, '_> {
    fn node(&mut self, page: u64) -> Result<Node> {
        let found = match self.changed.get(&page) {
            Some(node) => Some(node.clone()),
            None => self.pool.read(self.tree, page, Node::of)?,
        };
        self.missing = found.is_none().then_some(page);
        found.ok_or_else(|| "it runs again when the page is there".into())
    }

    /// Pages in use, and the root: 0 for none.
    fn head(&mut self) -> Result<(u64, u64)> {
        Ok(self.node(0)?.pairs.first().copied().unwrap_or((1, 0)))
    }

    fn set_head(&mut self, head: (u64, u64)) {
        let (level, pairs) = (0, vec![head]);
        self.changed.insert(0, Node { level, pairs });
    }

    fn add(&mut self, node: Node) -> Result<u64> {
        let (page, root) = self.head()?;
        self.set_head((page + 1, root));
        self.changed.insert(page, node);
        Ok(page)
    }

    pub(crate) fn get(&mut self, key: u64) -> Result<Option<u64>> {
        let (_, mut page) = self.head()?;
        while page > 0 {
            let node = self.node(page)?;
            let found = node.pairs.partition_point(|pair| pair.0 <= key).saturating_sub(1);
            if node.level == 0 {
                return Ok(node.pairs.get(found).filter(|pair| pair.0 == key).map(|pair| pair.1));
            }
            page = node.pairs[found].1;
        }
        Ok(None)
    }

    pub(crate) fn put(&mut self, key: u64, value: u64) -> Result<()> {
        let (_, root) = self.head()?;
        let (level, pairs) = match root {
            0 => (0, vec![(key, value)]),
            root => match self.put_below(root, key, value)? {
                Some(right) => {
                    let below = self.node(root)?;
                    (below.level + 1, vec![(below.pairs[0].0, root), right])
                }
                None => return Ok(()),
            },
        };
        let above = self.add(Node { level, pairs })?;
        let (pages, _) = self.head()?;
        self.set_head((pages, above));
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
            let (level, pairs) = (node.level, node.pairs.split_off(PAIRS / 2));
            new = Some((pairs[0].0, self.add(Node { level, pairs })?));
        }
        self.changed.insert(page, node);
        Ok(new)
    }
}

pub(crate) async fn run(volume: &str, key: u64, value: Option<u64>) -> Result<Option<u64>> {
    let link = Remote::open_with(volume, &Options::default().with_cache(8 << 20))?;
    let pages = link.open_segment("tree", Access::Write).await?;
    let log = link.open_segment("log", Access::Write).await?;
    let tree = Tree::open(pages, log).await?;
    let mut found = None;
    match value {
        Some(value) => tree.transact(move |transaction| transaction.put(key, value)).await?,
        None => found = tree.get(key).await?,
    }
    drop(tree);
    link.close()?;
    Ok(found)
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (volume, key) = arguments
        .next()
        .zip(arguments.next())
        .ok_or("usage: btree VOLUME KEY [VALUE]")?;
    let value = arguments.next().map(|value| value.parse()).transpose()?;
    println!("{:?}", run(&volume, key.parse()?, value).await?);
    Ok(())
}
