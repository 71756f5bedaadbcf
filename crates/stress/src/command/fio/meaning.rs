//! What the options of a section mean here: the options of `baio stress`, or the one that is not known.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Refusal;
use super::file::{JobFile, Section, Word};
use super::units::{number, size, switch, time};
use crate::job::{Backend, Mode, Rw};

/// A section, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meaning {
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) rw: Rw,
    pub(super) read_percent: u8,
    pub(super) request_size: u64,
    pub(super) depth: u32,
    pub(super) batch: u32,
    pub(super) backend: Backend,
    pub(super) is_direct: bool,
    /// Dropped from the kernel's page cache first, as fio does by itself.
    pub(super) invalidate: bool,
    pub(super) is_synced: Synced,
    pub(super) end_sync: bool,
    pub(super) size: Option<u64>,
    pub(super) io_size: Option<u64>,
    pub(super) runtime: Option<Duration>,
    pub(super) time_based: bool,
    /// Random requests may touch a block again.
    pub(super) repeats: bool,
    pub(super) directory: PathBuf,
    pub(super) filename: Option<PathBuf>,
    pub(super) files: u32,
    pub(super) clones: u32,
    pub(super) is_one_row: bool,
    /// Begins when all before it have ended.
    pub(super) waits: bool,
    pub(super) seed: u64,
}

/// What each write has made safe when it completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Synced {
    No,
    Data,
    All,
}

/// Options that say how fio measures, lays out or names, and change no request.
const SAY_NOTHING: [&str; 22] = [
    "allrandrepeat",
    "bwavgtime",
    "clat_percentiles",
    "clocksource",
    "create_serialize",
    "description",
    "disable_bw_measurement",
    "disable_clat",
    "disable_lat",
    "disable_slat",
    "fallocate",
    "gtod_reduce",
    "iopsavgtime",
    "lat_percentiles",
    "new_group",
    "overwrite",
    "percentile_list",
    "random_generator",
    "randrepeat",
    "refill_buffers",
    "scramble_buffers",
    "thread",
];

/// What fio takes where nothing is said.
const BLOCK: u64 = 4096;

impl Meaning {
    /// Understands a section, or names the first option that is not known.
    pub(super) fn of(file: &JobFile, section: &Section) -> Result<Meaning, Refusal> {
        let mut meaning = Meaning {
            line: section.line,
            name: section.name.clone(),
            rw: Rw::Read,
            read_percent: 50,
            request_size: BLOCK,
            depth: 1,
            batch: 1,
            backend: Backend::Sync,
            is_direct: false,
            invalidate: true,
            is_synced: Synced::No,
            end_sync: false,
            size: None,
            io_size: None,
            runtime: None,
            time_based: false,
            repeats: false,
            directory: PathBuf::new(),
            filename: None,
            files: 1,
            clones: 1,
            is_one_row: false,
            waits: false,
            seed: 1,
        };
        for word in file.words(section) {
            meaning.take(word)?;
        }
        meaning.check()?;
        Ok(meaning)
    }

