//! Questions of a session in the words of a core, and a core's answers in the words of a session.
//!
//! A core knows the path of its volume and says it in errors. A client is told the name under which the volume is served.

use baio_storage::cache::window::Pattern;
use baio_storage::{
    Account, CheckReport, CreateOptions, DefragReport, Error, Handle, Limits, Repair, ResizeOptions, SegmentInfo,
    VolumeInfo, VolumeView, Zeroing,
};
use baio_words::entry::HandleWords;
use baio_words::session::{
    AccountWords, Answer, CheckWords, DefragWords, Failed, HintWords, PatternWords, ProblemWords, Question,
    RepairWords, SegmentWords, UnmovedWords, VolumeWords, WholeWords, ZeroWords,
};

use crate::control::{Command, Hint};

/// What the host does with a question.
pub(super) enum Asked {
    /// The core is asked.
    Core(Command),
    /// The host knows.
    Host(OfHost),
}

/// What is asked of the host itself.
pub(super) enum OfHost {
    Thaw(u64),
    Status,
    Opening,
    Cancel(u32),
    HandOn(HandleWords, baio_words::Access),
    Revoke(u64),
    ClaimLog(HandleWords),
    ReleaseLog(HandleWords),
}

/// What a question asks. `handle` finds what a session calls a handle; a stale one is one to the core too.
pub(super) fn asked(question: Question, handle: impl Fn(HandleWords) -> Handle) -> Asked {
    let grows_only = matches!(question, Question::Grow { .. });
    Asked::Core(match question {
        Question::Create {
            operation,
            owner_uid,
            name,
            size_bytes,
            reserve_bytes,
            mode,
            group,
            zero,
        } => Command::Create {
            owner_uid,
            name,
            options: CreateOptions {
                reserve_bytes,
                zero: match zero {
                    ZeroWords::Written => Zeroing::Written,
                    ZeroWords::Lazy => Zeroing::Lazy,
                },
                mode,
                group,
                ..CreateOptions::of_size(size_bytes)
            },
            operation,
        },
        Question::Delete {
            operation,
            owner_uid,
            name,
        } => Command::Delete {
            owner_uid,
            name,
            operation,
        },
        Question::Resize {
            operation,
            owner_uid,
            name,
            size_bytes,
            reserve_bytes,
        }
        | Question::Grow {
            operation,
            owner_uid,
            name,
            size_bytes,
            reserve_bytes,
        } => Command::Resize {
            owner_uid,
            name,
            options: ResizeOptions {
                size_bytes,
                reserve_bytes,
                grows_only,
            },
            operation,
        },
        Question::Rename {
            operation,
            owner_uid,
            old,
            new,
        } => Command::Rename {
            owner_uid,
            old,
            new,
            operation,
        },
        Question::ChangeOwnership {
            operation,
            owner_uid,
            name,
            change,
        } => Command::ChangeOwnership {
            owner_uid,
            name,
            change,
            operation,
        },
        Question::Open {
            owner_uid,
            name,
            access,
        }
        | Question::OpenKnown {
            owner_uid,
            name,
            access,
            identity: None,
        } => Command::Open {
            owner_uid,
            name,
            access,
        },
        Question::OpenKnown {
            owner_uid,
            name,
            access,
            identity: Some(uuid),
        } => Command::OpenKnown {
            owner_uid,
            name,
            access,
            uuid,
        },
        Question::List => Command::List,
        Question::Info => Command::Info,
        Question::Quota { uid } => Command::Quota { uid },
        Question::SetQuota { uid, blocks, segments } => Command::SetQuota {
            uid,
            limits: Limits { blocks, segments },
        },
        Question::Hint { handle: words, hint } => Command::Hint {
            handle: handle(words),
            hint: hint_of(hint),
        },
        Question::Freeze => Command::Freeze,
        Question::Defrag => Command::Defrag,
        Question::Check => Command::Check,
        Question::Size { handle: words } => Command::Size(handle(words)),
        Question::Thaw { freeze } => return Asked::Host(OfHost::Thaw(freeze)),
        Question::Status => return Asked::Host(OfHost::Status),
        Question::Opening => return Asked::Host(OfHost::Opening),
        Question::Cancel { question } => return Asked::Host(OfHost::Cancel(question)),
        Question::HandOn { handle, access } => return Asked::Host(OfHost::HandOn(handle, access)),
        Question::Revoke { grant } => return Asked::Host(OfHost::Revoke(grant)),
        Question::ClaimLog { handle } => return Asked::Host(OfHost::ClaimLog(handle)),
        Question::ReleaseLog { handle } => return Asked::Host(OfHost::ReleaseLog(handle)),
    })
}

fn hint_of(hint: HintWords) -> Hint {
    match hint {
        HintWords::Prefetch(pages) => Hint::Prefetch(pages),
        HintWords::Drop(pages) => Hint::Drop(pages),
        HintWords::Keep(pages) => Hint::Keep(pages),
        HintWords::KeepNoMore(pages) => Hint::KeepNoMore(pages),
        HintWords::Pattern(pattern) => Hint::Pattern(match pattern {
            PatternWords::Unknown => Pattern::Unknown,
            PatternWords::Sequential => Pattern::Sequential,
            PatternWords::Random => Pattern::Random,
        }),
    }
}

