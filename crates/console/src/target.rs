//! Targets: what a command works on, as typed and as meant.
//!
//! ```text
//! PATH               a file, a device or a whole volume
//! PATH#SEGMENT       my segment of the volume at PATH
//! PATH#UID/SEGMENT   that user's segment
//! unix:SOCKET        a volume that a broker serves at that socket; with `#` its segments, as above
//! ```
//!
//! The text is split at its last `#`, for a segment name never contains one but a path may. A [`TypedTarget`] is the
//! text alone; which [`Target`] it means depends on what exists: `a#b` is the file `a#b` where there is one, and else
//! the segment `b` of the volume `a`. Where both are there, neither is guessed. A `#` in the name of a directory that is there belongs to
//! that, unless it follows a volume.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, SERVED};
use crate::named::{NamedSegment, Volume, check_name};
use crate::printable::readable;

/// A target as it was typed, with nothing looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypedTarget(OsString);

/// What a typed target means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A file, a device or a whole volume.
    File(PathBuf),
    /// A whole volume that a broker serves, at this socket.
    Served(PathBuf),
    /// A segment, here or behind a broker.
    Segment(NamedSegment),
}

/// True for what a target can name: anything that exists and is no directory.
///
/// A directory does not count, or else `dir/#name` would have two readings wherever `dir` exists.
fn exists_on_disk(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| !metadata.is_dir())
}

impl TypedTarget {
    /// The text, as it was typed.
    pub fn as_os_str(&self) -> &OsStr {
        &self.0
    }

    /// What the text means here and now, for the command `operation`.
    ///
    /// # Errors
    /// It means nothing, or two things; no segment can have this name.
    pub fn meant(&self, operation: &str) -> Result<Target, Failure> {
        let meant = self.here(operation)?;
        if let Target::Segment(segment) = &meant {
            check_name(operation, &segment.typed, &segment.name)?;
        }
        Ok(meant)
    }

    /// The same, for a command that works on segments.
    ///
    /// # Errors
    /// As [`TypedTarget::meant`]; it is none.
    pub fn segment(&self, operation: &str) -> Result<NamedSegment, Failure> {
        match self.meant(operation)? {
            Target::Segment(segment) => Ok(segment),
            Target::File(_) | Target::Served(_) => Err(self.segment_expected(operation)),
        }
    }

    /// The same, whatever a segment is called.
    fn here(&self, operation: &str) -> Result<Target, Failure> {
        let meant = self.resolve(exists_on_disk, Path::is_dir);
        meant.map_err(|reason| self.refused(operation, &reason))
    }

    /// The same, for a command that works on whole volumes or files.
    ///
    /// # Errors
    /// As [`TypedTarget::meant`]; it is a segment.
    pub fn path(&self, operation: &str) -> Result<PathBuf, Failure> {
        match self.here(operation)? {
            Target::File(path) => Ok(path),
            Target::Segment(segment) if !segment.volume.is_served() => {
                Err(self.refused(operation, &Reason::PathExpected))
            }
            Target::Segment(_) | Target::Served(_) => Err(self.served(operation)),
        }
    }

    /// The same, for a command that works on whole volumes, through a broker too.
    ///
    /// # Errors
    /// As [`TypedTarget::path`].
    pub fn volume(&self, operation: &str) -> Result<Volume, Failure> {
        match self.here(operation)? {
            Target::File(path) => Ok(Volume::Here(path)),
            Target::Served(socket) => Ok(Volume::Served(socket)),
            Target::Segment(_) => Err(self.refused(operation, &Reason::PathExpected)),
        }
    }

    /// The refusal of what a broker serves, for a command that needs the file or device itself.
    pub fn served(&self, operation: &str) -> Failure {
        self.refused(operation, &Reason::Served)
    }

    /// The refusal of a target that names no segment, for a command that works on segments.
    pub fn segment_expected(&self, operation: &str) -> Failure {
        self.refused(operation, &Reason::SegmentExpected)
    }