    fn take(&mut self, word: &Word) -> Result<(), Refusal> {
        let value = || {
            word.value.as_deref().ok_or_else(|| {
                Refusal::new(
                    word.line,
                    format!("'{}' has no value", word.name),
                    format!("{}=VALUE", word.name),
                )
            })
        };
        match word.name.as_str() {
            "rw" | "readwrite" => self.rw = pattern(word, value()?)?,
            "rwmixread" => self.read_percent = number(word, 0..=100)? as u8,
            "rwmixwrite" => self.read_percent = 100 - number(word, 0..=100)? as u8,
            "bs" | "blocksize" => self.request_size = size(word)?,
            "iodepth" => self.depth = number(word, 1..=16_384)? as u32,
            "iodepth_batch" | "iodepth_batch_submit" => self.batch = number(word, 1..=16_384)? as u32,
            "ioengine" => self.backend = engine(word, value()?)?,
            "direct" => self.is_direct = switch(word)?,
            "buffered" => self.is_direct = !switch(word)?,
            "invalidate" => self.invalidate = switch(word)?,
            "sync" => self.is_synced = synced(word, value()?)?,
            "fsync" => self.each_write(word, Synced::All)?,
            "fdatasync" => self.each_write(word, Synced::Data)?,
            "end_fsync" | "fsync_on_close" => self.end_sync = switch(word)?,
            "size" | "filesize" => self.size = Some(size(word)?),
            "io_size" | "io_limit" => self.io_size = Some(size(word)?),
            "runtime" | "timeout" => self.runtime = Some(time(word)?),
            "time_based" => self.time_based = switch(word)?,
            "norandommap" => self.repeats = switch(word)?,
            "directory" => self.directory = one_path(word, value()?)?,
            "filename" => self.filename = Some(one_path(word, value()?)?),
            "nrfiles" => self.files = number(word, 1..=1024)? as u32,
            "numjobs" => self.clones = number(word, 1..=256)? as u32,
            "group_reporting" => self.is_one_row = switch(word)?,
            "stonewall" | "wait_for_previous" => self.waits = switch(word)?,
            "randseed" => self.seed = number(word, 0..=u64::MAX)?,
            "name" => self.name = value()?.to_owned(),
            "loops" if number(word, 0..=u64::MAX)? <= 1 => {}
            known if SAY_NOTHING.contains(&known) => {}
            unknown => return Err(Refusal::unknown(word.line, unknown)),
        }
        Ok(())
    }

    /// `fsync=1` is a durable write; every so many is none of ours.
    fn each_write(&mut self, word: &Word, synced: Synced) -> Result<(), Refusal> {
        match number(word, 0..=u64::MAX)? {
            0 => {}
            1 => self.is_synced = synced,
            several => {
                let said = format!(
                    "{}={several} syncs after so many writes, and here it is each or none",
                    word.name
                );
                return Err(Refusal::new(
                    word.line,
                    said,
                    format!("{}=1, or end_fsync=1", word.name),
                ));
            }
        }
        Ok(())
    }

    /// What only the whole section can tell.
    fn check(&mut self) -> Result<(), Refusal> {
        let refused = |said: &str, need: &str| Err(Refusal::new(self.line, format!("[{}]: {said}", self.name), need));
        if self.time_based && self.runtime.is_none() {
            return refused("time_based without an end", "runtime=SECONDS");
        }
        if self.files > 1 && self.filename.is_some() {
            return refused("nrfiles and filename name different files", "one of the two");
        }
        if self.name.contains('/') && self.filename.is_none() {
            return refused("files cannot be named so", "filename=, or a name without `/`");
        }
        if self.backend == Backend::Sync {
            // fio says so too: whoever waits for each request has one under way.
            (self.depth, self.batch) = (1, 1);
        }
        self.batch = self.batch.min(self.depth);
        Ok(())
    }

    /// Bytes of each file.
    pub(super) fn file_size(&self) -> Option<u64> {
        self.size.map(|size| size / u64::from(self.files))
    }

    /// The file of a clone, or what its several files begin with; `elsewhere` replaces the directory of what is not absolute.
    pub(super) fn target(&self, clone: u32, elsewhere: Option<&Path>) -> PathBuf {
        let directory = elsewhere.unwrap_or(&self.directory);
        directory.join(match &self.filename {
            Some(filename) => filename.clone(),
            None if self.files > 1 => format!("{}.{clone}", self.name).into(),
            None => format!("{}.{clone}.0", self.name).into(),
        })
    }

    pub(super) fn mode(&self) -> Mode {
        if self.is_direct { Mode::Direct } else { Mode::Kernel }
    }
}

fn pattern(word: &Word, value: &str) -> Result<Rw, Refusal> {
    let known = [Rw::Read, Rw::Write, Rw::RandomRead, Rw::RandomWrite, Rw::RandomMixed];
    let found = known.into_iter().find(|rw| rw.name() == value);
    found.ok_or_else(|| {
        let said = format!("{}={value} is a pattern that does not run here", word.name);
        Refusal::new(word.line, said, "read, write, randread, randwrite or randrw")
    })
}

