//! `report.json` and `report.html`, which are whole at any moment: each is written beside its place, synced, and renamed into it.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use baio_console::failure::Failure;

use crate::report::page;
use crate::report::record::{FORMAT, Record};

const JSON: &str = "report.json";
const HTML: &str = "report.html";

/// Where a report is kept.
pub(super) struct Shelf {
    dir: PathBuf,
}

impl Shelf {
    /// In this directory, which is made if it is not there.
    ///
    /// # Errors
    /// Nothing can be kept there, or a file of the same name is somebody else's.
    pub(super) fn at(dir: &Path) -> Result<Shelf, Failure> {
        fs::create_dir_all(dir).map_err(|error| refused(dir, &error))?;
        let shelf = Shelf { dir: dir.to_owned() };
        if shelf.kept()?.is_none() && fs::symlink_metadata(shelf.dir.join(HTML)).is_ok() {
            return Err(
                Failure::new("report", "EEXIST", "a page that no report of ours stands beside")
                    .on(shelf.dir.join(HTML).display().to_string())
                    .needing("a directory with no other report.html")
                    .cured_by("move it away, or name another directory by --out"),
            );
        }
        // Before anything is measured.
        let (_, fresh) = shelf.places(JSON);
        let tried = File::create(&fresh).and_then(|_| fs::remove_file(&fresh));
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

    /// Writes the report as it stands.
    ///
    /// # Errors
    /// The system refused.
    pub(super) fn save(&self, record: &Record) -> Result<(), Failure> {
        let json = serde_json::to_vec_pretty(record)
            .map_err(|error| Failure::new("report", "EINVAL", error.to_string()).on(JSON))?;
        self.put(JSON, &json)?;
        self.put(HTML, page::html(record).as_bytes())
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

fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
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
    let json = fs::read(path).map_err(|error| {
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
        return Err(strange("it is no report".into()));
    }
    let record: Record = serde_json::from_slice(&json).map_err(|error| strange(error.to_string()))?;
    match record.format {
        FORMAT => Ok(record),
        0 => Err(strange("it is no report".into())),
        other => Err(strange(format!("it is a report of format {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(quick: bool) -> Record {
        Record {
            format: FORMAT,
            quick,
            ..Record::default()
        }
    }

    #[test]
    fn what_is_saved_can_be_read_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf::at(&dir.path().join("new")).unwrap();
        assert!(shelf.kept().unwrap().is_none());
        for quick in [false, true] {
            shelf.save(&record(quick)).unwrap();
            assert_eq!(shelf.kept().unwrap().unwrap().quick, quick);
        }
        let names: Vec<_> = fs::read_dir(dir.path().join("new")).unwrap().flatten().collect();
        assert!(
            names
                .iter()
                .all(|entry| entry.file_name().to_string_lossy().starts_with("report."))
        );
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
}
