//! Names that a repair makes. It needs a name that hashes to a given bucket. The hash is keyed, so only trying finds one. A name that hashes
//! to another bucket is kept, for a repair that needs that bucket later.

use std::collections::BTreeMap;

use crate::segment::name::{Key, SegmentName};
use crate::segment::superblock::Superblock;

/// The names made so far.
pub(super) struct MadeNames {
    hash_seed: [u8; 16],
    buckets: u64,
    /// The last number tried, of each owner: no number is tried twice, so no name is made twice.
    tried: BTreeMap<u32, u64>,
    /// For this owner: a number whose name has its home in the bucket, of each bucket; 0 for none.
    owner: Option<u32>,
    number: Vec<u64>,
}

impl MadeNames {
    pub(super) fn new(superblock: &Superblock) -> MadeNames {
        MadeNames {
            hash_seed: superblock.hash_seed,
            buckets: superblock.layout().buckets(),
            tried: BTreeMap::new(),
            owner: None,
            number: Vec::new(),
        }
    }

    /// A name for a segment of that owner whose home is the bucket, and whose hash nobody has.
    pub(super) fn take(&mut self, owner: u32, bucket: u64, is_taken: impl Fn(u64) -> bool) -> Option<SegmentName> {
        let buckets = usize::try_from(self.buckets).ok()?;
        if self.owner != Some(owner) {
            self.owner = Some(owner);
            self.number.clear();
            self.number.resize(buckets, 0);
        }
        let wanted = usize::try_from(bucket).ok().filter(|wanted| *wanted < buckets)?;
        let tried = self.tried.entry(owner).or_default();
        // Every try hits with the chance of one in so many buckets.
        let last = tried.saturating_add(self.buckets.saturating_mul(64).saturating_add(1024));
        while self.number[wanted] == 0 && *tried < last {
            *tried += 1;
            let hash = Key::segment(owner, name_of(*tried)?).hash(&self.hash_seed);
            let home = (hash % self.buckets) as usize;
            if self.number[home] == 0 && !is_taken(hash) {
                self.number[home] = *tried;
            }
        }
        match std::mem::take(&mut self.number[wanted]) {
            0 => None,
            number => name_of(number),
        }
    }
}

fn name_of(number: u64) -> Option<SegmentName> {
    SegmentName::new(&format!("recovered-{number}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(buckets: u64) -> MadeNames {
        MadeNames {
            hash_seed: [7; 16],
            buckets,
            tried: BTreeMap::new(),
            owner: None,
            number: Vec::new(),
        }
    }

    #[test]
    fn a_name_has_its_home_in_the_bucket_and_is_made_once() {
        let mut names = names(50);
        let mut made = std::collections::BTreeSet::new();
        for turn in 0..600 {
            let (owner, bucket) = (turn % 3, u64::from(turn) * 7 % 50);
            let is_taken = |hash: u64| hash.is_multiple_of(7);
            let name = names.take(owner, bucket, is_taken).unwrap();
            let hash = Key::segment(owner, name.clone()).hash(&[7; 16]);
            assert!(hash % 50 == bucket && !is_taken(hash));
            assert!(
                made.insert((owner, name.as_str().to_owned())),
                "{} twice",
                name.as_str()
            );
        }
    }

    #[test]
    fn many_names_cost_hardly_more_tries_than_one() {
        let mut names = names(20_000);
        for bucket in (0..20_000).step_by(5) {
            names.take(1, bucket, |_| false).unwrap();
        }
        // One by one it would be 20,000 for each of the 4,000.
        assert!(names.tried[&1] < 20_000 * 64, "{} tries", names.tried[&1]);
    }
}
