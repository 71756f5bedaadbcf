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
//! the segment `b` of the volume `a`. Where both are there, neither is guessed.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, SERVED};
use crate::named::{NamedSegment, check_name};
use crate::printable::readable;

/// A target as it was typed, with nothing looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypedTarget(OsString);

/// What a typed target means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A file, a device or a whole volume.
    File(PathBuf),
    /// A segment of a volume.
    Segment(NamedSegment),
    /// A volume that a broker serves, or a segment of it.
    Served(Served),
}

/// What a target that must be a whole volume means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Volume {
    /// The one at a path.
    Here(PathBuf),
    /// One that a broker serves.
    Served(Served),
}

/// What `unix:SOCKET[#[UID/]SEGMENT]` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// As it was typed, for messages.
    pub typed: String,
    /// The broker's socket.
    pub socket: PathBuf,
    /// The uid of the segment's owner; `None` is the caller's own.
    pub owner: Option<u32>,
    /// The segment; `None` is the whole volume.
    pub name: Option<String>,
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
        let name = match &meant {
            Target::File(_) => None,
            Target::Segment(segment) => Some(&segment.name),
            Target::Served(served) => served.name.as_ref(),
        };
        name.map_or(Ok(()), |name| check_name(operation, &self.to_string(), name))?;
        Ok(meant)
    }

    /// The same, whatever a segment is called.
    fn here(&self, operation: &str) -> Result<Target, Failure> {
        self.resolve(exists_on_disk)
            .map_err(|error| error.into_failure(operation))
    }

    /// The same, for a command that works on whole volumes or files.
    ///
    /// # Errors
    /// As [`TypedTarget::meant`]; it is a segment.
    pub fn path(&self, operation: &str) -> Result<PathBuf, Failure> {
        match self.here(operation)? {
            Target::File(path) => Ok(path),
            Target::Segment(_) => Err(self.volume_expected(operation)),
            Target::Served(_) => Err(self.served(operation)),
        }
    }

    /// The same, for a command that works on whole volumes, through a broker too.
    ///
    /// # Errors
    /// As [`TypedTarget::path`].
    pub fn volume(&self, operation: &str) -> Result<Volume, Failure> {
        match self.here(operation)? {
            Target::File(path) => Ok(Volume::Here(path)),
            Target::Served(served) if served.name.is_none() => Ok(Volume::Served(served)),
            Target::Segment(_) | Target::Served(_) => Err(self.volume_expected(operation)),
        }
    }

    /// The refusal of a segment, for a command that works on whole volumes or files.
    fn volume_expected(&self, operation: &str) -> Failure {
        self.refused(Reason::PathExpected).into_failure(operation)
    }

    /// The refusal of what a broker serves, for a command that needs the file or device itself.
    pub fn served(&self, operation: &str) -> Failure {
        self.refused(Reason::Served).into_failure(operation)
    }

    /// `exists` says whether a path is there, as [`exists_on_disk`] does.
    fn resolve(&self, exists: impl Fn(&Path) -> bool) -> Result<Target, TargetError> {
        let refused = |reason| self.refused(reason);
        let text = self.0.as_bytes();
        if text.is_empty() {
            return Err(refused(Reason::Empty));
        }
        if let Some(rest) = text.strip_prefix(SERVED.as_bytes()) {
            return parse_served(self.to_string(), rest)
                .map(Target::Served)
                .map_err(refused);
        }
        let whole = Path::new(&self.0);
        let Some((volume, segment)) = split_at_last_hash(text) else {
            return Ok(Target::File(whole.to_owned()));
        };
        let segment = parse_segment(self.to_string(), volume, segment);
        match (exists(whole), segment) {
            (true, Ok(NamedSegment { volume, name, .. })) if exists(&volume) => {
                Err(refused(Reason::TwoReadings { volume, name }))
            }
            (true, _) => Ok(Target::File(whole.to_owned())),
            (false, Ok(NamedSegment { volume, .. })) if hides_a_volume(&volume, &exists) => {
                Err(refused(Reason::HashInName { volume }))
            }
            (false, segment) => segment.map(Target::Segment).map_err(refused),
        }
    }

    /// The refusal of a target that names no segment, for a command that works on segments.
    pub fn segment_expected(&self, operation: &str) -> Failure {
        self.refused(Reason::SegmentExpected).into_failure(operation)
    }

    fn refused(&self, reason: Reason) -> TargetError {
        TargetError {
            typed: self.to_string(),
            reason,
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

fn split_at_last_hash(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let hash = text.iter().rposition(|byte| *byte == b'#')?;
    Some((text.get(..hash)?, text.get(hash + 1..)?))
}

/// True for `a#b` where only `a` exists: the last `#` of `a#b#c` was meant to belong to a segment's name.
fn hides_a_volume(path: &Path, exists: impl Fn(&Path) -> bool) -> bool {
    let shorter = split_at_last_hash(path.as_os_str().as_bytes());
    !exists(path) && shorter.is_some_and(|(volume, _)| exists(Path::new(OsStr::from_bytes(volume))))
}

/// Reads `SOCKET[#[UID/]SEGMENT]`.
fn parse_served(typed: String, text: &[u8]) -> Result<Served, Reason> {
    if let Some((socket, segment)) = split_at_last_hash(text) {
        let segment = parse_segment(typed, socket, segment)?;
        return Ok(Served {
            typed: segment.typed,
            socket: segment.volume,
            owner: segment.owner,
            name: Some(segment.name),
        });
    }
    if text.is_empty() {
        return Err(Reason::NoSocket);
    }
    Ok(Served {
        typed,
        socket: PathBuf::from(OsStr::from_bytes(text)),
        owner: None,
        name: None,
    })
}

/// Reads `[UID/]SEGMENT` behind the volume's path.
fn parse_segment(typed: String, volume: &[u8], segment: &[u8]) -> Result<NamedSegment, Reason> {
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
        typed,
        volume: PathBuf::from(OsStr::from_bytes(volume)),
        owner,
        name: name.to_owned(),
    })
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
struct TargetError {
    typed: String,
    reason: Reason,
}

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

impl TargetError {
    /// The failure of the command `operation` that was given this target.
    fn into_failure(self, operation: &str) -> Failure {
        let code = match self.reason {
            Reason::Served => "EOPNOTSUPP",
            _ => "EUSAGE",
        };
        let failure = Failure::new(operation, code, self.to_string());
        let failure = match self.reason.need() {
            Some(need) => failure.needing(need),
            None => failure,
        };
        let failure = match self.reason.cure() {
            Some(cure) => failure.cured_by(cure),
            None => failure,
        };
        failure.on(self.typed)
    }
}

/// The reason alone, without the target's text.
impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Reason::Empty => write!(f, "the target is empty"),
            Reason::Served => write!(f, "this needs the file or device itself, and not what a broker serves"),
            Reason::NoSocket => write!(f, "no socket after `unix:`"),
            Reason::TwoReadings { volume, name } => write!(
                f,
                "two readings: the file '{}', or the segment '{name}' of '{}'; both exist",
                self.typed,
                volume.display()
            ),
            Reason::HashInName { volume } => write!(
                f,
                "a segment's name has no '#', and there is no volume '{}'",
                volume.display()
            ),
            Reason::NoVolume => write!(f, "no volume before the '#'"),
            Reason::NoName => write!(f, "no segment name after the '#'"),
            Reason::BadOwner(owner) => write!(f, "'{owner}' is not a uid"),
            Reason::BadName => write!(f, "no segment can have this name"),
            Reason::PathExpected => write!(f, "this is a segment"),
            Reason::SegmentExpected => write!(f, "this is not a segment"),
        }
    }
}