pub(super) fn segment(info: &SegmentInfo) -> SegmentWords {
    SegmentWords {
        name: info.name.clone(),
        owner_uid: info.owner_uid,
        owner_gid: info.owner_gid,
        mode: info.mode,
        size_bytes: info.size_bytes,
        reserve_bytes: info.reserve_bytes,
        state: info.state.to_owned(),
    }
}

pub(super) fn account(account: &Account) -> AccountWords {
    AccountWords {
        used_blocks: account.used.blocks,
        used_segments: account.used.segments,
        limit_blocks: account.limits.blocks,
        limit_segments: account.limits.segments,
    }
}

/// Who has it open, and where its file is, is for whoever looks at that.
pub(super) fn volume(view: &VolumeView, names: &Names) -> Answer {
    Answer::Volume(Box::new(VolumeWords {
        format_version: view.format_version,
        block_size: view.block_size,
        size_bytes: view.size_bytes,
        size_bytes_max: view.size_bytes_max,
        clean: view.clean,
        own: account(&view.own),
        whole: view.whole.as_ref().map(|info| whole(info, names)),
    }))
}

fn whole(info: &VolumeInfo, names: &Names) -> WholeWords {
    WholeWords {
        uuid: info.uuid,
        device_bytes: info.device_bytes,
        data_at_bytes: info.data_at_bytes,
        free_bytes: info.free_bytes,
        largest_free_bytes: info.largest_free_bytes,
        segments: info.segments,
        segments_max: info.segments_max,
        warnings: info.warnings.iter().map(|text| names.told(text)).collect(),
    }
}

/// Of more segments than a message carries it tells the first.
pub(super) fn defragged(report: DefragReport, names: &Names) -> Answer {
    let unmoved = report.unmoved.into_iter().map(|unmoved| UnmovedWords {
        name: unmoved.name,
        owner_uid: unmoved.owner_uid,
        why: names.told(&unmoved.why),
    });
    Answer::Defragged(Box::new(DefragWords {
        moves: report.moves,
        moved_segments: report.moved_segments,
        moved_bytes: report.moved_bytes,
        largest_free_before_bytes: report.largest_free_before_bytes,
        largest_free_bytes: report.largest_free_bytes,
        free_bytes: report.free_bytes,
        unmoved: unmoved.collect(),
        untold: report.untold,
    }))
}

/// Of more problems than a message carries it tells the first.
pub(super) fn checked(report: CheckReport, names: &Names) -> Answer {
    let problems = report.problems.into_iter().map(|problem| ProblemWords {
        kind: problem.kind.to_owned(),
        object: names.told(&problem.place.object),
        offset: problem.place.offset,
        what: names.told(&problem.what),
        repair: match problem.repair {
            Repair::Repaired => RepairWords::Repaired,
            Repair::Repairable => RepairWords::Repairable,
            // The words have none for what was not read: the text says it, and it is as little sound.
            Repair::Lost | Repair::Unread => RepairWords::Lost,
        },
    });
    Answer::Checked(Box::new(CheckWords {
        problems: problems.collect(),
        untold: report.untold,
        clean: report.clean,
        buckets: report.buckets,
        segments: report.segments,
        owners: report.owners,
        over_quota: report.over_quota,
        quarantined: report.quarantined,
        unfinished_moves: report.unfinished_moves,
        in_doubt: report.in_doubt,
        blocks: report.blocks,
        free_blocks: report.free_blocks,
    }))
}

/// What the volume is called here and there.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// The path, as the core says it.
    pub(super) path: String,
    /// The name under which it is served.
    pub(super) served: String,
}

impl Names {
    /// A text of the core's, without the host's path. One that is no more than a name tells nothing of the host, and may be any word.
    pub(super) fn told(&self, text: &str) -> String {
        match self.path.contains('/') {
            true => text.replace(&self.path, &self.served),
            false => self.object(text),
        }
    }

    /// An object, which begins with the path: `PATH`, `PATH#UID/NAME`, `PATH, slot 1`.
    fn object(&self, text: &str) -> String {
        let rest = text.strip_prefix(&self.path);
        let rest = rest.filter(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || "-_.".contains(next)));
        rest.map_or_else(|| text.to_owned(), |rest| format!("{}{rest}", self.served))
    }

    pub(super) fn failed(&self, error: &Error) -> Answer {
        Answer::Failed(Box::new(Failed {
            code: error.code().to_owned(),
            errno: error.errno().map_or(0, |errno| errno.raw().unsigned_abs()),
            operation: error.operation.to_owned(),
            object: self.told(&error.object),
            offset: error.offset,
            what: self.told(&error.fault.to_string()),
            need: error.need().map(|text| self.told(&text)),
            cure: error.cure().map(|text| self.told(&text)),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_path_garbles_no_text() {
        let names = |path: &str| Names {
            path: path.to_owned(),
            served: "vol".to_owned(),
        };
        let e = names("e");
        assert_eq!(e.told("no such segment"), "no such segment");
        assert_eq!(e.told("e"), "vol");
        assert_eq!(e.told("e#7/e"), "vol#7/e");
        assert_eq!(e.told("e, slot 3 of bucket 1"), "vol, slot 3 of bucket 1");
        assert_eq!(e.told("e is not open"), "vol is not open");
        assert_eq!(e.told("everything"), "everything");
        let whole = names("/srv/disk/volume.img");
        assert_eq!(
            whole.told("look at /srv/disk/volume.img and repair it"),
            "look at vol and repair it"
        );
    }
}
