//! The promise: a copy of a volume that was made page by page while the volume was in use does not pass for one that was closed
//! cleanly. Whatever of the metadata is of which moment, the copy opens with blocks in use as its inodes say, so that nobody is
//! given another's blocks; or it is refused and `check --repair` makes it so. What segments hold is of any moment: for that the
//! volume must be closed, or frozen below.

use baio_engine::sim::{Disk, Sim};
use baio_engine::{Engine, File};
use baio_storage::segment::superblock::Superblock;
use baio_storage::{Core, CreateOptions, FormatOptions, ResizeOptions, check_on};

use crate::harness::{BLOCK, ME, config, create, open_simulated, simulated_disk};

fn engine() -> Engine {
    Engine::simulated(Sim::new(4).unwrap(), &config()).unwrap()
}

const SIZE: u64 = 2 << 20;

/// The volume at every point between two records, openings and closes.
fn moments() -> Vec<Vec<u8>> {
    let disk = simulated_disk(&FormatOptions {
        size_bytes: Some(SIZE),
        ..FormatOptions::default()
    });
    let mut moments = Vec::new();
    let mut note = || {
        let mut bytes = vec![0; SIZE as usize];
        disk.read(0, &mut bytes);
        moments.push(bytes);
    };
    for round in 0..3 {
        note();
        let mut core = open_simulated(&disk);
        note();
        for number in 0..3 {
            create(
                &mut core,
                &format!("r{round}s{number}"),
                (number + 1) * 5 * BLOCK as u64,
            );
            note();
        }
        if round > 0 {
            core.delete(ME, ME.uid, &format!("r{}s1", round - 1)).unwrap();
            note();
            create(&mut core, &format!("again{round}"), 8 * BLOCK as u64);
            note();
            let larger = ResizeOptions::to_size(20 * BLOCK as u64);
            core.resize(ME, ME.uid, &format!("r{round}s0"), &larger).unwrap();
            note();
            core.rename(ME, ME.uid, &format!("r{round}s2"), &format!("renamed{round}"))
                .unwrap();
            note();
        }
        core.close().unwrap();
    }
    note();
    moments
}

/// Where one part of the metadata ends and the next begins, and some pages in between.
fn cuts(image: &[u8]) -> Vec<usize> {
    let layout = *Superblock::decode(&image[..BLOCK], 0).unwrap().layout();
    let [_, second, third, fourth] = layout.superblocks_at();
    let (table, mirror) = (layout.table_at(), layout.mirror_at());
    let mut cuts = vec![
        second,
        third,
        third + 4096,
        fourth,
        fourth + 4096,
        layout.bitmap_at(),
        layout.data_at(),
    ];
    cuts.extend((table..mirror).step_by(3 * 8192));
    cuts.extend((mirror..third).step_by(3 * 8192));
    cuts.iter().map(|&at| at as usize).collect()
}

/// Everything that is in use belongs to one segment: the sums agree, no two of those that are served overlap, and what is
/// made next gets none of their blocks.
fn assert_sound(core: &mut Core, name: &str, what: &str) {
    let made = core.create(ME, ME.uid, name, &CreateOptions::of_size(3 * BLOCK as u64));
    assert!(
        made.is_ok() || core.volume_info().unwrap().free_bytes < 3 * BLOCK as u64,
        "{what}: {made:?}"
    );
    let mut runs: Vec<(u64, u64, String)> = core
        .list(ME)
        .unwrap()
        .into_iter()
        .filter(|info| info.state != "quarantined")
        .map(|info| (info.start_block, info.reserve_bytes / BLOCK as u64, info.name))
        .collect();
    runs.sort();
    for pair in runs.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{what}: {pair:?}");
    }
}

#[test]
fn a_copy_of_many_moments_never_gives_a_block_to_two() {
    let moments = moments();
    let cuts = cuts(&moments[0]);
    let (mut copies, mut noticed, mut repaired) = (0, 0, 0);
    for (first, early) in moments.iter().enumerate() {
        for (later, late) in moments.iter().enumerate().skip(first + 1) {
            for &cut in &cuts {
                // Front to back, as every program copies; and back to front.
                for (head, tail, order) in [(early, late, "up"), (late, early, "down")] {
                    let disk = Disk::new(SIZE);
                    disk.poke(0, &head[..cut]);
                    disk.poke(cut as u64, &tail[cut..]);
                    let what = format!("moments {first} and {later}, cut at {cut}, {order}");
                    let file = File::simulated(&disk, "copy");
                    let opened = Core::open_on(engine(), &file, &config());
                    copies += 1;
                    let mut core = opened.unwrap_or_else(|error| {
                        assert_eq!(error.code(), "ECORRUPT", "{what}: {error}");
                        repaired += 1;
                        check_on(&mut engine(), &file, true).unwrap_or_else(|error| panic!("{what}: {error}"));
                        Core::open_on(engine(), &file, &config()).unwrap()
                    });
                    noticed += usize::from(core.warnings().iter().any(|warning| warning.contains("different ages")));
                    assert_sound(&mut core, "made", &what);
                    core.close().unwrap();
                    // And its own snapshot is right.
                    let mut core = Core::open_on(engine(), &file, &config()).unwrap();
                    assert_sound(&mut core, "made again", &what);
                }
            }
        }
    }
    println!("{copies} copies, {noticed} of which were seen to be of different ages, {repaired} repaired");
    assert!(noticed > copies / 100);
}
