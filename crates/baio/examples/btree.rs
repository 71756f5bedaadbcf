//! A B-tree with transactions on the buffer pool: `cargo run --release -p baio --example btree -- VOLUME KEY [VALUE]` puts
//! or gets in two segments, made by `baio create VOLUME#tree --size 16M` and `baio create VOLUME#log --size 16M`.
//!
//! A transaction changes pages where they lie in the pool, under a number of its own as their LSN. Its commit writes the
//! pages to the log, durably, and then says so to the pool. Until then the write gate holds them, so there is nothing to
//! undo after a crash, and the log is only read forward. A full log ends in a checkpoint.
//!
//! Page 0 of `tree`: pages in use, the root; the others: level (0: a leaf), count, pairs of key and value or page, in order. Page 0
//! of `log`: the last transaction that needs none; then for each a page (number, count, hash, its pages) and these.

use baio::{Access, CacheConfig, Config, Core, Durability, Handle, Identity, PinnedPage, SegmentOp, SegmentRequest};
use std::collections::BTreeMap;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
pub(crate) const PAGE: usize = 4096;
const PAIRS: usize = PAGE / 16 - 1;
const CHANGES_MAX: usize = 60; // Pages that one transaction may change: the log has room for so many when it begins.

fn word(page: &[u8], at: usize) -> u64 {
    page[8 * at..8 * at + 8].try_into().map_or(0, u64::from_le_bytes)
}

fn set_word(page: &mut [u8], at: usize, value: u64) {
    page[8 * at..8 * at + 8].copy_from_slice(&value.to_le_bytes());
}

fn hash(bytes: &[u8]) -> u64 {
    let add = |hash: u64, at| (hash ^ word(bytes, at)).wrapping_mul(0x100_0000_01b3).rotate_left(29);
    (0..bytes.len() / 8).fold(0xcbf2_9ce4_8422_2325, add)
}

fn count(page: &[u8]) -> usize {
    (word(page, 1) as usize).min(PAIRS)
}

fn pair(page: &[u8], at: usize) -> (u64, u64) {
    (word(page, 2 + 2 * at), word(page, 3 + 2 * at))
}

fn insert_pair(page: &mut [u8], at: usize, (key, value): (u64, u64)) {
    let (from, end) = (16 + 16 * at, 16 + 16 * count(page));
    page.copy_within(from..end, from + 16);
    set_word(page, 2 + 2 * at, key);
    set_word(page, 3 + 2 * at, value);
    set_word(page, 1, count(page) as u64 + 1);
}

/// The first pair of a key that is not lower: where it is, or would be.
fn find(page: &[u8], key: u64) -> usize {
    let (pairs, _) = page[16..16 + 16 * count(page)].as_chunks::<16>();
    pairs.partition_point(|pair| word(pair, 0) < key)
}

pub(crate) struct Tree {
    pub(crate) core: Core,
    pages: Handle,
    log: Handle,
    log_bytes: u64,
    log_end: u64,
    last: u64, // transaction
}

/// Pages held by a transaction, and how those that it changed looked before.
pub(crate) struct Transaction<'a> {
    tree: &'a mut Tree,
    held: BTreeMap<u64, (PinnedPage, Option<Vec<u8>>)>,
}

impl Tree {
    /// Brings the tree to where the log ends.
    pub(crate) fn open(core: Core, pages: Handle, log: Handle) -> Result<Tree> {
        let (log_bytes, log_end) = (core.size(log)?, PAGE as u64);
        #[rustfmt::skip]
        let mut tree = Tree { core, pages, log, log_bytes, log_end, last: 0 };
        tree.last = word(&tree.log_io(SegmentOp::Read { offset: 0 }, vec![0; PAGE])?, 0);
        tree.core.set_durable_lsn(tree.last)?;
        while tree.redo()? {}
        Ok(tree)
    }

    /// Reads the log into these bytes, or writes them there durably.
    fn log_io(&mut self, op: SegmentOp, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
        let mut buffer = self.core.buffer(bytes.len())?;
        buffer.copy_from_slice(&bytes);
        let mut request = SegmentRequest::new(self.log, op, buffer);
        let writes = matches!(op, SegmentOp::Write { .. });
        request.durability = if writes { Durability::Data } else { Durability::None };
        let ticket = self.core.start(request).map_err(|_| "every slot is taken")?;
        let outcome = self.core.wait(ticket)?.ok_or("no outcome")?;
        let (moved, buffer) = (outcome.result? as usize, outcome.memory.into_buffer());
        bytes[..moved].copy_from_slice(&buffer.ok_or("no buffer")?[..moved]);
        Ok(bytes)
    }

