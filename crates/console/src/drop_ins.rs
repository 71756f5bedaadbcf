//! Where the drop-in libraries are, and how a program is started on them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::printable::readable;

/// The environment variable that names their directories, with colons between.
pub const DIRECTORY: &str = "BAIO_LIBRARIES";

/// Directories to look in, from that of the program: as they are built, and as they are installed. Not `../lib`: the distribution's libaio may
/// be there.
const NEAR: [&str; 4] = ["libaio", "posix-aio", ".", "../lib/baio"];
/// Where packages put what only one program looks for.
const OF_PACKAGES: [&str; 3] = ["/usr/local/lib/baio", "/usr/lib/baio", "/usr/lib64/baio"];

/// One of the libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropIn {
    /// `libaio.so.1`, found in place of the distribution's by programs that are linked with it.
    Libaio,
    /// `libbaio-posix-aio.so`, loaded before the C library.
    PosixAio,
}

impl DropIn {
    /// Its file.
    #[must_use]
    pub fn file(self) -> &'static str {
        match self {
            DropIn::Libaio => "libaio.so.1",
            DropIn::PosixAio => "libbaio-posix-aio.so",
        }
    }

    /// What builds it.
    fn script(self) -> &'static str {
        match self {
            DropIn::Libaio => "crates/libaio/build.sh",
            DropIn::PosixAio => "crates/posix-aio/build.sh",
        }
    }

    /// The directory that it is in: one of those `named`; if none is, one of the environment's, or near this program.
    ///
    /// # Errors
    /// It is in none of them, or its path cannot be told to the loader; on behalf of `operation`.
    pub fn find(self, operation: &'static str, named: &[PathBuf]) -> Result<PathBuf, Failure> {
        let directories = match named {
            [] => [of_the_environment(), near_this_program(), installed(cargo_home())].concat(),
            named => named.to_vec(),
        };
        let found = directories
            .iter()
            .find(|directory| directory.join(self.file()).is_file());
        let Some(found) = found else {
            let searched: Vec<_> = directories.iter().map(readable).collect();
            return Err(
                Failure::new(operation, "ENOENT", format!("not in {}", searched.join(", ")))
                    .on(self.file())
                    .needing("the library")
                    .cured_by(format!(
                        "build it from baio's sources by {}, and copy it to one of these directories or name its own by --libraries or {DIRECTORY}",
                        self.script()
                    )),
            );
        };
        let found = found.canonicalize().map_err(|error| {
            Failure::from_io(operation, &error)
                .on(readable(found))
                .needing("a directory that can be looked up")
                .cured_by("name another by --libraries")
        })?;
        // ld.so(8): these end a name in its lists.
        if found
            .as_os_str()
            .as_bytes()
            .iter()
            .any(|byte| b":; \t\n$".contains(byte))
        {
            return Err(Failure::new(
                operation,
                "EINVAL",
                "the loader's lists have no way to write a colon, a semicolon, a space or a dollar sign",
            )
            .on(readable(found))
            .needing("a directory without them in its path")
            .cured_by("copy the library to another directory and name that by --libraries"));
        }
        Ok(found)
    }

    /// Makes a command that is about to be started use the library in this directory.
    pub fn lend(self, directory: &Path, command: &mut Command) {
        let (variable, ours) = match self {
            DropIn::Libaio => ("LD_LIBRARY_PATH", directory.as_os_str().to_owned()),
            DropIn::PosixAio => ("LD_PRELOAD", directory.join(self.file()).into_os_string()),
        };
        let own = command
            .get_envs()
            .find(|(name, _)| *name == OsStr::new(variable))
            .and_then(|(_, value)| value.map(OsStr::to_owned));
        let told = own
            .or_else(|| std::env::var_os(variable))
            .filter(|told| !told.is_empty());
        let list = match (told, self) {
            (None, _) => ours,
            (Some(told), DropIn::Libaio) => joined(ours, &told),
            // A sanitizer's runtime must come first; nothing else has our functions.
            (Some(told), DropIn::PosixAio) => joined(told, &ours),
        };
        command.env(variable, list);
    }
}