fn engine(word: &Word, value: &str) -> Result<Backend, Refusal> {
    match value {
        "io_uring" => Ok(Backend::Uring),
        "libaio" => Ok(Backend::Aio),
        "posixaio" => Ok(Backend::Threads),
        "sync" | "psync" | "pvsync" | "pvsync2" | "vsync" => Ok(Backend::Sync),
        other => {
            let said = format!("ioengine={other} is an engine that is not here");
            Err(Refusal::new(
                word.line,
                said,
                "io_uring, libaio, posixaio, psync or sync",
            ))
        }
    }
}

fn synced(word: &Word, value: &str) -> Result<Synced, Refusal> {
    match value {
        "0" | "none" => Ok(Synced::No),
        "1" | "sync" => Ok(Synced::All),
        "dsync" => Ok(Synced::Data),
        other => Err(Refusal::new(
            word.line,
            format!("'sync={other}' is not known"),
            "0, 1, none, sync or dsync",
        )),
    }
}

fn one_path(word: &Word, value: &str) -> Result<PathBuf, Refusal> {
    if value.is_empty() || value.contains(':') {
        let said = format!("{}={value} is not one path", word.name);
        return Err(Refusal::new(word.line, said, "one path without `:`"));
    }
    Ok(value.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::fio::file;

    fn meant(options: &str) -> Result<Meaning, Refusal> {
        let text = format!("[job]\n{}\n", options.replace(' ', "\n"));
        let file = file::read(&text, &|_| None).unwrap();
        Meaning::of(&file, &file.sections[0])
    }

    #[test]
    fn fio_has_defaults_of_its_own() {
        let meaning = meant("").unwrap();
        assert_eq!((meaning.rw, meaning.request_size, meaning.depth), (Rw::Read, 4096, 1));
        assert_eq!((meaning.backend, meaning.mode()), (Backend::Sync, Mode::Kernel));
        assert_eq!(meaning.target(3, None), Path::new("job.3.0"));
    }

    #[test]
    fn options_have_meanings() {
        let meaning = meant("rw=randrw rwmixwrite=30 bs=64k iodepth=8 ioengine=libaio direct=1 fdatasync=1 size=1g runtime=2m time_based").unwrap();
        assert_eq!(
            (meaning.rw, meaning.read_percent, meaning.request_size),
            (Rw::RandomMixed, 70, 65536)
        );
        assert_eq!(
            (meaning.depth, meaning.backend, meaning.mode()),
            (8, Backend::Aio, Mode::Direct)
        );
        assert_eq!((meaning.is_synced, meaning.size), (Synced::Data, Some(1 << 30)));
        assert_eq!(
            (meaning.runtime, meaning.time_based),
            (Some(Duration::from_secs(120)), true)
        );
        assert_eq!(meant("iodepth=8 ioengine=psync").unwrap().depth, 1);
        let files = meant("directory=/d nrfiles=4 size=1m").unwrap();
        assert_eq!(
            (files.target(0, None), files.file_size()),
            ("/d/job.0".into(), Some(256 << 10))
        );
        assert_eq!(
            meant("filename=/abs").unwrap().target(0, Some(Path::new("/e"))),
            Path::new("/abs")
        );
        assert_eq!(
            meant("filename=rel directory=/d")
                .unwrap()
                .target(0, Some(Path::new("/e"))),
            Path::new("/e/rel")
        );
    }

    #[test]
    fn what_does_not_run_is_refused_by_name() {
        for option in [
            "rw=rw",
            "rw=trim",
            "rw=randread:8",
            "ioengine=null",
            "bs=4k,8k",
            "bssplit=4k/100",
            "size=50%",
            "size=4kib",
            "verify=crc32c",
            "fsync=32",
            "filename=a:b",
            "rwmixread=101",
            "iodepth=0",
            "loops=5",
            "time_based",
            "rw",
        ] {
            let refusal = meant(option).unwrap_err();
            let name = option.split(['=', ' ']).next().unwrap();
            assert!(refusal.said.contains(name), "{option}: {}", refusal.said);
        }
    }
}
