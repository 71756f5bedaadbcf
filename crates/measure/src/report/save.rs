//! `report.json` and `report.html`, which are whole at any moment: each is written beside its place, synced, and renamed into it. An
//! older report stays as `report.json.old`.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use baio_console::failure::Failure;

use crate::report::page;
use crate::report::record::{FORMAT, Record};

const JSON: &str = "report.json";
const HTML: &str = "report.html";

/// The report that was there before, where a new one has been written over it.
const OLDER: &str = "report.json.old";

/// Where a report is kept.
pub(super) struct Shelf {
    dir: PathBuf,
    /// Of a report that is there and is another one: is it finished? None where there is none, or it has been set aside.
    older: Cell<Option<bool>>,
}

impl Shelf {
    /// In this directory, which is made if it is not there.
    ///
    /// # Errors
    /// Nothing can be kept there, or a file of the same name is somebody else's.
    pub(super) fn at(dir: &Path) -> Result<Shelf, Failure> {
        fs::create_dir_all(dir).map_err(|error| refused(dir, &error))?;
        let shelf = Shelf {
            dir: dir.to_owned(),
            older: Cell::new(None),
        };
        let kept = shelf.kept()?;
        shelf.older.set(kept.as_ref().map(|record| record.finished));
        if kept.is_none() && fs::symlink_metadata(shelf.dir.join(HTML)).is_ok() {
            return Err(
                Failure::new("report", "EEXIST", "a page that no report of ours stands beside")
                    .on(shelf.dir.join(HTML).display().to_string())
                    .needing("a directory with no other report.html")
                    .cured_by("move it away, or name another directory by --out"),
            );
        }
        // Before anything is measured.
        let (_, fresh) = shelf.places(JSON);
        let tried = new_file(&fresh).and_then(|_| fs::remove_file(&fresh));
        tried.map_err(|error| refused(&shelf.json(), &error))?;
        Ok(shelf)
    }

    pub(super) fn json(&self) -> PathBuf {
        self.dir.join(JSON)
    }

    /// Where the page is, if there is one.
    pub(super) fn html(&self) -> Option<PathBuf> {
        let path = self.dir.join(HTML);
        path.exists().then_some(path)
    }

