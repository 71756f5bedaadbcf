//! The file of `--grants`: what clients may do at most, and how much an owner may hold of whom the volume does not say it.
//!
//! ```text
//! # the backup reads, the database does everything, nobody else anything
//! uid 34 may read
//! gid 120 may read write manage
//! everybody may nothing
//! quota 10G 100
//! ```
//!
//! Whatever is not of this grammar is refused, with the number of its line: a word that was passed over would let somebody in or out.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use baio::Limits;
use baio_broker::host::{May, Rules, Whom};
use baio_console::failure::Failure;
use baio_console::printable::{Printable, readable};
use baio_console::size::Size;

/// No file of rules is longer.
const BYTES_MAX: u64 = 1 << 20;
const RULE: &str = "`uid N may WORDS`, `gid N may WORDS`, `everybody may WORDS` or `quota SIZE SEGMENTS`";
const WORDS: &str = "some of `read`, `write`, `manage`, or `nothing`";
const QUOTA: &str = "`quota SIZE SEGMENTS`, `none` for either";

/// What stands in the file.
#[derive(Debug, PartialEq)]
pub(super) struct Grants {
    pub(super) rules: Rules,
    /// It allows nobody anything, since it has no rule.
    pub(super) is_empty: bool,
    pub(super) quota: Option<Quota>,
}

/// What an owner may hold; `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quota {
    bytes: Option<u64>,
    segments: Option<u64>,
}

impl Quota {
    /// In the volume's words. What is no whole block is no part of the limit.
    pub(super) fn limits(self, block_size: u32) -> Limits {
        Limits {
            blocks: self.bytes.map(|bytes| bytes / u64::from(block_size.max(1))),
            segments: self.segments,
        }
    }
}

impl Grants {
    /// What whoever runs it should know.
    pub(super) fn note(&self, path: &Path) -> Option<String> {
        let cure = "write `everybody may read write manage` into it if that is not meant";
        let note = || format!("{} has no rule: no client may do anything; {cure}", path.display());
        self.is_empty.then(note)
    }
}

/// What is wrong with a line.
#[derive(Debug, PartialEq)]
struct Wrong {
    /// Beginning with 1.
    line: usize,
    what: String,
    need: &'static str,
    cure: &'static str,
}

/// Reads the file.
pub(super) fn read(path: &Path) -> Result<Grants, Failure> {
    let object = readable(path);
    let unreadable = |error: &io::Error| {
        let failure = Failure::from_io("serve", error).on(object.clone());
        failure
            .needing("a file of rules that the broker's user may read")
            .cured_by("name another file with --grants, or let the broker's user read it")
    };
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text));
    read.map_err(|error| unreadable(&error))?;
    if text.len() as u64 > BYTES_MAX {
        return Err(unreadable(&rustix::io::Errno::FBIG.into()).needing("a file of rules of at most 1 MiB"));
    }
    parse(&text).map_err(|wrong| {
        Failure::new("serve", "EINVAL", format!("line {}: {}", wrong.line, wrong.what))
            .on(object)
            .needing(wrong.need)
            .cured_by(wrong.cure)
    })
}

fn parse(text: &str) -> Result<Grants, Wrong> {
    let (mut rules, mut quota) = (Vec::new(), None);
    for (line, said) in (1..).zip(text.lines()) {
        let rule = said.split_once('#').map_or(said, |(rule, _)| rule);
        let words: Vec<&str> = rule.split_whitespace().collect();
        let wrong = |what: String, need, cure| Wrong { line, what, need, cure };
        match words.as_slice() {
            [] => {}
            ["quota", words @ ..] => {
                if quota.is_some() {
                    let cure = "leave one of the two out";
                    return Err(wrong("a second quota".into(), "one quota", cure));
                }
                let cure = "write it so: `quota 10G 100`, `quota 1T none`";
                quota = Some(parse_quota(words).map_err(|what| wrong(what, QUOTA, cure))?);
            }
            [whom @ .., "may"] => {
                let cure = "say what, or `nothing`";
                return Err(wrong(format!("{} may what?", shown(&whom.join(" "))), WORDS, cure));
            }
            ["everybody", "may", words @ ..] => {
                rules.push((
                    Whom::Everybody,
                    may(words).map_err(|(what, cure)| wrong(what, WORDS, cure))?,
                ));
            }
            [kind @ ("uid" | "gid"), number, "may", words @ ..] => {
                let Some(id) = parse_id(number) else {
                    let cure = "write its number: `id -u NAME`, `getent group NAME`";
                    let what = format!("{} is not the number of a user or group", shown(number));
                    return Err(wrong(what, "a number from 0 to 4294967294", cure));
                };
                let whom = match *kind {
                    "uid" => Whom::Uid(id),
                    _ => Whom::Gid(id),
                };
                rules.push((whom, may(words).map_err(|(what, cure)| wrong(what, WORDS, cure))?));
            }
            _ => {
                let cure = "write one rule a line; a comment begins with `#`";
                return Err(wrong(format!("{} is not a rule", shown(rule.trim())), RULE, cure));
            }
        }
    }
    Ok(Grants {
        is_empty: rules.is_empty(),
        rules: Rules::new(rules),
        quota,
    })
}

/// Of a line that may be anything, so much.
fn shown(text: &str) -> String {
    let some: String = text.chars().take(64).collect();
    format!("`{}`", Printable(&some))
}

