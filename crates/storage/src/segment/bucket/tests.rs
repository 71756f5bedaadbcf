//! The format of an image, the rule for zeroes, and the update rule enumerated over the real functions.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use baio_engine::Errno;

use super::*;
use crate::segment::inode::tests::{GEOMETRY, live};

const ID: BucketId = BucketId {
    uuid: [0x11; 16],
    bucket: 5,
};

fn inode(tag: u64) -> Inode {
    let mut operation_id = [0; 16];
    operation_id[..8].copy_from_slice(&tag.to_le_bytes());
    Inode {
        operation_id,
        ..live(1000, "log")
    }
}

/// Generations 1 to `last` written one after the other in epoch 1.
fn chain(last: u64) -> NextImage {
    let first = Image::initial(ID).next(0, &inode(1), 1).unwrap();
    (2..=last).fold(first, |image, tag| {
        image.image().next((tag % 4) as usize, &inode(tag), 1).unwrap()
    })
}

fn flip(page: &Page, bit: usize) -> Page {
    let mut page = page.clone();
    page.bytes_mut()[bit / 8] ^= 1 << (bit % 8);
    page
}

#[test]
fn an_update_replaces_one_slot() {
    let old = chain(3);
    let new = old.image().next(2, &inode(99), 8).unwrap();
    assert_eq!(
        (new.generation(), new.parity(), new.image().epoch()),
        (4, Parity::Even, 8)
    );
    let (before, after) = (old.image().slots(&GEOMETRY), new.image().slots(&GEOMETRY));
    assert_eq!(after[2], Ok(inode(99)));
    for slot in [0, 1, 3] {
        assert_eq!(before[slot], after[slot]);
    }
    assert_eq!(new.image().slot(4, &GEOMETRY), None);
    assert_eq!(
        new.image().next(4, &inode(1), 8),
        Err(BucketError::NoSuchSlot { bucket: 5, slot: 4 })
    );
}

/// Computed by another program from `docs/inside/disk-format.md`: if this changes, the format did.
#[test]
fn the_bytes_are_those_of_the_document() {
    let image = Image::initial(ID).next(2, &live(1000, "log"), 3).unwrap();
    assert_eq!(&image.page().bytes()[4..8], &0x1194_203f_u32.to_le_bytes());
}

#[test]
fn every_flipped_bit_is_rejected() {
    let page = chain(2).page().clone();
    for bit in 0..PAGE_BYTES * 8 {
        let flipped = flip(&page, bit);
        assert!(
            read_one(PageRead::Read(flipped.as_ref()), ID, Parity::Even).is_invalid(),
            "bit {bit}"
        );
    }
}

