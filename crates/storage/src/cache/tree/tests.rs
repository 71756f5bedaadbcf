//! The tree against a `BTreeMap`, its invariants after every step, and the number of nodes that a look-up visits.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// Every node that can be reached, looked at: what is above says exactly what is below, none is empty, none is lost.
fn check(tree: &Tree) {
    let mut reached = BTreeSet::new();
    let mut pages = usize::from(tree.alone & 1);
    assert!(
        tree.alone == 0 || (tree.height == 0 && pages == 1),
        "a page is alone and is not"
    );
    let mut todo = Vec::new();
    if tree.height > 0 {
        todo.push((tree.root, tree.height - 1));
    }
    while let Some((at, level)) = todo.pop() {
        assert!(reached.insert(at), "a node is in the tree twice");
        let node = tree.node(at);
        assert_ne!(node.maps[THERE], 0, "an empty node was kept");
        for slot in 0..SLOTS {
            let there = node.maps[THERE] & bit(slot) != 0;
            for map in THERE + 1..MAPS {
                let tagged = node.maps[map] & bit(slot) != 0;
                assert!(there || !tagged);
                if there && level > 0 {
                    assert_eq!(tagged, tree.node(node.slots[slot]).maps[map] != 0);
                }
            }
            match (there, level) {
                (false, _) => {}
                (true, 0) => pages += 1,
                (true, _) => todo.push((node.slots[slot], level - 1)),
            }
        }
    }
    assert_eq!(pages, tree.len());
    assert_eq!(tree.height == 0, tree.is_empty() || tree.alone != 0);
    assert!(
        tree.height <= 1 || tree.node(tree.root).maps[THERE] != bit(0),
        "a root too many"
    );
    let mut free = 0;
    let mut at = tree.free;
    while at != NONE {
        assert!(reached.insert(at), "a free node is in use");
        free += 1;
        at = tree.node(at).slots[0];
    }
    assert_eq!(free, tree.free_nodes);
    assert_eq!(reached.len(), tree.nodes.len(), "a node was lost");
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, u32),
    Remove(u64),
    /// Removes the page at or after this.
    RemoveNext(u64),
    Tag(u64, Tag),
    Untag(u64, Tag),
    Gang(u64, Option<Tag>, usize),
}

/// Few enough to meet again, at every height and at both ends.
fn an_index() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..200u64,
        2 => (0..64u32, 0..3u64).prop_map(|(power, past)| (1u64 << power).wrapping_add(past).wrapping_sub(1)),
        1 => (0..4u64).prop_map(|back| u64::MAX - back),
        1 => any::<u64>(),
    ]
}

fn a_tag() -> impl Strategy<Value = Tag> {
    prop::sample::select(Tag::ALL.to_vec())
}

fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (an_index(), any::<u32>()).prop_map(|(index, frame)| Step::Insert(index, frame)),
        2 => an_index().prop_map(Step::Remove),
        2 => an_index().prop_map(Step::RemoveNext),
        4 => (an_index(), a_tag()).prop_map(|(index, tag)| Step::Tag(index, tag)),
        2 => (an_index(), a_tag()).prop_map(|(index, tag)| Step::Untag(index, tag)),
        2 => (an_index(), prop::option::of(a_tag()), 0..9usize).prop_map(|(from, tag, most)| Step::Gang(from, tag, most)),
    ]
}

/// A page of the model: its frame, and which tags it has.
type Page = (u32, [bool; 4]);

fn compare(tree: &Tree, model: &BTreeMap<u64, Page>) {
    assert_eq!(tree.len(), model.len());
    for (&index, &(frame, tags)) in model {
        assert_eq!(tree.get(index), Some(frame));
        for tag in Tag::ALL {
            assert_eq!(tree.is_tagged(index, tag), tags[tag as usize]);
        }
        if let Some(other) = index.checked_add(1).filter(|other| !model.contains_key(other)) {
            assert_eq!(tree.get(other), None);
        }
    }
    for tag in Tag::ALL {
        assert_eq!(tree.any(tag), model.values().any(|page| page.1[tag as usize]));
    }
    let mut out = vec![(0, 0); model.len() + 1];
    for tag in [None].into_iter().chain(Tag::ALL.map(Some)) {
        let found = tree.gang(0, tag, &mut out);
        assert_eq!(out[..found], *expected(model, 0, tag, usize::MAX));
    }
}

fn expected(model: &BTreeMap<u64, Page>, from: u64, tag: Option<Tag>, most: usize) -> Vec<(u64, u32)> {
    model
        .range(from..)
        .filter(|(_, page)| tag.is_none_or(|tag| page.1[tag as usize]))
        .map(|(&index, page)| (index, page.0))
        .take(most)
        .collect()
}