/// All but the number that means nobody.
fn parse_id(text: &str) -> Option<u32> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&id| is_plain && id != u32::MAX)
}

/// What is allowed; else what is wrong, and its cure.
fn may(words: &[&str]) -> Result<May, (String, &'static str)> {
    if words == ["nothing"] {
        return Ok(May::NOTHING);
    }
    let mut may = May::NOTHING;
    for &word in words {
        let allowed = match word {
            "read" => &mut may.read,
            "write" => &mut may.write,
            "manage" => &mut may.manage,
            "nothing" => return Err(("`nothing`, and something".into(), "leave one of the two out")),
            other => {
                let cure = "write only these words";
                return Err((format!("{} is not a right", shown(other)), cure));
            }
        };
        if std::mem::replace(allowed, true) {
            return Err((format!("{} twice", shown(word)), "say it once"));
        }
    }
    match may.write && !may.read {
        // A handle for writing reads too: `write` alone would allow nothing.
        true => Err(("`write` without `read`".into(), "write `read write`")),
        false => Ok(may),
    }
}

fn parse_quota(words: &[&str]) -> Result<Quota, String> {
    let &[bytes, segments] = words else {
        return Err(format!("a quota of {} words", words.len()));
    };
    let bytes = match bytes {
        "none" => None,
        size => Some(size.parse::<Size>()?.bytes()),
    };
    let number = || format!("{} is not a number of segments", shown(segments));
    let segments = match segments {
        "none" => None,
        text => Some(text.parse().map_err(|_| number())?),
    };
    Ok(Quota { bytes, segments })
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: May = May {
        read: true,
        ..May::NOTHING
    };

    fn rules(text: &str) -> Rules {
        parse(text).unwrap().rules
    }

    #[test]
    fn lines_become_rules_in_their_order() {
        let text = "# who does what\n\n  uid 34 may read # the backup\nuid\t35 may nothing\r\n\
                    gid 120 may manage write read\neverybody may manage";
        let manage = May {
            manage: true,
            ..May::NOTHING
        };
        let expected = vec![
            (Whom::Uid(34), READ),
            (Whom::Uid(35), May::NOTHING),
            (Whom::Gid(120), May::ALL),
            (Whom::Everybody, manage),
        ];
        let grants = parse(text).unwrap();
        assert_eq!(grants.rules, Rules::new(expected));
        assert!(!grants.is_empty && grants.quota.is_none());
        assert_eq!(rules("everybody may read write manage"), Rules::default());
    }

    #[test]
    fn a_file_without_a_rule_allows_nothing_and_says_so() {
        for text in ["", "\n# uid 0 may read\n", "quota 1G 10\n"] {
            let grants = parse(text).unwrap();
            assert_eq!(grants.rules, Rules::new(Vec::new()), "{text}");
            let note = grants.note(Path::new("g.conf")).unwrap();
            assert!(
                note.contains("g.conf") && note.contains("no client may do anything"),
                "{note}"
            );
        }
        assert_eq!(parse("everybody may nothing").unwrap().note(Path::new("g.conf")), None);
    }

    #[test]
    fn a_quota_has_a_size_and_a_number_of_segments() {
        let limits = |text: &str| parse(text).unwrap().quota.unwrap().limits(4096);
        let some = |blocks, segments| Limits { blocks, segments };
        assert_eq!(limits("quota 1M 7"), some(Some(256), Some(7)));
        assert_eq!(limits("quota none 7"), some(None, Some(7)));
        assert_eq!(limits("quota 5000 none"), some(Some(1), None));
    }

    #[test]
    fn what_is_no_rule_is_refused_with_its_line_need_and_cure() {
        for (text, said) in [
            ("user 7 may read", "`user 7 may read` is not a rule"),
            ("uid may read", "`uid may read` is not a rule"),
            ("uid 7 reads", "is not a rule"),
            ("everybody 7 may read", "is not a rule"),
            ("uid 7", "is not a rule"),
            ("uid 7 may", "`uid 7` may what?"),
            ("everybody may", "`everybody` may what?"),
            ("uid seven may read", "`seven` is not the number"),
            ("uid +7 may read", "`+7` is not the number"),
            ("uid -1 may read", "`-1` is not the number"),
            ("gid 4294967295 may read", "is not the number"),
            ("everybody may reed", "`reed` is not a right"),
            ("everybody may Read", "`Read` is not a right"),
            ("everybody may read,write", "is not a right"),
            ("everybody may nothing read", "`nothing`, and something"),
            ("everybody may read read", "`read` twice"),
            ("everybody may write", "`write` without `read`"),
            ("quota", "a quota of 0 words"),
            ("quota 1G", "a quota of 1 words"),
            ("quota 1G 2 3", "a quota of 3 words"),
            ("quota 1kB 2", "could mean two sizes"),
            ("quota 1G many", "`many` is not a number of segments"),
            ("quota 1G 1\nquota 1G 1", "a second quota"),
        ] {
            let whole = format!("# first\neverybody may nothing\n{text}\n");
            let wrong = parse(&whole).unwrap_err();
            assert_eq!(wrong.line, 2 + text.lines().count(), "{text}");
            assert!(wrong.what.contains(said), "{text}: {}", wrong.what);
            assert!(!wrong.need.is_empty() && !wrong.cure.is_empty());
        }
    }
}