    /// Does the next record of the log again; false at its end.
    fn redo(&mut self) -> Result<bool> {
        let mut offset = self.log_end;
        let head = self.log_io(SegmentOp::Read { offset }, vec![0; PAGE])?;
        let (number, count) = (word(&head, 0), (word(&head, 1) as usize).min(CHANGES_MAX));
        if number <= self.last {
            return Ok(false);
        }
        offset += PAGE as u64;
        let images = self.log_io(SegmentOp::Read { offset }, vec![0; count * PAGE])?;
        if word(&head, 2) != hash(&images) {
            return Ok(false);
        }
        self.last = number;
        self.core.set_durable_lsn(self.last)?;
        for (nth, image) in images.chunks(PAGE).enumerate() {
            let pin = self.core.pin_new_now(self.pages, word(&head, 3 + nth), self.last)?;
            self.core.change_now(&pin, self.last)?.copy_from_slice(image);
            self.core.unpin(pin);
        }
        self.log_end = offset + images.len() as u64;
        Ok(true)
    }

    /// Runs a transaction: all of it is done, durably, or nothing.
    pub(crate) fn transact<T>(&mut self, run: impl FnOnce(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        if self.log_bytes == 0 {
            return Err("a transaction could not be undone: open the tree again".into());
        }
        if self.log_end + ((1 + CHANGES_MAX) * PAGE) as u64 > self.log_bytes {
            // A checkpoint: what the log was for is made safe, and it begins anew.
            let flush = self.core.flush_to(self.pages, self.last)?;
            self.core.wait(flush)?.ok_or("no outcome")?.result?;
            let mut first = vec![0; PAGE];
            set_word(&mut first, 0, self.last);
            self.log_io(SegmentOp::Write { offset: 0 }, first)?;
            self.log_end = PAGE as u64;
        }
        #[rustfmt::skip]
        let mut transaction = Transaction { tree: self, held: BTreeMap::new() };
        let done = run(&mut transaction).and_then(|done| transaction.commit().map(|()| done));
        if done.is_err() {
            transaction.undo()?;
        }
        for (pin, _) in std::mem::take(&mut transaction.held).into_values() {
            self.core.unpin(pin);
        }
        self.last += 1; // Its number is used up, and nothing of it waits for the log any more.
        self.core.set_durable_lsn(self.last)?;
        done
    }
}

impl Transaction<'_> {
    fn read(&mut self, page: u64) -> Result<&[u8]> {
        if !self.held.contains_key(&page) {
            let pin = self.tree.core.pin_now(self.tree.pages, page)?;
            self.held.insert(page, (pin, None));
        }
        Ok(self.tree.core.page(&self.held[&page].0)?)
    }

    fn change(&mut self, page: u64) -> Result<&mut [u8]> {
        let now = self.read(page)?.to_vec();
        let (pin, before) = self.held.get_mut(&page).ok_or("it is held")?;
        before.get_or_insert(now);
        Ok(self.tree.core.change_now(pin, self.tree.last + 1)?)
    }

    fn new_page(&mut self, level: u64) -> Result<u64> {
        let page = word(self.read(0)?, 0).max(1);
        set_word(self.change(0)?, 0, page + 1);
        let pin = self.tree.core.pin_new_now(self.tree.pages, page, self.tree.last + 1)?;
        self.held.insert(page, (pin, None)); // Nothing is read, and it is zero.
        set_word(self.change(page)?, 0, level);
        Ok(page)
    }

    pub(crate) fn get(&mut self, key: u64) -> Result<Option<u64>> {
        let mut page = word(self.read(0)?, 1);
        while page > 0 {
            let bytes = self.read(page)?;
            if word(bytes, 0) == 0 {
                let mut pairs = (0..count(bytes)).map(|at| pair(bytes, at));
                return Ok(pairs.find(|pair| pair.0 == key).map(|pair| pair.1));
            }
            page = pair(bytes, find(bytes, key.saturating_add(1)).saturating_sub(1)).1;
        }
        Ok(None)
    }

    pub(crate) fn put(&mut self, key: u64, value: u64) -> Result<()> {
        let mut root = word(self.read(0)?, 1);
        if root == 0 {
            root = self.new_page(0)?;
            set_word(self.change(0)?, 1, root);
        }
        if let Some(right) = self.put_below(root, key, value)? {
            let left = (pair(self.read(root)?, 0).0, root);
            let level = word(self.read(root)?, 0);
            let above = self.new_page(level + 1)?;
            let bytes = self.change(above)?;
            insert_pair(bytes, 0, left);
            insert_pair(bytes, 1, right);
            set_word(self.change(0)?, 1, above);
        }
        Ok(())
    }

