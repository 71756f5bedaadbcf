//! What a broker tells of a defragmentation and of a check, in the library's words.

use baio_storage::{CheckReport, DefragReport, Problem, ProblemPlace, Repair, Unmoved};
use baio_words::session::{CheckWords, DefragWords, ProblemWords, RepairWords, UnmovedWords};

pub(super) fn defragged(words: DefragWords) -> DefragReport {
    let unmoved = |words: UnmovedWords| Unmoved {
        name: words.name,
        owner_uid: words.owner_uid,
        why: words.why,
    };
    DefragReport {
        moves: words.moves,
        moved_segments: words.moved_segments,
        moved_bytes: words.moved_bytes,
        largest_free_before_bytes: words.largest_free_before_bytes,
        largest_free_bytes: words.largest_free_bytes,
        free_bytes: words.free_bytes,
        unmoved: words.unmoved.into_iter().map(unmoved).collect(),
        untold: words.untold,
    }
}

pub(super) fn checked(words: CheckWords) -> CheckReport {
    let problems: Vec<_> = words.problems.into_iter().map(problem).collect();
    let repaired = problems.iter().filter(|problem| problem.repair == Repair::Repaired);
    CheckReport {
        repaired: repaired.count() as u64,
        problems,
        untold: words.untold,
        clean: words.clean,
        buckets: words.buckets,
        segments: words.segments,
        owners: words.owners,
        quarantined: words.quarantined,
        over_quota: words.over_quota,
        unfinished_moves: words.unfinished_moves,
        in_doubt: words.in_doubt,
        blocks: words.blocks,
        free_blocks: words.free_blocks,
    }
}

fn problem(words: ProblemWords) -> Problem {
    let known = Problem::KINDS.into_iter().find(|known| *known == words.kind);
    Problem {
        kind: known.unwrap_or("unknown"),
        place: ProblemPlace {
            object: words.object,
            offset: words.offset,
        },
        what: words.what,
        repair: match words.repair {
            RepairWords::Repaired => Repair::Repaired,
            RepairWords::Repairable => Repair::Repairable,
            RepairWords::Lost => Repair::Lost,
        },
    }
}