fn of_the_environment() -> Vec<PathBuf> {
    let named = std::env::var_os(DIRECTORY).unwrap_or_default();
    let all = std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty());
    all.collect()
}

fn near_this_program() -> Vec<PathBuf> {
    let program = std::env::current_exe().ok();
    let near = program.as_deref().and_then(Path::parent);
    let near = near.map(|near| {
        let triplet = near.join(format!("../lib/{}/baio", triplet()));
        NEAR.iter().map(|place| near.join(place)).chain([triplet]).collect()
    });
    near.unwrap_or_default()
}

/// As Debian and what comes from it name the directories of a machine's kind.
fn triplet() -> String {
    format!("{}-linux-gnu", std::env::consts::ARCH)
}

/// Where cargo installs programs, whose directory may have been left.
fn cargo_home() -> Option<PathBuf> {
    let named = std::env::var_os("CARGO_HOME").filter(|named| !named.is_empty());
    let own = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
    named.map(PathBuf::from).or_else(own)
}

fn installed(cargo_home: Option<PathBuf>) -> Vec<PathBuf> {
    let of_cargo = cargo_home.map(|home| home.join("lib/baio"));
    let of_packages = OF_PACKAGES.map(PathBuf::from);
    let of_kind = PathBuf::from(format!("/usr/lib/{}/baio", triplet()));
    of_cargo.into_iter().chain(of_packages).chain([of_kind]).collect()
}

fn joined(mut first: OsString, then: &OsStr) -> OsString {
    first.push(":");
    first.push(then);
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_loader_is_told_already_stays() {
        let mut command = Command::new("true");
        command.env("LD_LIBRARY_PATH", "/opt/lib").env("LD_PRELOAD", "");
        DropIn::Libaio.lend(Path::new("/l"), &mut command);
        DropIn::PosixAio.lend(Path::new("/p"), &mut command);
        let told: Vec<_> = command
            .get_envs()
            .map(|(_, value)| value.unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(told, ["/l:/opt/lib", "/p/libbaio-posix-aio.so"]);
    }

    /// A program that was built with a sanitizer does not start unless the runtime is the first.
    #[test]
    fn what_the_program_preloads_comes_before_ours() {
        let mut command = Command::new("true");
        command.env("LD_PRELOAD", "/usr/lib/libasan.so.8");
        DropIn::PosixAio.lend(Path::new("/p"), &mut command);
        let told = command.get_envs().next().and_then(|(_, value)| value);
        assert_eq!(told.unwrap(), "/usr/lib/libasan.so.8:/p/libbaio-posix-aio.so");
    }

    #[test]
    fn installed_libraries_are_looked_for() {
        let places = installed(Some(PathBuf::from("/home/me/.cargo")));
        assert_eq!(places[0], Path::new("/home/me/.cargo/lib/baio"));
        let of_kind = format!("/usr/lib/{}-linux-gnu/baio", std::env::consts::ARCH);
        assert!(places.contains(&PathBuf::from("/usr/lib/baio")) && places.contains(&PathBuf::from(of_kind)));
        let near = near_this_program();
        assert!(near.iter().any(|place| place.ends_with("../lib/baio")), "{near:?}");
    }

    #[test]
    fn a_library_is_found_or_said_how_to_get() {
        let dir = tempfile::tempdir().unwrap();
        let missing = DropIn::Libaio.find("run", &[dir.path().to_owned()]).unwrap_err();
        assert!(missing.to_json().to_string().contains("crates/libaio/build.sh"));
        std::fs::write(dir.path().join("libaio.so.1"), b"").unwrap();
        let found = DropIn::Libaio.find("run", &[dir.path().to_owned()]).unwrap();
        assert_eq!(found, dir.path().canonicalize().unwrap());
        let odd = dir.path().join("a:b");
        std::fs::create_dir(&odd).unwrap();
        std::fs::write(odd.join("libaio.so.1"), b"").unwrap();
        let refused = DropIn::Libaio.find("run", &[odd]).unwrap_err();
        assert!(refused.to_json().to_string().contains("EINVAL"));
    }
}