    /// The report that is there already.
    ///
    /// # Errors
    /// What is there is no report of ours: it must not be written over.
    pub(super) fn kept(&self) -> Result<Option<Record>, Failure> {
        let path = self.json();
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            _ => load(&path)
                .map(Some)
                .map_err(|failure| failure.cured_by("move it away, or name another directory by --out")),
        }
    }

    /// Is this a file that a report writes, sets aside or replaces?
    pub(super) fn writes(&self, path: &Path) -> bool {
        let one = path.canonicalize().ok();
        let own = |name: &&str| self.dir.join(name).canonicalize().ok() == one;
        one.is_some() && [JSON, OLDER, HTML].iter().any(own)
    }

    /// The report that is there is gone on with, and is no other one.
    pub(super) fn go_on(&self) {
        self.older.set(None);
    }

    /// Makes sure that the report that is there may be set aside.
    ///
    /// # Errors
    /// What has that name already is somebody else's.
    pub(super) fn may_set_aside(&self) -> Result<(), Failure> {
        let old = self.dir.join(OLDER);
        let is_ours = fs::symlink_metadata(&old).is_err() || load(&old).is_ok();
        if is_ours || self.older.get().is_none() {
            return Ok(());
        }
        Err(Failure::new(
            "report",
            "EEXIST",
            "this is no report of ours, and the one that is there would take its place",
        )
        .on(old.display().to_string())
        .needing("a directory with no other report.json.old")
        .cured_by("move it away, or name another directory by --out"))
    }

    /// Writes the report as it stands; an older one is set aside first. One that was interrupted before it had a figure does not
    /// take its place.
    ///
    /// # Errors
    /// The system refused; or the older one stays.
    pub(super) fn save(&self, record: &Record, interrupted: bool) -> Result<(), Failure> {
        if let Some(is_finished) = self.older.get() {
            if interrupted && !has_figures(record) {
                return Err(Failure::new(
                    "report",
                    "EINTR",
                    "nothing was measured, and the older report that is there stays",
                )
                .on(self.json().display().to_string())
                .needing("an experiment that comes to a figure")
                .cured_by("begin again"));
            }
            self.set_aside(is_finished)?;
            self.older.set(None);
        }
        let json = serde_json::to_vec_pretty(record)
            .map_err(|error| Failure::new("report", "EINVAL", error.to_string()).on(JSON))?;
        self.put(JSON, &json)?;
        self.put(HTML, page::html(record).as_bytes())
    }

    /// Keeps what is there by another name. One that did not finish is not worth one that did.
    fn set_aside(&self, is_finished: bool) -> Result<(), Failure> {
        // It may have come since the report began.
        self.may_set_aside()?;
        let (old, fresh) = self.places(OLDER);
        if !is_finished && load(&old).is_ok_and(|old| old.finished) {
            return Ok(());
        }
        // The name stays with the report until the new one takes it.
        let linked = fs::hard_link(self.json(), &fresh);
        let there = linked.or_else(|_| write(&fresh, &fs::read(self.json())?));
        there.and_then(|()| fs::rename(&fresh, &old)).map_err(|error| {
            let _ = fs::remove_file(&fresh);
            refused(&old, &error)
        })
    }

    /// Where a file is, and where a new one is written: no other report writes there.
    fn places(&self, name: &str) -> (PathBuf, PathBuf) {
        let fresh = format!(".{name}.{}.new", std::process::id());
        (self.dir.join(name), self.dir.join(fresh))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        let (path, fresh) = self.places(name);
        let written = write(&fresh, bytes).and_then(|()| fs::rename(&fresh, &path));
        // The name is as durable as the bytes.
        let synced = written.and_then(|()| File::open(&self.dir)?.sync_all());
        synced.map_err(|error| {
            let _ = fs::remove_file(&fresh);
            refused(&path, &error)
        })
    }
}

fn has_figures(record: &Record) -> bool {
    record.rows().any(|found| found.row.ours.is_some())
}

/// A file of ours by a name that others can guess. What stands there is removed and never opened: a link might lead anywhere.
fn new_file(path: &Path) -> std::io::Result<File> {
    let _ = fs::remove_file(path);
    File::create_new(path)
}

fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = new_file(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn refused(path: &Path, error: &std::io::Error) -> Failure {
    Failure::from_io("report", error)
        .on(path.display().to_string())
        .needing("a directory in which the report can be kept")
        .cured_by("name another one by --out")
}

/// Reads a report that was kept.
///
/// # Errors
/// There is none, or it is none of ours.
pub(super) fn load(path: &Path) -> Result<Record, Failure> {
    let on = path.display().to_string();
    // A pipe would be waited for, a device read without end.
    let there = fs::metadata(path).and_then(|metadata| match metadata.is_file() || metadata.is_dir() {
        true => fs::read(path),
        false => Err(std::io::Error::new(ErrorKind::InvalidInput, "it is not a regular file")),
    });
    let json = there.map_err(|error| {
        let failure = Failure::from_io("report", &error).on(on.as_str());
        failure
            .needing("a report.json that can be read")
            .cured_by("check the path")
    })?;
    let strange = |said: String| {
        Failure::new("report", "EINVAL", said)
            .on(on.as_str())
            .needing(format!("a report.json of `baio report`, of format {FORMAT}"))
            .cured_by("name another file")
    };
    // A list would be taken for the fields in their order.
    if json.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(strange("it is not a report".into()));
    }
    let record: Record = serde_json::from_slice(&json).map_err(|error| strange(error.to_string()))?;
    match record.format {
        FORMAT => Ok(record),
        0 => Err(strange("it is not a report".into())),
        other => Err(strange(format!("it is a report of format {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::record::Row;

    /// The names under which files are written can be guessed.
    #[test]
    fn a_link_in_the_place_of_a_new_file_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let other = dir.path().join("other");
        fs::write(&other, "somebody's").unwrap();
        let link = |name: &str| {
            let fresh = dir.path().join(format!(".{name}.{}.new", std::process::id()));
            std::os::unix::fs::symlink(&other, fresh).unwrap();
        };
        link(JSON);
        let shelf = Shelf::at(dir.path()).unwrap();
        [JSON, HTML].into_iter().for_each(link);
        shelf.save(&of("", true, None), false).unwrap();
        assert_eq!(fs::read_to_string(other).unwrap(), "somebody's");
    }

    #[test]
    fn somebody_elses_file_is_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        for other in ["{\"mine\": 1}", "not json", "{\"format\": 99}", "[1]"] {
            fs::write(dir.path().join(JSON), other).unwrap();
            let Err(failure) = Shelf::at(dir.path()) else {
                panic!("{other} was taken for a report");
            };
            assert!(failure.to_string().contains("--out"), "{failure}");
        }
        fs::remove_file(dir.path().join(JSON)).unwrap();
        fs::write(dir.path().join(HTML), "somebody else's").unwrap();
        assert!(
            Shelf::at(dir.path()).is_err(),
            "a page of somebody else's was taken for ours"
        );
    }

    #[test]
    fn somebody_elses_file_is_not_replaced_by_an_older_report() {
        let dir = tempfile::tempdir().unwrap();
        let old = dir.path().join(OLDER);
        let save = || Shelf::at(dir.path()).unwrap().save(&of("1", true, Some(1.0)), false);
        fs::write(&old, "somebody else's").unwrap();
        Shelf::at(dir.path()).unwrap().may_set_aside().unwrap();
        save().unwrap();
        let shelf = Shelf::at(dir.path()).unwrap();
        let refused = shelf.may_set_aside().unwrap_err();
        assert!(refused.to_string().contains("--out"), "{refused}");
        // Also where it has come meanwhile.
        assert!(save().is_err());
        assert_eq!(fs::read_to_string(&old).unwrap(), "somebody else's");
        assert_eq!(load(&dir.path().join(JSON)).unwrap().began, "1");
        shelf.go_on();
        shelf.may_set_aside().unwrap();
        fs::remove_file(&old).unwrap();
        save().unwrap();
        save().unwrap();
    }

    /// A report of this name, finished or not, with a figure or without.
    fn of(began: &str, finished: bool, figure: Option<f64>) -> Record {
        let row = Row {
            ours: figure,
            ..Row::default()
        };
        Record {
            format: FORMAT,
            began: began.into(),
            finished,
            ..Record::of(vec![row])
        }
    }

    #[test]
    fn an_older_report_is_set_aside_when_there_is_something_to_take_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let names = || [JSON, OLDER].map(|name| load(&dir.path().join(name)).map(|record| record.began).ok());
        let named = |json: &str, old: Option<&str>| [Some(json.to_owned()), old.map(str::to_owned)];
        let take = |record: &Record, interrupted| Shelf::at(dir.path()).unwrap().save(record, interrupted);
        take(&of("1", true, Some(1.0)), false).unwrap();
        assert_eq!(names(), named("1", None));
        let nothing = take(&of("2", false, None), true).unwrap_err();
        assert!(nothing.to_string().contains("stays"), "{nothing}");
        assert_eq!(names(), named("1", None), "it had no figure");
        take(&of("3", false, Some(1.0)), true).unwrap();
        assert_eq!(names(), named("3", Some("1")));
        take(&of("4", true, Some(1.0)), false).unwrap();
        assert_eq!(names(), named("4", Some("1")), "3 did not finish, and 1 did");
        let shelf = Shelf::at(dir.path()).unwrap();
        for began in ["5", "6"] {
            shelf.save(&of(began, true, Some(1.0)), false).unwrap();
        }
        assert_eq!(names(), named("6", Some("4")), "once for a report");
        let shelf = Shelf::at(dir.path()).unwrap();
        shelf.go_on();
        shelf.save(&of("7", true, None), true).unwrap();
        assert_eq!(names(), named("7", Some("4")), "6 was gone on with");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "nothing else is left");
    }
}
