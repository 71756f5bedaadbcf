//! Which frame holds which page: a radix tree of 64-way nodes with tags (seed 001 §6).
//!
//! A page index is read six bits at a time from the top, and each six bits choose one of a node's 64 slots; the slots of the
//! lowest nodes hold frame numbers, those of the others hold nodes. Beside its slots a node has one bitmap per [`Tag`], and
//! one for what is there at all. **A bit above says that a page below has the tag**: so the ten dirty pages among a million
//! are found by going down only where the bit is set, and a subtree without the tag costs nothing.
//!
//! ```text
//!   height 2     root   there 0b101            Dirty 0b100
//!                       slot 0 |  slot 2 \
//!   height 1     node   there 0b1     node   there 0b11   Dirty 0b10
//!                       page 0               page 128, page 129 (dirty)
//! ```
//!
//! The tree is as high as its highest page asks: one node for 64 pages, three levels for a GiB, eleven for any `u64`. It
//! grows and shrinks at the root. A tree of its first page alone has no node: the root is that page's frame, so that a small file
//! costs neither the memory of a node nor the way there. Nodes lie in one `Vec`, name each other by number and are freed when nothing is left in
//! them; a node is 296 bytes, so a page of a densely cached range costs five. No walk recurses: its path is eleven numbers.
//!
//! Who looks at a page mostly looks at its neighbours too, and tags them: so the last few **leaves**, the lowest nodes, are
//! remembered by what they stand for, and a walk from the root is needed only where what is above a leaf changes: with its
//! first and its last page, and with its first and last page of a tag.

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::TryReserveError;
use std::ops::Range;

/// What one slot index takes of a page index.
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// Eleven times six bits hold any `u64`.
const HEIGHT_MAX: usize = u64::BITS.div_ceil(BITS) as usize;
/// No node: the end of the free list, the root of an empty tree.
const NONE: u32 = u32::MAX;
/// The bitmap of what is there, before those of the tags.
const THERE: usize = 0;
const MAPS: usize = 5;
/// Leaves that are remembered; a power of two.
const LEAVES: usize = 8;
/// A tree that became empty keeps the memory of so many nodes.
const NODES_KEPT: usize = 64;

/// A state of a page by which a tree finds it. A page may have any of them at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// Newer than the device.
    Dirty,
    /// A write of it is in flight.
    WriteBack,
    /// Written, and no flush has covered the write yet.
    Unflushed,
    /// Its last write or flush failed.
    Failed,
}

impl Tag {
    /// All of them.
    pub const ALL: [Tag; 4] = [Tag::Dirty, Tag::WriteBack, Tag::Unflushed, Tag::Failed];

    fn map(self) -> usize {
        1 + self as usize
    }
}

#[derive(Clone, Copy, Debug)]
struct Node {
    /// [`THERE`], then one per tag. A tag's bit is only ever set where the bit of `THERE` is.
    maps: [u64; MAPS],
    /// Frames in the lowest nodes, else nodes; in a free node the first is the next free one.
    slots: [u32; SLOTS],
}

const EMPTY: Node = Node {
    maps: [0; MAPS],
    slots: [NONE; SLOTS],
};

/// The nodes from the lowest, at 0, to the root.
type Path = [u32; HEIGHT_MAX];