    /// Puts a pair below a page; gives what the page above must learn of, if this one was divided.
    fn put_below(&mut self, page: u64, key: u64, value: u64) -> Result<Option<(u64, u64)>> {
        let bytes = self.read(page)?;
        let level = word(bytes, 0);
        let (at, new) = if level > 0 {
            let at = find(bytes, key.saturating_add(1)).saturating_sub(1);
            let below = pair(bytes, at).1;
            let Some(new) = self.put_below(below, key, value)? else {
                return Ok(None);
            };
            (at + 1, new)
        } else {
            let at = find(bytes, key);
            if at < count(bytes) && pair(bytes, at).0 == key {
                set_word(self.change(page)?, 3 + 2 * at, value);
                return Ok(None);
            }
            (at, (key, value))
        };
        if count(self.read(page)?) < PAIRS {
            insert_pair(self.change(page)?, at, new);
            return Ok(None);
        }
        let (half, right) = (PAIRS / 2, self.new_page(level)?);
        let upper = self.read(page)?[16 + 16 * half..].to_vec();
        let bytes = self.change(right)?;
        bytes[16..16 + upper.len()].copy_from_slice(&upper);
        set_word(bytes, 1, (PAIRS - half) as u64);
        set_word(self.change(page)?, 1, half as u64);
        let (page, at) = if at > half { (right, at - half) } else { (page, at) };
        insert_pair(self.change(page)?, at, new);
        Ok(Some((word(&upper, 0), right)))
    }

    /// Writes the pages as they are now to the log, and lets them go to the device.
    fn commit(&mut self) -> Result<()> {
        let changed = self.held.iter().filter(|(_, (_, before))| before.is_some());
        let changed: Vec<_> = changed.map(|(page, (pin, _))| (page, pin)).collect();
        if changed.len() > CHANGES_MAX {
            return Err("the transaction is too large".into());
        }
        let mut record = vec![0; PAGE];
        for (at, (page, pin)) in (3..).zip(&changed) {
            set_word(&mut record, at, **page);
            record.extend_from_slice(self.tree.core.page(pin)?);
        }
        let hash = hash(&record[PAGE..]);
        set_word(&mut record, 0, self.tree.last + 1);
        set_word(&mut record, 1, changed.len() as u64);
        set_word(&mut record, 2, hash);
        if record.len() > PAGE {
            let (offset, end) = (self.tree.log_end, self.tree.log_end + record.len() as u64);
            self.tree.log_end = self.tree.log_bytes; // If it fails, nobody knows what is there: a checkpoint comes first.
            self.tree.log_io(SegmentOp::Write { offset }, record)?;
            self.tree.log_end = end;
        }
        Ok(())
    }

    /// Puts the bytes back that were there before, in memory: nothing else has them. If that fails, the gate stays shut.
    fn undo(&mut self) -> Result<()> {
        let log_bytes = std::mem::take(&mut self.tree.log_bytes);
        let (core, lsn) = (&mut self.tree.core, self.tree.last + 1);
        for (pin, before) in self.held.values() {
            if let Some(before) = before {
                core.change_now(pin, lsn)?.copy_from_slice(before);
            }
        }
        self.tree.log_bytes = log_bytes;
        Ok(())
    }
}

pub(crate) fn run(arguments: &[String]) -> Result<Option<u64>> {
    let [volume, key, value @ ..] = arguments else {
        return Err("usage: btree VOLUME KEY [VALUE]".into());
    };
    let mut core = Core::open(volume.as_ref(), &Config::default())?;
    #[rustfmt::skip]
    core.use_cache(&CacheConfig { bytes: 8 << 20, ..CacheConfig::default() })?;
    let me = Identity::effective();
    let (pages, _) = core.open_segment(me, me.uid, "tree", Access::Write)?;
    let (log, _) = core.open_segment(me, me.uid, "log", Access::Write)?;
    let mut tree = Tree::open(core, pages, log)?;
    let found = tree.transact(|transaction| match value {
        [value] => transaction.put(key.parse()?, value.parse()?).map(|()| None),
        _ => transaction.get(key.parse()?),
    })?;
    tree.core.close()?;
    Ok(found)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    run(&arguments).map(|found| println!("{found:?}"))
}