#[test]
fn each_damage_has_its_own_error() {
    let even = chain(2).page().clone();
    let read = |page: &Page, id, parity| match read_one(PageRead::Read(page.as_ref()), id, parity) {
        Reading::Invalid(error) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(read(&even, ID, Parity::Odd), ImageError::Generation { found: 2 });
    assert_eq!(
        read(&even, BucketId { bucket: 6, ..ID }, Parity::Even),
        ImageError::Misplaced { found: 5 }
    );
    assert_eq!(
        read(&even, BucketId { uuid: [0; 16], ..ID }, Parity::Even),
        ImageError::ForeignVolume
    );
    assert_eq!(read(&flip(&even, 3), ID, Parity::Even), ImageError::Magic);
    assert!(matches!(
        read(&flip(&even, 999), ID, Parity::Even),
        ImageError::Checksum { .. }
    ));
    assert_eq!(
        read_one(PageRead::Read(&even.bytes()[1..]), ID, Parity::Even),
        Reading::Invalid(ImageError::Unread { errno: Errno::EIO })
    );
    let mut zeroth = even.clone();
    zeroth.bytes_mut()[40] = 0;
    let checksum = page::checksum(zeroth.bytes(), CHECKSUM_AT).to_le_bytes();
    zeroth.bytes_mut()[4..8].copy_from_slice(&checksum);
    assert_eq!(read(&zeroth, ID, Parity::Even), ImageError::Generation { found: 0 });
}

#[test]
fn zeroes_are_believed_only_while_they_can_be_true() {
    let zero = Page::zeroed();
    let pages: Vec<Page> = (1..=4).map(|last| chain(last).page().clone()).collect();
    let pair = |even: &Page, odd: &Page| {
        let pair = Pair::read(PageRead::Read(even.as_ref()), PageRead::Read(odd.as_ref()), ID);
        (pair.is_damaged(), pair.newest().map(|image| image.generation()))
    };
    assert_eq!(pair(&zero, &zero), (false, Some(0)));
    assert_eq!(pair(&zero, &pages[0]), (false, Some(1)));
    assert_eq!(pair(&pages[1], &zero), (true, Some(2)));
    assert_eq!(pair(&zero, &pages[2]), (true, Some(3)));
    assert_eq!(pair(&pages[3], &zero), (true, Some(4)));
    // A torn first update beside the initial image: the initial image is still the bucket.
    assert_eq!(pair(&zero, &flip(&pages[0], 77)), (true, Some(0)));
    assert_eq!(
        Pair::read(PageRead::Unread(Errno::EIO), PageRead::Read(zero.as_ref()), ID).newest(),
        None
    );
    assert!(
        Image::initial(ID)
            .slots(&GEOMETRY)
            .iter()
            .all(|slot| *slot == Ok(Inode::free()))
    );
}

#[test]
fn a_bucket_without_a_valid_image_is_named() {
    let rotten = flip(chain(1).page(), 1000);
    let pair = Pair::read(PageRead::Read(rotten.as_ref()), PageRead::Read(rotten.as_ref()), ID);
    assert_eq!(view(&pair), View::NeedsMirror);
    assert_eq!(heal(&pair, &pair, 1, ID), Err(BucketError::Lost { bucket: 5 }));
    let never = Page::zeroed();
    assert_eq!(
        Pair::read(PageRead::Unread(Errno::EIO), PageRead::Read(never.as_ref()), ID).newest(),
        None,
        "`never` is no image that could be served"
    );
}

#[test]
fn a_damaged_older_image_is_restored_from_its_twin() {
    let (older, newer) = (chain(3).page().clone(), chain(4).page().clone());
    let rotten = flip(&older, 500);
    let table = Pair::read(PageRead::Read(newer.as_ref()), PageRead::Read(rotten.as_ref()), ID);
    let mirror = Pair::read(PageRead::Read(newer.as_ref()), PageRead::Read(older.as_ref()), ID);
    let healing = heal(&table, &mirror, 0, ID).unwrap();
    assert_eq!((healing.winner.generation(), healing.rewrite), (4, &[][..]));
    let (place, image) = restore_older(&table, &mirror, &healing.winner).unwrap();
    assert_eq!((place, image.generation()), (Place::Table, 3));
    assert_eq!(restore_older(&mirror, &mirror, &healing.winner), None);
}

/// The pages of table even, table odd, mirror even, mirror odd.
type Images = [Rc<Page>; 4];

/// Pages to be written, each durably before the next, and where.
type Writes = Vec<(usize, Rc<Page>)>;

const HOMES: [(Place, Parity); 4] = [
    (Place::Table, Parity::Even),
    (Place::Table, Parity::Odd),
    (Place::Mirror, Parity::Even),
    (Place::Mirror, Parity::Odd),
];

fn home(place: Place, parity: Parity) -> usize {
    HOMES.iter().position(|at| *at == (place, parity)).unwrap()
}

fn pairs(images: &Images) -> (Pair<'_>, Pair<'_>) {
    let [table_even, table_odd, mirror_even, mirror_odd] =
        images.each_ref().map(|page| PageRead::Read(page.bytes().as_slice()));
    (
        Pair::read(table_even, table_odd, ID),
        Pair::read(mirror_even, mirror_odd, ID),
    )
}

/// Which rule an open after a crash follows.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// The one above.
    Ours,
    /// Ours, and the older image is restored as well, as `check --repair` does.
    Repairing,
    /// Heal only what has an invalid image.
    OnlyInvalid,
    /// Heal only what is of the very last epoch or invalid.
    OnlyLastEpoch,
}