impl std::error::Error for TargetError {}

impl Reason {
    fn need(&self) -> Option<&'static str> {
        match self {
            Reason::Empty | Reason::NoVolume | Reason::NoName => Some("PATH or PATH#[UID/]SEGMENT"),
            Reason::BadOwner(_) => Some("PATH#[UID/]SEGMENT with a number as UID"),
            Reason::BadName => Some("a name in UTF-8 without '/'"),
            Reason::HashInName { .. } => Some("PATH#[UID/]SEGMENT, with the last '#' behind a volume that exists"),
            Reason::PathExpected => Some("the PATH of a file, a device or a volume"),
            Reason::SegmentExpected => Some("PATH#[UID/]SEGMENT"),
            Reason::Served => Some("the PATH of the volume"),
            Reason::NoSocket => Some("unix:SOCKET or unix:SOCKET#[UID/]SEGMENT"),
            Reason::TwoReadings { .. } => None,
        }
    }

    fn cure(&self) -> Option<&'static str> {
        match self {
            Reason::Served => {
                Some("end its broker and name the volume's own path; for a file of this name write ./unix:...")
            }
            Reason::TwoReadings { .. } => Some("write PATH#UID/SEGMENT for the segment, or rename the file"),
            Reason::HashInName { .. } => Some("choose a name without '#', or check the volume's path"),
            Reason::BadName => Some("choose another name"),
            Reason::Empty | Reason::NoVolume | Reason::NoName | Reason::SegmentExpected => {
                Some("name the volume and the segment, as in vol#log")
            }
            Reason::NoSocket => Some("name the socket of the broker, as in unix:/run/baio/socket#log"),
            Reason::BadOwner(_) => Some("write the owner's uid, or leave it out for your own segments"),
            Reason::PathExpected => Some("leave out the '#' and what follows it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Resolves `text` on a disk that holds just `files`.
    fn resolve(text: &str, files: &[&str]) -> Result<Target, TargetError> {
        TypedTarget::from(OsString::from(text)).resolve(|path| files.iter().any(|file| path == Path::new(file)))
    }

    fn file(path: &str) -> Result<Target, TargetError> {
        Ok(Target::File(PathBuf::from(path)))
    }

    /// The segment that a text names, where nothing exists.
    fn segment(volume: &str, owner: Option<u32>, name: &str) -> Result<Target, TargetError> {
        let typed = match owner {
            Some(owner) => format!("{volume}#{owner}/{name}"),
            None => format!("{volume}#{name}"),
        };
        Ok(Target::Segment(NamedSegment {
            typed,
            volume: PathBuf::from(volume),
            owner,
            name: name.to_owned(),
        }))
    }

    fn reason(text: &str, files: &[&str]) -> Reason {
        resolve(text, files).unwrap_err().reason
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
    fn two_readings_are_an_error_that_names_both() {
        let error = resolve("a#b", &["a", "a#b"]).unwrap_err();
        let said = error.clone().into_failure("stat").to_string();
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
        assert_eq!(typed(b"v\xff").resolve(never), Ok(Target::File(path)));
        let named = typed(b"vol#\xff").resolve(never).unwrap_err();
        assert_eq!(named.reason, Reason::BadName);
    }

    #[test]
    fn served_volumes_and_their_segments_are_named_by_their_socket() {
        let served = |text: &str, owner, name: Option<&str>| {
            Ok(Target::Served(Served {
                typed: text.to_owned(),
                socket: PathBuf::from("/run/a#b"),
                owner,
                name: name.map(str::to_owned),
            }))
        };
        let all = "unix:/run/a#b#log";
        assert_eq!(resolve(all, &[all]), served(all, None, Some("log")));
        let theirs = "unix:/run/a#b#7/log";
        assert_eq!(resolve(theirs, &[]), served(theirs, Some(7), Some("log")));
        let volume = resolve("unix:/run/s", &[]).unwrap();
        assert!(
            matches!(volume, Target::Served(Served { name: None, .. })),
            "{volume:?}"
        );
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