proptest! {
    #[test]
    fn is_a_map_with_tags(steps in prop::collection::vec(a_step(), 1..120)) {
        let mut tree = Tree::new();
        let mut model = BTreeMap::<u64, Page>::new();
        for step in steps {
            match step {
                Step::Insert(index, frame) => {
                    let tags = model.get(&index).map_or([false; 4], |page| page.1);
                    prop_assert_eq!(tree.insert(index, frame), model.insert(index, (frame, tags)).map(|page| page.0));
                }
                Step::Remove(index) => {
                    prop_assert_eq!(tree.remove(index), model.remove(&index).map(|page| page.0));
                }
                Step::RemoveNext(from) => {
                    let next = model.range(from..).next().map(|(&index, page)| (index, page.0));
                    prop_assert_eq!(tree.next(from, None), next);
                    if let Some((index, frame)) = next {
                        prop_assert_eq!(tree.remove(index), Some(frame));
                        model.remove(&index);
                    }
                }
                Step::Tag(index, tag) => {
                    let page = model.get_mut(&index);
                    prop_assert_eq!(tree.tag(index, tag), page.is_some());
                    if let Some(page) = page {
                        page.1[tag as usize] = true;
                    }
                }
                Step::Untag(index, tag) => {
                    tree.untag(index, tag);
                    if let Some(page) = model.get_mut(&index) {
                        page.1[tag as usize] = false;
                    }
                }
                Step::Gang(from, tag, most) => {
                    let mut out = vec![(u64::MAX, u32::MAX); most];
                    let found = tree.gang(from, tag, &mut out);
                    let range = from..from.saturating_add(most as u64 * 20);
                    prop_assert_eq!(tree.any_of(range.clone()), model.range(range).next().is_some());
                    prop_assert_eq!(&out[..found], &*expected(&model, from, tag, most));
                }
            }
            check(&tree);
            compare(&tree, &model);
        }
        while let Some((index, frame)) = tree.next(0, None) {
            prop_assert_eq!(tree.remove(index), Some(frame));
            check(&tree);
        }
    }
}

/// The cost that seed 001 §6 promises: the levels of the tree per tagged page, however many pages are there.
#[test]
fn ten_dirty_among_a_million_take_few_visits() {
    let mut tree = Tree::new();
    for index in 0..1_000_000u64 {
        tree.insert(index, index as u32);
    }
    let dirty: Vec<(u64, u32)> = (0..10).map(|n| (n * 99_991 + 77, (n * 99_991 + 77) as u32)).collect();
    for &(index, _) in &dirty {
        assert!(tree.tag(index, Tag::Dirty));
    }
    let mut out = [(0, 0); 16];
    let walked = tree.walk(0, Tag::Dirty.map(), &mut out);
    assert_eq!(out[..walked.found], *dirty);
    assert!(walked.visited <= 10 * tree.height, "visited {} nodes", walked.visited);
    // With none there it is the root alone.
    assert_eq!(tree.walk(0, Tag::Failed.map(), &mut out).visited, 1);
    // A densely cached page costs little memory.
    assert!(tree.nodes.len() * size_of::<Node>() < 5 * tree.len());
    assert_eq!(size_of::<Node>(), 296);
}

#[test]
fn reserved_room_is_enough_for_any_insert() {
    // The most that an insert can ask: from no level to eleven, and a path that shares nothing.
    let mut tree = Tree::new();
    tree.insert(0, 0);
    let most = tree.nodes_for(u64::MAX);
    tree.insert(u64::MAX, 1);
    assert_eq!((tree.nodes.len(), most), (2 * HEIGHT_MAX - 1, 2 * HEIGHT_MAX - 1));

    let mut tree = Tree::new();
    for index in [0, u64::MAX, 1 << 40, 77, 1 << 62] {
        tree.reserve(index).unwrap();
        let room = tree.nodes.capacity();
        tree.insert(index, 1);
        assert_eq!(tree.nodes.capacity(), room, "insert({index}) asked for memory");
    }
}

#[test]
fn an_empty_tree_gives_its_memory_back() {
    let mut tree = Tree::new();
    for index in 0..100_000 {
        tree.insert(index, 1);
    }
    for index in 0..100_000 {
        tree.remove(index);
    }
    assert!(tree.nodes.capacity() <= NODES_KEPT);
    check(&tree);
}

#[test]
fn a_first_page_alone_takes_no_node() {
    let mut tree = Tree::new();
    tree.reserve(0).unwrap();
    tree.insert(0, 7);
    tree.tag(0, Tag::Failed);
    assert_eq!(tree.nodes.capacity(), 0);
    tree.insert(5, 8);
    check(&tree);
    let mut out = [(0, 0); 3];
    assert_eq!(
        (tree.gang(0, None, &mut out), out[..2].to_vec()),
        (2, vec![(0, 7), (5, 8)])
    );
    assert_eq!(tree.next(0, Some(Tag::Failed)), Some((0, 7)));
    assert!(tree.any_of(0..1) && tree.any_of(5..9) && !tree.any_of(1..5) && !tree.any_of(6..1000));
}