    /// `exists` says whether a path is there, as [`exists_on_disk`] does; `is_dir` says whether a directory is.
    fn resolve(&self, exists: impl Fn(&Path) -> bool, is_dir: impl Fn(&Path) -> bool) -> Result<Target, Reason> {
        let text = self.0.as_bytes();
        if text.is_empty() {
            return Err(Reason::Empty);
        }
        if let Some(rest) = text.strip_prefix(SERVED.as_bytes()) {
            return match split_at_last_hash(rest) {
                Some((socket, segment)) => self.parse_segment(Volume::Served, socket, segment).map(Target::Segment),
                None if rest.is_empty() => Err(Reason::NoSocket),
                None => Ok(Target::Served(path_of(rest))),
            };
        }
        let whole = Path::new(&self.0);
        let Some((volume, segment)) = split_at_last_hash(text) else {
            return Ok(Target::File(whole.to_owned()));
        };
        // `dir#1/new`: something to be made in a directory.
        let in_directory = segment.contains(&b'/') && whole.parent().is_some_and(is_dir);
        let segment = self.parse_segment(Volume::Here, volume, segment);
        let volume = path_of(volume);
        match (exists(whole), segment) {
            (true, Ok(NamedSegment { name, .. })) if exists(&volume) => Err(Reason::TwoReadings { volume, name }),
            (true, _) => Ok(Target::File(whole.to_owned())),
            (false, _) if in_directory && !exists(&volume) => Ok(Target::File(whole.to_owned())),
            (false, Ok(_)) if hides_a_volume(&volume, &exists) => Err(Reason::HashInName { volume }),
            (false, segment) => segment.map(Target::Segment),
        }
    }

    /// Reads `[UID/]SEGMENT` behind the volume's path or socket.
    fn parse_segment(
        &self,
        place: fn(PathBuf) -> Volume,
        volume: &[u8],
        segment: &[u8],
    ) -> Result<NamedSegment, Reason> {
        if volume.is_empty() {
            return Err(Reason::NoVolume);
        }
        let segment = str::from_utf8(segment).map_err(|_| Reason::BadName)?;
        let (owner, name) = match segment.split_once('/') {
            Some((owner, name)) => {
                let bad = || Reason::BadOwner(owner.to_owned());
                (Some(parse_uid(owner).ok_or_else(bad)?), name)
            }
            None => (None, segment),
        };
        if name.is_empty() {
            return Err(Reason::NoName);
        }
        if name.contains('/') {
            return Err(Reason::BadName);
        }
        Ok(NamedSegment {
            typed: self.to_string(),
            volume: place(path_of(volume)),
            owner,
            name: name.to_owned(),
        })
    }

    /// The failure of the command `operation` that was given this target.
    fn refused(&self, operation: &str, reason: &Reason) -> Failure {
        let code = match reason {
            Reason::Served => "EOPNOTSUPP",
            _ => "EUSAGE",
        };
        let typed = self.to_string();
        let (said, need, cure) = reason.told(&typed);
        let failure = Failure::new(operation, code, said).on(typed).cured_by(cure);
        match need {
            Some(need) => failure.needing(need),
            None => failure,
        }
    }
}

impl From<OsString> for TypedTarget {
    fn from(text: OsString) -> TypedTarget {
        TypedTarget(text)
    }
}

/// The text as typed, with `\xff` for a byte that is no UTF-8.
impl fmt::Display for TypedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&readable(&self.0))
    }
}

fn path_of(text: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(text))
}

fn split_at_last_hash(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let hash = text.iter().rposition(|byte| *byte == b'#')?;
    Some((text.get(..hash)?, text.get(hash + 1..)?))
}

/// True for `a#b` where only `a` exists: the last `#` of `a#b#c` was meant to belong to a segment's name.
fn hides_a_volume(path: &Path, exists: impl Fn(&Path) -> bool) -> bool {
    let shorter = split_at_last_hash(path.as_os_str().as_bytes());
    !exists(path) && shorter.is_some_and(|(volume, _)| exists(Path::new(OsStr::from_bytes(volume))))
}

/// Reads a uid. The highest number is nobody's: system calls take it as "leave unchanged".
pub fn parse_uid(text: &str) -> Option<u32> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|uid| *uid != u32::MAX)
}

/// Why a typed target has no meaning here.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    /// Nothing was typed.
    Empty,
    /// A broker's volume, for a command that needs the file or device.
    Served,
    /// `unix:` alone.
    NoSocket,
    /// Both the file and the volume exist.
    TwoReadings { volume: PathBuf, name: String },
    /// `PATH#NAME#NAME`, and there is no volume `PATH#NAME`.
    HashInName { volume: PathBuf },
    /// `#SEGMENT`.
    NoVolume,
    /// `PATH#`.
    NoName,
    /// What stands before the `/` is no uid.
    BadOwner(String),
    /// A segment name that no volume can hold.
    BadName,
    /// A segment, for a command that takes whole volumes.
    PathExpected,
    /// A file, for a command that takes segments.
    SegmentExpected,
}

