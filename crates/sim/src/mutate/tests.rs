use baio_engine::sim::Random;

use super::*;
use crate::oracle::Expectation;
use crate::workload::{ByChance, Counts, Ids, Session, State, run_session};
use crate::world::World;

fn session() -> (Session, Layout) {
    let world = World::new(5).unwrap();
    let state = State::after_power_cut(world.disk, Expectation::default());
    let (mut random, mut ids) = (Random::from(&[5]), Ids::default());
    let mut guide = ByChance::new(&mut random, &mut ids, 60, false);
    let session = run_session(state, &mut guide, &mut Counts::default()).unwrap();
    (session, world.layout)
}

/// What an operation writes, in order, is what `docs/inside/disk-format.md` says; so the weakenings hit what they name.
#[test]
fn records_are_understood() {
    let (session, layout) = session();
    let scenes = scenes(&session.record, &session.ops, &layout);
    let mut stories: Vec<(During, Vec<What>)> = vec![(During::Opening, Vec::new())];
    for scene in &scenes {
        if let Some((_, story)) = stories.last_mut()
            && scene.what != What::Mark
        {
            story.push(scene.what);
        } else {
            stories.push((During::Idle, Vec::new()));
        }
        if let Some(last) = stories.last_mut()
            && !last.1.is_empty()
        {
            last.0 = scene.during;
        }
    }
    let superblock = |role| (0..4).map(move |copy| What::Superblock(copy, role));
    let mut told = 0;
    for (during, mut story) in stories {
        let expected: Vec<What> = match during {
            During::Create => vec![What::Data, What::Flush, What::Table, What::Mirror],
            During::Delete => vec![What::Table, What::Mirror],
            During::Write | During::WriteDurable => vec![What::Data],
            During::Sync => vec![What::Flush],
            During::Close => {
                let flush_and_note: Vec<What> = [What::Flush].into_iter().chain(superblock(Role::Clean)).collect();
                story.retain(|what| *what != What::Snapshot);
                story.dedup();
                flush_and_note
            }
            During::Rename => {
                let updates = [What::Table, What::Mirror].repeat(story.len() / 2);
                assert!(story.len() <= 4, "{story:?}");
                updates
            }
            During::Resize | During::Move | During::Quota | During::Together => {
                let is_update = |pair: &[What]| pair == [What::Table, What::Mirror];
                assert!(
                    story.is_empty() || story.windows(2).last().is_some_and(is_update),
                    "{story:?}"
                );
                continue;
            }
            During::Grow => {
                assert!(
                    story
                        .iter()
                        .all(|what| matches!(what, What::Superblock(..) | What::Flush))
                );
                continue;
            }
            During::Opening => {
                let raise: Vec<What> = [What::Flush].into_iter().chain(superblock(Role::Raise)).collect();
                let and_note: Vec<What> = raise.iter().copied().chain(superblock(Role::Note)).collect();
                assert!(story == raise || story == and_note, "{story:?}");
                continue;
            }
            // A create that is refused has zeroed free blocks beside its look-up.
            During::Idle => story
                .iter()
                .copied()
                .filter(|what| matches!(what, What::Data | What::Flush))
                .collect(),
        };
        assert_eq!(story, expected, "{during:?}");
        told += 1;
    }
    assert!(told > 20);
}

fn write(offset: u64, durable: bool) -> Record {
    Record::Write {
        offset,
        bytes: vec![1; 512].into(),
        durable,
        under_way: 0,
    }
}

fn weaken(how: How) -> Vec<Record> {
    let (_, layout) = session();
    let table = layout.image_at(
        0,
        baio_storage::segment::layout::Parity::Odd,
        baio_storage::segment::layout::Place::Table,
    );
    let record = vec![
        write(table.unwrap(), true),
        write(layout.data_at(), false),
        Record::Sync,
        Record::Mark(0),
    ];
    let weakening = Weakening {
        how,
        concerns: |scene| scene.what == What::Table,
        ..ALL[0]
    };
    weakening.apply(record, &[], &layout)
}

#[test]
fn a_record_is_weakened_as_told() {
    let (_, layout) = session();
    let table = layout.table_at() + 4096;
    let (data, sync, mark) = (write(layout.data_at(), false), Record::Sync, Record::Mark(0));
    let clone = |records: [&Record; 4]| records.map(Record::clone).to_vec();
    assert_eq!(weaken(How::Dropped), [data.clone(), sync.clone(), mark.clone()]);
    assert_eq!(
        weaken(How::Volatile),
        clone([&write(table, false), &data, &sync, &mark])
    );
    assert_eq!(weaken(How::Held), clone([&data, &write(table, false), &sync, &mark]));
    assert_eq!(weaken(How::Swapped), clone([&data, &write(table, true), &sync, &mark]));
}

#[test]
fn names_are_unique() {
    for (at, weakening) in ALL.iter().enumerate() {
        assert!(ALL[at + 1..].iter().all(|other| other.name != weakening.name));
    }
}
