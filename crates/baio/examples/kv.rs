//! A key-value store whose only durability is the log: what `put` and `delete` have acknowledged is there after a crash at any moment.
//! ```sh
//! baio format /tmp/vol --size 64M && baio create /tmp/vol#kv --size 16M
//! cargo run -p baio --example kv -- /tmp/vol put name Ada && cargo run -p baio --example kv -- /tmp/vol get name
//! ```
//! The pairs are in memory; a record of the log is one change. Any number of threads change pairs: each appends under the lock of
//! the map, so that the log has the order of the map, and waits for its own record without it, so that one write of the device
//! makes many changes durable. A log that is half full is begun anew: all pairs are appended as one group, which is recovered whole
//! or not at all, and when that is durable all before it is given up.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use baio::{Access, Errno, Link, Log, LogOptions, Remote, Segment};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;
const PUT: u8 = 1;
const DELETE: u8 = 2;
/// What follows is all there is: forget what came before.
const ANEW: u8 = 3;

pub(crate) struct Store {
    pairs: Mutex<Pairs>,
    log: Log<Remote>,
    /// Bytes of half the log.
    half: u64,
}

fn record(what: u8, key: &[u8], value: &[u8]) -> Vec<u8> {
    let len = (key.len() as u32).to_le_bytes();
    [&[what], &len[..], key, value].concat()
}

fn apply(pairs: &mut Pairs, record: &[u8]) -> Result<()> {
    let short = "a record that is no change";
    let (what, rest) = record.split_first().ok_or(short)?;
    let (len, rest) = rest.split_first_chunk().ok_or(short)?;
    let (key, value) = rest.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or(short)?;
    match *what {
        PUT => drop(pairs.insert(key.to_vec(), value.to_vec())),
        DELETE => drop(pairs.remove(key)),
        ANEW => pairs.clear(),
        _ => return Err(short.into()),
    }
    Ok(())
}

impl Store {
    /// Reads all that was acknowledged; where nothing was ever written it makes an empty one.
    pub(crate) fn open(segment: &Segment<Remote>) -> Result<Store> {
        let log = segment.open_or_create_log(&LogOptions::default()).wait()?;
        let mut pairs = Pairs::new();
        let mut records = log.records(log.head_lsn());
        while let Some(change) = records.next_record().wait()? {
            apply(&mut pairs, change.payload())?;
        }
        drop(records);
        let (pairs, half) = (Mutex::new(pairs), segment.info().size_bytes / 2);
        Ok(Store { pairs, log, half })
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.pairs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(key)
            .cloned()
    }

    /// Returns when the pair is safe.
    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.change(&record(PUT, key, value))
    }

    pub(crate) fn delete(&self, key: &[u8]) -> Result<()> {
        self.change(&record(DELETE, key, b""))
    }

    fn change(&self, change: &[u8]) -> Result<()> {
        loop {
            let mut pairs = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
            match self.log.append(change) {
                Ok(lsn) => {
                    // Others see it before it is safe; but what they write because of it is safe only with it, for it comes later.
                    apply(&mut pairs, change)?;
                    drop(pairs);
                    self.log.durable(lsn).wait()?;
                    return self.make_room();
                }
                // In memory, or in the log while another one begins it anew.
                Err(error) if matches!(error.errno(), Some(Errno::EAGAIN | Errno::ENOSPC)) => {
                    drop(pairs);
                    self.make_room()?;
                    self.log.room(change.len()).wait()?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// LSNs count bytes; what a crash makes them skip only has this come sooner.
    fn is_half_full(&self) -> bool {
        self.log.end_lsn().0 - self.log.head_lsn().0 > self.half
    }

    /// Begins the log anew when half of it is used. The pairs must find room in the other half.
    fn make_room(&self) -> Result<()> {
        if !self.is_half_full() {
            return Ok(());
        }
        let pairs = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_half_full() {
            return Ok(()); // Another thread has done it.
        }
        let all: Vec<Vec<u8>> = std::iter::once(record(ANEW, b"", b""))
            .chain(pairs.iter().map(|(key, value)| record(PUT, key, value)))
            .collect();
        let first = self.log.end_lsn();
        let last = self
            .log
            .append_all(&all.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        self.log.durable(last).wait()?;
        self.log.truncate(first).wait()?;
        Ok(())
    }
}

pub(crate) fn run(volume: &str, arguments: &[String]) -> Result<String> {
    let link = Remote::open(volume)?;
    let segment = link.open_segment("kv", Access::Write).wait()?;
    let store = Store::open(&segment)?;
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let told = match words[..] {
        ["get", key] => match store.get(key.as_bytes()) {
            Some(value) => String::from_utf8_lossy(&value).into_owned(),
            None => return Err("no such key".into()),
        },
        ["put", key, value] => store.put(key.as_bytes(), value.as_bytes()).map(|()| "safe".into())?,
        ["delete", key] => store.delete(key.as_bytes()).map(|()| "gone".into())?,
        _ => return Err("usage: kv VOLUME get KEY | put KEY VALUE | delete KEY".into()),
    };
    drop(store);
    link.close()?;
    Ok(told)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (volume, rest) = arguments
        .split_first()
        .ok_or("usage: kv VOLUME get KEY | put KEY VALUE | delete KEY")?;
    println!("{}", run(volume, rest)?);
    Ok(())
}