/// `tools/bucket_rule.py`, step by step, on real pages through the real functions.
///
/// A state is what is on the device and what was promised. Claims: (A) an open serves no less than what was acknowledged;
/// (B) what it serves stays what a reader sees after any single later rot, until the next update.
struct Explorer {
    rule: Rule,
    seen: HashSet<([usize; 4], u64, u64, u64, u8, u8)>,
    numbers: HashMap<Box<[u8]>, usize>,
    states: u64,
    violations: u64,
    tag: u64,
}

/// What a path through the states carries along.
#[derive(Clone, Copy)]
struct Path {
    /// The epoch of the present or coming open.
    epoch: u64,
    /// The last epoch that began healed.
    healed: u64,
    /// The last acknowledged generation.
    acked: u64,
    /// Events still to come.
    depth: u8,
    /// Images that may still rot.
    rot: u8,
    /// Whether one has rotted: claim B is about a single one.
    rotted: bool,
}

impl Explorer {
    fn run(rule: Rule, depth: u8, rot: u8) -> Self {
        let (seen, numbers) = (HashSet::new(), HashMap::new());
        let mut explorer = Self {
            rule,
            seen,
            numbers,
            states: 0,
            violations: 0,
            tag: 0,
        };
        let images: Images = std::array::from_fn(|_| Rc::new(Page::zeroed()));
        explorer.serve(
            &images,
            Path {
                epoch: 1,
                healed: 1,
                acked: 0,
                depth,
                rot,
                rotted: false,
            },
        );
        explorer
    }

    /// One number for equal pages, so that states can be compared.
    fn number(&mut self, page: &Page) -> usize {
        if let Some(number) = self.numbers.get(page.as_ref()) {
            return *number;
        }
        let number = self.numbers.len();
        self.numbers.insert(page.as_ref().into(), number);
        number
    }

    /// An open for writing of what a crash left behind.
    fn opened(&mut self, images: &Images, path: Path) {
        let numbers = images.each_ref().map(|page| self.number(page));
        if !self
            .seen
            .insert((numbers, path.epoch, path.healed, path.acked, path.depth, path.rot))
        {
            return;
        }
        self.states += 1;
        let (table, mirror) = pairs(images);
        let Ok((winner, writes)) = self.healing(&table, &mirror, path) else {
            self.violations += 1;
            return;
        };
        if winner.generation() < path.acked {
            self.violations += 1;
            return;
        }
        let crash = Path {
            epoch: path.epoch + 1,
            depth: path.depth.wrapping_sub(1),
            ..path
        };
        for crashed in crashes(images, &writes) {
            if path.depth > 0 {
                self.opened(&crashed, crash);
            }
        }
        let acked = path.acked.max(winner.generation());
        self.serve(
            &written(images, &writes),
            Path {
                healed: path.epoch,
                acked,
                ..path
            },
        );
    }