impl Reason {
    /// What is wrong, without the target's text; what would be needed; and what to type.
    fn told(&self, typed: &str) -> (String, Option<&'static str>, &'static str) {
        const EITHER: &str = "PATH or PATH#[UID/]SEGMENT";
        const NAME_BOTH: &str = "name the volume and the segment, as in vol#log";
        let (said, need, cure) = match self {
            Reason::Empty => ("the target is empty", EITHER, NAME_BOTH),
            Reason::NoVolume => ("no volume before the '#'", EITHER, NAME_BOTH),
            Reason::NoName => ("no segment name after the '#'", EITHER, NAME_BOTH),
            Reason::SegmentExpected => ("this is not a segment", "PATH#[UID/]SEGMENT", NAME_BOTH),
            Reason::PathExpected => (
                "this is a segment",
                "the PATH of a file, a device or a volume",
                "leave out the '#' and what follows it",
            ),
            Reason::Served => (
                "this needs the file or device itself, and not what a broker serves",
                "the PATH of the volume",
                "end its broker and name the volume's own path; for a file of this name write ./unix:...",
            ),
            Reason::NoSocket => (
                "no socket after `unix:`",
                "unix:SOCKET or unix:SOCKET#[UID/]SEGMENT",
                "name the socket of the broker, as in unix:/run/baio/socket#log",
            ),
            Reason::BadName => (
                "no segment can have this name",
                "a name in UTF-8 without '/'",
                "choose another name",
            ),
            Reason::BadOwner(owner) => {
                return (
                    format!("'{owner}' is not a uid"),
                    Some("PATH#[UID/]SEGMENT with a number as UID"),
                    "write the owner's uid, or leave it out for your own segments",
                );
            }
            Reason::HashInName { volume } => {
                let volume = volume.display();
                return (
                    format!("a segment's name has no '#', and there is no volume '{volume}'"),
                    Some("PATH#[UID/]SEGMENT, with the last '#' behind a volume that exists"),
                    "choose a name without '#', or check the volume's path",
                );
            }
            Reason::TwoReadings { volume, name } => {
                let volume = volume.display();
                return (
                    format!("two readings: the file '{typed}', or the segment '{name}' of '{volume}'; both exist"),
                    None,
                    "write PATH#UID/SEGMENT for the segment, or rename the file",
                );
            }
        };
        (said.to_owned(), Some(need), cure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Resolves `text` on a disk that holds just `files`.
    fn resolve(text: &str, files: &[&str]) -> Result<Target, Reason> {
        resolve_in(text, files, &[])
    }

    /// The same, on one with these directories too.
    fn resolve_in(text: &str, files: &[&str], dirs: &[&str]) -> Result<Target, Reason> {
        let is_one_of = |names: &[&str], path: &Path| names.iter().any(|name| path == Path::new(name));
        TypedTarget::from(OsString::from(text)).resolve(|path| is_one_of(files, path), |path| is_one_of(dirs, path))
    }

    fn file(path: &str) -> Result<Target, Reason> {
        Ok(Target::File(PathBuf::from(path)))
    }

    /// The segment that a text names, where nothing exists.
    fn segment(volume: &str, owner: Option<u32>, name: &str) -> Result<Target, Reason> {
        let typed = match owner {
            Some(owner) => format!("{volume}#{owner}/{name}"),
            None => format!("{volume}#{name}"),
        };
        Ok(Target::Segment(NamedSegment {
            typed,
            volume: Volume::Here(PathBuf::from(volume)),
            owner,
            name: name.to_owned(),
        }))
    }

    fn reason(text: &str, files: &[&str]) -> Reason {
        resolve(text, files).unwrap_err()
    }

    #[test]
    fn a_path_is_a_file_whether_it_exists_or_not() {
        assert_eq!(resolve("/dev/vdb", &[]), file("/dev/vdb"));
        assert_eq!(resolve("vol", &["vol"]), file("vol"));
    }

    #[test]
    fn a_segment_is_mine_or_a_users() {
        assert_eq!(resolve("vol#log", &["vol"]), segment("vol", None, "log"));
        assert_eq!(resolve("vol#1000/log", &["vol"]), segment("vol", Some(1000), "log"));
        assert_eq!(resolve("missing#log", &[]), segment("missing", None, "log"));
    }

    #[test]
    fn the_last_hash_splits() {
        assert_eq!(resolve("a#b#c", &["a#b"]), segment("a#b", None, "c"));
        assert_eq!(resolve("a#b/vol#c", &[]), segment("a#b/vol", None, "c"));
    }

    #[test]
    fn a_hash_in_a_name_is_not_taken_for_a_missing_volume() {
        assert!(matches!(reason("vol#a#b", &["vol"]), Reason::HashInName { .. }));
        assert_eq!(resolve("vol#a#b", &[]), segment("vol#a", None, "b"));
    }

    #[test]
    fn a_path_that_exists_whole_is_that_file() {
        assert_eq!(resolve("a#b", &["a#b"]), file("a#b"));
        assert_eq!(resolve("#b", &["#b", ""]), file("#b"));
        assert_eq!(resolve("a#", &["a#", "a"]), file("a#"));
        assert_eq!(resolve("dir#1/x/y", &["dir#1/x/y", "dir"]), file("dir#1/x/y"));
    }

    #[test]
    fn a_file_can_be_made_in_a_directory_with_a_hash_in_its_name() {
        for (dir, text) in [("dir#1", "dir#1/new"), ("dir#x/sub", "dir#x/sub/new"), ("#", "#/new")] {
            assert_eq!(resolve_in(text, &[], &[dir]), file(text));
        }
        // Where there is a volume, it is its segment's owner.
        let theirs = resolve_in("vol#1/log", &["vol"], &["vol#1"]);
        assert_eq!(theirs, segment("vol", Some(1), "log"));
        assert_eq!(resolve_in("a#b/vol#c", &[], &["a#b"]), segment("a#b/vol", None, "c"));
        assert_eq!(resolve_in("vol#1/log", &[], &["."]), segment("vol", Some(1), "log"));
    }

    #[test]
    fn two_readings_are_an_error_that_names_both() {
        let both = reason("a#b", &["a", "a#b"]);
        let said = TypedTarget::from(OsString::from("a#b"))
            .refused("stat", &both)
            .to_string();
        assert!(said.contains("the file 'a#b'"), "{said}");
        assert!(said.contains("the segment 'b' of 'a'"), "{said}");
        assert!(said.contains("PATH#UID/SEGMENT"), "{said}");
        assert_eq!(
            resolve("a#0/b", &["a", "a#b"]),
            segment("a", Some(0), "b"),
            "the cure works"
        );
    }

    #[test]
    fn incomplete_targets_are_refused() {
        assert_eq!(reason("", &[]), Reason::Empty);
        assert_eq!(reason("#log", &[]), Reason::NoVolume);
        assert_eq!(reason("vol#", &["vol"]), Reason::NoName);
        assert_eq!(reason("vol#0/", &["vol"]), Reason::NoName);
        assert_eq!(reason("vol#0/a/b", &["vol"]), Reason::BadName);
    }

    #[test]
    fn an_owner_is_a_uid() {
        for owner in ["root", "", "+5", "-1", "4294967295", "4294967296", " 1"] {
            let found = reason(&format!("vol#{owner}/log"), &["vol"]);
            assert_eq!(found, Reason::BadOwner(owner.to_owned()));
        }
        assert!(resolve("vol#4294967294/log", &[]).is_ok());
    }

    #[test]
    fn names_are_text_but_paths_are_bytes() {
        let typed = |bytes: &[u8]| TypedTarget::from(OsStr::from_bytes(bytes).to_owned());
        let never = |_: &Path| false;
        let path = PathBuf::from(OsStr::from_bytes(b"v\xff"));
        assert_eq!(typed(b"v\xff").resolve(never, never), Ok(Target::File(path)));
        assert_eq!(typed(b"vol#\xff").resolve(never, never), Err(Reason::BadName));
    }

    #[test]
    fn served_volumes_and_their_segments_are_named_by_their_socket() {
        let served = |text: &str, owner| {
            Ok(Target::Segment(NamedSegment {
                typed: text.to_owned(),
                volume: Volume::Served(PathBuf::from("/run/a#b")),
                owner,
                name: "log".to_owned(),
            }))
        };
        let all = "unix:/run/a#b#log";
        assert_eq!(resolve(all, &[all]), served(all, None));
        let theirs = "unix:/run/a#b#7/log";
        assert_eq!(resolve(theirs, &[]), served(theirs, Some(7)));
        let volume = Target::Served(PathBuf::from("/run/s"));
        assert_eq!(resolve("unix:/run/s", &[]), Ok(volume));
        assert_eq!(reason("unix:", &[]), Reason::NoSocket);
        assert_eq!(reason("unix:#log", &[]), Reason::NoVolume);
        assert_eq!(reason("unix:/s#", &[]), Reason::NoName);
        assert_eq!(resolve("./unix:x", &[]), file("./unix:x"));
        let typed = TypedTarget::from(OsString::from("unix:/run/s"));
        let failure = typed.path("check").unwrap_err();
        assert_eq!(failure.to_json()["error"]["code"], "EOPNOTSUPP");
    }

    #[test]
    fn commands_can_insist_on_one_kind() {
        let typed = TypedTarget::from(OsString::from("vol#log"));
        let said = typed.path("list").unwrap_err().to_string();
        assert!(said.starts_with("baio: list vol#log: this is a segment; needed: "));
        let said = typed.segment_expected("delete").to_string();
        assert!(said.contains("not a segment"), "{said}");
    }

    #[test]
    fn a_directory_is_no_target() {
        assert!(!exists_on_disk(Path::new("/")));
        assert!(exists_on_disk(Path::new("/dev/null")));
        assert!(!exists_on_disk(Path::new("/dev/null/x")));
    }
}