/// The pages of one object: page index to frame number, with tags. In the order in which a look-up asks.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Tree {
    /// A node; the frame of page 0 if that is alone.
    root: u32,
    /// Page 0 if it is alone: a bit for each map in which it is. Else 0.
    alone: u8,
    /// Levels of nodes; 0 if there is no page, or page 0 alone.
    height: usize,
    nodes: Vec<Node>,
    /// First of the free nodes, chained through their first slots.
    free: u32,
    free_nodes: usize,
    pages: usize,
    /// Lowest nodes that were met last, each with its index: that of its pages without what it takes of them itself.
    leaves: [Cell<(u64, u32)>; LEAVES],
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// An empty tree, which takes no memory.
    pub const fn new() -> Self {
        Self {
            root: NONE,
            alone: 0,
            height: 0,
            nodes: Vec::new(),
            free: NONE,
            free_nodes: 0,
            pages: 0,
            leaves: [const { Cell::new((0, NONE)) }; LEAVES],
        }
    }

    /// Pages in the tree.
    pub fn len(&self) -> usize {
        self.pages
    }

    /// Is there no page?
    pub fn is_empty(&self) -> bool {
        self.pages == 0
    }

    /// The frame of a page.
    pub fn get(&self, index: u64) -> Option<u32> {
        if self.height == 0 {
            return self.is_alone(index, THERE).then_some(self.root);
        }
        let leaf = self.node(self.leaf(index)?);
        let slot = slot_of(index, 0);
        (leaf.maps[THERE] & bit(slot) != 0).then_some(leaf.slots[slot])
    }

    /// Is it the page that is alone, and in this map?
    fn is_alone(&self, index: u64, map: usize) -> bool {
        index == 0 && self.alone & 1 << map != 0
    }

    /// The lowest node that the page lies in, or would lie in.
    fn leaf(&self, index: u64) -> Option<u32> {
        let name = index >> BITS;
        if self.height == 1 && name == 0 {
            return Some(self.root);
        }
        let place = &self.leaves[name as usize % LEAVES];
        let (known, leaf) = place.get();
        if known == name && leaf != NONE {
            return Some(leaf);
        }
        if !reaches(self.height, index) {
            return None;
        }
        let mut at = self.root;
        for level in (1..self.height).rev() {
            let (node, slot) = (self.node(at), slot_of(index, level));
            if node.maps[THERE] & bit(slot) == 0 {
                return None;
            }
            at = node.slots[slot];
        }
        place.set((name, at));
        Some(at)
    }

    fn forget_leaf(&mut self, index: u64) {
        self.leaves[(index >> BITS) as usize % LEAVES].set((0, NONE));
    }

    /// Makes room for the nodes of the next [`insert`](Self::insert), if it is of this page, so that it needs no memory.
    pub fn reserve(&mut self, index: u64) -> Result<(), TryReserveError> {
        self.nodes
            .try_reserve(self.nodes_for(index).saturating_sub(self.free_nodes))
    }

    /// Nodes that an insert may take: roots above the old one, and a path below the newest.
    fn nodes_for(&self, index: u64) -> usize {
        if self.height == 0 && index == 0 {
            return 0;
        }
        let levels = (u64::BITS - index.leading_zeros()).div_ceil(BITS) as usize;
        let levels = levels.max(self.height).max(1);
        (levels - self.height) + (levels - 1)
    }

    /// Puts a page in and gives the frame that it had before. Tags are the page's, not the frame's: a page that gets
    /// another frame keeps them, a new one has none.
    pub fn insert(&mut self, index: u64, frame: u32) -> Option<u32> {
        if self.height == 0 {
            if index == 0 {
                let old = (self.alone != 0).then_some(self.root);
                (self.root, self.pages) = (frame, 1);
                self.alone |= 1 << THERE;
                return old;
            }
            self.make_leaf();
        }
        if let Some(leaf) = self.leaf(index) {
            return self.insert_into(leaf, index, frame);
        }
        self.grow(index);
        let mut at = self.root;
        for level in (1..self.height).rev() {
            let slot = slot_of(index, level);
            at = if self.node(at).maps[THERE] & bit(slot) == 0 {
                let child = self.allocate();
                self.set_slot(at, slot, child);
                child
            } else {
                self.node(at).slots[slot]
            };
        }
        self.insert_into(at, index, frame)
    }

    /// Gives the page that is alone, if there is one, a node.
    fn make_leaf(&mut self) {
        if self.alone == 0 {
            return;
        }
        let (frame, alone) = (self.root, std::mem::take(&mut self.alone));
        self.root = self.allocate();
        self.height = 1;
        self.set_slot(self.root, 0, frame);
        for (nth, map) in self.nodes[self.root as usize].maps.iter_mut().enumerate() {
            *map = u64::from(alone >> nth & 1);
        }
    }

    fn insert_into(&mut self, at: u32, index: u64, frame: u32) -> Option<u32> {
        let slot = slot_of(index, 0);
        let old = self.node(at);
        let old = (old.maps[THERE] & bit(slot) != 0).then_some(old.slots[slot]);
        self.set_slot(at, slot, frame);
        self.pages += usize::from(old.is_none());
        old
    }

    /// Takes a page out, with its tags.
    pub fn remove(&mut self, index: u64) -> Option<u32> {
        if self.is_alone(index, THERE) {
            let frame = self.root;
            (self.alone, self.pages) = (0, 0);
            self.shrink();
            return Some(frame);
        }
        let slot = slot_of(index, 0);
        let leaf = self.leaf(index)?;
        let node = &mut self.nodes[leaf as usize];
        if node.maps[THERE] & bit(slot) == 0 {
            return None;
        }
        let frame = node.slots[slot];
        let was_last = |map: u64| map == bit(slot);
        if !node.maps.iter().copied().any(was_last) {
            // Nothing changes above.
            for map in &mut node.maps {
                *map &= !bit(slot);
            }
            self.pages -= 1;
            return Some(frame);
        }
        let path = self.path(index)?;
        for map in 0..MAPS {
            self.clear(&path, index, map);
        }
        if self.node(leaf).maps[THERE] == 0 {
            self.forget_leaf(index);
        }
        for &at in &path[..self.height] {
            if self.node(at).maps[THERE] == 0 {
                self.release(at);
            }
        }
        self.pages -= 1;
        self.shrink();
        Some(frame)
    }

    /// Tags a page, and says whether there is one to tag.
    pub fn tag(&mut self, index: u64, tag: Tag) -> bool {
        if self.is_alone(index, THERE) {
            self.alone |= 1 << tag.map();
            return true;
        }
        let Some(leaf) = self.leaf(index) else {
            return false;
        };
        let (node, bit_of) = (&mut self.nodes[leaf as usize], bit(slot_of(index, 0)));
        if node.maps[THERE] & bit_of == 0 {
            return false;
        }
        let was_tagged = node.maps[tag.map()] != 0;
        node.maps[tag.map()] |= bit_of;
        if was_tagged {
            return true; // And so is everything above.
        }
        let Some(path) = self.path(index) else {
            return false;
        };
        for (level, &at) in path[..self.height].iter().enumerate().skip(1) {
            let (map, bit) = (&mut self.nodes[at as usize].maps[tag.map()], bit(slot_of(index, level)));
            if *map & bit != 0 {
                break;
            }
            *map |= bit;
        }
        true
    }

    /// Takes a tag off a page; nothing happens if it is not tagged or not there.
    pub fn untag(&mut self, index: u64, tag: Tag) {
        if self.is_alone(index, THERE) {
            self.alone &= !(1 << tag.map());
            return;
        }
        let Some(leaf) = self.leaf(index) else { return };
        let map = &mut self.nodes[leaf as usize].maps[tag.map()];
        let left = *map & !bit(slot_of(index, 0));
        if left != 0 || *map == 0 {
            *map = left;
        } else if let Some(path) = self.path(index) {
            self.clear(&path, index, tag.map());
        }
    }

    /// Is the page there and has the tag?
    pub fn is_tagged(&self, index: u64, tag: Tag) -> bool {
        let has_it = |leaf| self.node(leaf).maps[tag.map()] & bit(slot_of(index, 0)) != 0;
        self.is_alone(index, tag.map()) || self.leaf(index).is_some_and(has_it)
    }

    /// Has any page the tag?
    pub fn any(&self, tag: Tag) -> bool {
        self.is_alone(0, tag.map()) || (self.height > 0 && self.node(self.root).maps[tag.map()] != 0)
    }

    /// Is any of these pages there? Looks at a node for each 64 of them: for short ranges.
    pub fn any_of(&self, pages: Range<u64>) -> bool {
        if pages.is_empty() {
            return false;
        }
        if self.is_alone(pages.start, THERE) {
            return true;
        }
        let (mut first, last) = (pages.start, pages.end - 1);
        loop {
            let end = (first | (SLOTS as u64 - 1)).min(last);
            let asked = at_or_after(slot_of(first, 0)) & !(at_or_after(slot_of(end, 0)) << 1);
            let leaf = self.leaf(first);
            if leaf.is_some_and(|leaf| self.node(leaf).maps[THERE] & asked != 0) {
                return true;
            }
            if end == last {
                return false;
            }
            first = end + 1;
        }
    }

    /// The first pages at or after `from`, with the tag if one is named, ascending: fills `out` with (index, frame) and
    /// says how many there are. Fewer than `out` holds means that no more follow.
    pub fn gang(&self, from: u64, tag: Option<Tag>, out: &mut [(u64, u32)]) -> usize {
        self.walk(from, tag.map_or(THERE, Tag::map), out).found
    }

    /// The first page at or after `from`, with the tag if one is named.
    pub fn next(&self, from: u64, tag: Option<Tag>) -> Option<(u64, u32)> {
        let mut out = [(0, 0)];
        (self.gang(from, tag, &mut out) == 1).then_some(out[0])
    }

    fn walk(&self, from: u64, map: usize, out: &mut [(u64, u32)]) -> Walked {
        let mut walked = Walked { found: 0, visited: 0 };
        if let (Some(first), true) = (out.first_mut(), self.is_alone(from, map)) {
            *first = (0, self.root);
            walked.found = 1;
            return walked;
        }
        if out.is_empty() || !reaches(self.height, from) {
            return walked;
        }
        // Per level the node and what is still to be looked at in it.
        let (mut path, mut left) = ([NONE; HEIGHT_MAX], [0; HEIGHT_MAX]);
        let mut level = self.height - 1;
        path[level] = self.root;
        left[level] = self.node(self.root).maps[map] & at_or_after(slot_of(from, level));
        walked.visited = 1;
        let mut index = 0;
        // True while all slots chosen so far are those of `from`: only then may slots of the node below lie before it.
        let mut on_edge = true;
        loop {
            if left[level] == 0 {
                level += 1;
                if level == self.height {
                    return walked;
                }
                continue;
            }
            let slot = left[level].trailing_zeros() as usize;
            left[level] &= left[level] - 1;
            let shift = BITS * level as u32;
            index = index & !((SLOTS as u64 - 1) << shift) | (slot as u64) << shift;
            let below = self.node(path[level]).slots[slot];
            if level == 0 {
                out[walked.found] = (index, below);
                walked.found += 1;
                if walked.found == out.len() {
                    return walked;
                }
                continue;
            }
            on_edge &= slot == slot_of(from, level);
            level -= 1;
            path[level] = below;
            left[level] = self.node(below).maps[map];
            if on_edge {
                left[level] &= at_or_after(slot_of(from, level));
            }
            walked.visited += 1;
        }
    }

    /// The nodes of a page that is there.
    fn path(&self, index: u64) -> Option<Path> {
        if !reaches(self.height, index) {
            return None;
        }
        let mut path = [NONE; HEIGHT_MAX];
        let mut at = self.root;
        for level in (0..self.height).rev() {
            path[level] = at;
            let (node, slot) = (self.node(at), slot_of(index, level));
            if node.maps[THERE] & bit(slot) == 0 {
                return None;
            }
            at = node.slots[slot];
        }
        Some(path)
    }

    /// Clears a page's bit, and above it the bit of every node in which none is left.
    fn clear(&mut self, path: &Path, index: u64, map: usize) {
        for (level, &at) in path[..self.height].iter().enumerate() {
            let map = &mut self.nodes[at as usize].maps[map];
            *map &= !bit(slot_of(index, level));
            if *map != 0 {
                break;
            }
        }
    }

    /// Puts roots above the root until the tree reaches the index.
    fn grow(&mut self, index: u64) {
        if self.height == 0 {
            self.root = self.allocate();
            self.height = 1;
        }
        while !reaches(self.height, index) {
            let below = self.root;
            self.root = self.allocate();
            self.height += 1;
            let maps = self.node(below).maps;
            // What lay below lies in the first slot now. In a new tree that is nothing yet.
            if maps[THERE] == 0 {
                self.release(below);
                continue;
            }
            for (map, below) in self.nodes[self.root as usize].maps.iter_mut().zip(maps) {
                *map = u64::from(below != 0);
            }
            self.nodes[self.root as usize].slots[0] = below;
        }
    }

    /// Takes off the roots that nothing but their first slot needs.
    fn shrink(&mut self) {
        if self.pages == 0 {
            (self.root, self.height) = (NONE, 0);
            // A long-lived object would otherwise keep the memory of its best day.
            if self.nodes.capacity() > NODES_KEPT {
                *self = Self::new();
            }
        }
        while self.height > 1 && self.node(self.root).maps[THERE] == bit(0) {
            let above = self.root;
            self.root = self.node(above).slots[0];
            self.height -= 1;
            self.release(above);
        }
    }

    fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    fn set_slot(&mut self, at: u32, slot: usize, to: u32) {
        let node = &mut self.nodes[at as usize];
        node.slots[slot] = to;
        node.maps[THERE] |= bit(slot);
    }

    fn allocate(&mut self) -> u32 {
        if self.free == NONE {
            self.nodes.push(EMPTY);
            // A frame costs at most eleven nodes, and 2^32 nodes would be more than a TiB of them.
            return (self.nodes.len() - 1) as u32;
        }
        let at = self.free;
        self.free = self.node(at).slots[0];
        self.free_nodes -= 1;
        self.nodes[at as usize] = EMPTY;
        at
    }

    fn release(&mut self, at: u32) {
        self.nodes[at as usize].slots[0] = self.free;
        self.free = at;
        self.free_nodes += 1;
    }
}

/// What a walk did.
struct Walked {
    found: usize,
    /// Nodes looked into: what a look-up costs, and what its tests count.
    #[cfg_attr(not(test), allow(dead_code))]
    visited: usize,
}

/// Has a tree of so many levels a place for the index?
fn reaches(height: usize, index: u64) -> bool {
    match height {
        0 => false,
        HEIGHT_MAX.. => true,
        height => index >> (BITS * height as u32) == 0,
    }
}

fn slot_of(index: u64, level: usize) -> usize {
    (index >> (BITS * level as u32)) as usize % SLOTS
}

fn bit(slot: usize) -> u64 {
    1 << slot
}

fn at_or_after(slot: usize) -> u64 {
    u64::MAX << slot
}