    /// What the rule under test serves and writes.
    fn healing<'a>(&self, table: &Pair<'a>, mirror: &Pair<'a>, path: Path) -> Result<(Image<'a>, Writes), BucketError> {
        let healed = match self.rule {
            Rule::Ours | Rule::Repairing => path.healed,
            Rule::OnlyInvalid => u64::MAX,
            Rule::OnlyLastEpoch => path.epoch - 1,
        };
        let Healing { winner, rewrite } = heal(table, mirror, healed, ID)?;
        let mut writes = Writes::new();
        if matches!(self.rule, Rule::Ours | Rule::Repairing) {
            let other = winner.parity().other();
            writes.extend(
                bury(table, mirror, &winner).map(|(place, bytes)| (home(place, other), Rc::new(Page::copy_of(bytes)))),
            );
        }
        writes.extend(rewrite.iter().map(|place| write(*place, &winner)));
        if self.rule == Rule::Repairing {
            writes.extend(restore_older(table, mirror, &winner).map(|(place, image)| write(place, &image)));
        }
        Ok((winner, writes))
    }

    /// The bucket is in service: it may rot, be updated, or the process is killed.
    fn serve(&mut self, images: &Images, path: Path) {
        self.states += 1;
        let (table, mirror) = pairs(images);
        let Ok(current) = view_with_mirror(&table, &mirror, ID) else {
            self.violations += 1;
            return;
        };
        if !path.rotted && !self.survives_rot(images, &current) {
            self.violations += 1;
            return;
        }
        if path.depth == 0 {
            return;
        }
        let down = Path {
            epoch: path.epoch + 1,
            healed: path.epoch,
            depth: path.depth - 1,
            ..path
        };
        if path.rot > 0 {
            for place in 0..4 {
                self.opened(
                    &rotten(images, place),
                    Path {
                        rot: path.rot - 1,
                        rotted: true,
                        ..down
                    },
                );
            }
        }
        self.tag += 1;
        let slot = (self.tag % 4) as usize;
        let next = current.next(slot, &inode(self.tag), path.epoch).unwrap();
        let writes = [write(Place::Table, &next.image()), write(Place::Mirror, &next.image())];
        for crashed in crashes(images, &writes) {
            self.opened(&crashed, down);
        }
        let acked = Path {
            acked: next.generation(),
            depth: path.depth - 1,
            ..path
        };
        self.serve(&written(images, &writes), acked);
        self.opened(images, down);
    }

    /// Claim B.
    fn survives_rot(&self, images: &Images, served: &Image<'_>) -> bool {
        (0..4).all(|place| {
            let images = rotten(images, place);
            let (table, mirror) = pairs(&images);
            view_with_mirror(&table, &mirror, ID).is_ok_and(|seen| seen == *served)
        })
    }
}

fn write(place: Place, image: &Image<'_>) -> (usize, Rc<Page>) {
    (home(place, image.parity()), Rc::new(Page::copy_of(image.bytes())))
}

fn written(images: &Images, writes: &[(usize, Rc<Page>)]) -> Images {
    let mut images = images.clone();
    writes.iter().for_each(|(at, page)| images[*at] = Rc::clone(page));
    images
}

/// One image rots: a bit of its header flips, or of its inodes.
fn rotten(images: &Images, place: usize) -> Images {
    let mut images = images.clone();
    images[place] = Rc::new(flip(&images[place], 30_000 + place));
    images
}

/// What a crash may leave of writes that are durable one after the other: each not begun, or torn in its header or later.
fn crashes(images: &Images, writes: &[(usize, Rc<Page>)]) -> Vec<Images> {
    let mut crashed = Vec::new();
    for (count, (at, page)) in writes.iter().enumerate() {
        let before = written(images, &writes[..count]);
        let mut torn = Page::clone(&before[*at]);
        // Behind the header, before the checksum could be right: inside the first inode, which every update leaves
        // different from zero.
        torn.bytes_mut()[..80].copy_from_slice(&page.bytes()[..80]);
        let mut after = before.clone();
        after[*at] = Rc::new(torn);
        crashed.extend([before, after]);
    }
    crashed
}

#[test]
fn no_crash_and_no_rotten_image_takes_back_what_was_served() {
    let explorer = Explorer::run(Rule::Ours, 7, 1);
    println!("{} states, {} different pages", explorer.states, explorer.numbers.len());
    assert_eq!(explorer.violations, 0);
    assert!(explorer.states > 100_000, "only {} states", explorer.states);
}

#[test]
fn restoring_the_older_image_keeps_the_promise() {
    let explorer = Explorer::run(Rule::Repairing, 6, 1);
    assert_eq!(explorer.violations, 0);
}

/// The canary: if these passed, the explorer would prove nothing.
#[test]
fn shorter_rules_fail() {
    assert!(Explorer::run(Rule::OnlyInvalid, 4, 0).violations > 0);
    assert!(Explorer::run(Rule::OnlyLastEpoch, 5, 1).violations > 0);
}
