//! nbdfuse: the device as a plain file. It uses direct I/O, so the kernel keeps nothing of it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
/// So many requests are under way at the server at once.
const CONNECTIONS: &str = "8";

/// A mounted device; dropping it unmounts it.
#[derive(Debug)]
pub struct Mount {
    file: PathBuf,
    nbdfuse: Child,
}

impl Mount {
    /// Mounts what is served on `socket` as the file `file`, which this makes.
    ///
    /// # Errors
    ///
    /// nbdfuse is not installed, or it cannot mount.
    pub fn new(socket: &Path, file: &Path, size: u64) -> Result<Mount, String> {
        std::fs::write(file, []).map_err(|error| format!("{}: {error}", file.display()))?;
        let said = file.with_extension("said");
        let stderr = std::fs::File::create(&said).map_err(|error| format!("{}: {error}", said.display()))?;
        // It ends with this process, however that ends.
        let nbdfuse = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "nbdfuse", "-C", CONNECTIONS])
            .arg(file)
            .arg("--unix")
            .arg(socket)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .map_err(|error| format!("setpriv: {error}"))?;
        let mut mount = Mount {
            file: file.to_owned(),
            nbdfuse,
        };
        let deadline = Instant::now() + PATIENCE;
        while std::fs::metadata(file).map_or(0, |metadata| metadata.len()) != size {
            if let Ok(Some(status)) = mount.nbdfuse.try_wait() {
                let said = std::fs::read_to_string(&said).unwrap_or_default();
                return Err(format!("nbdfuse: {}: {status}", said.trim()));
            }
            if Instant::now() > deadline {
                return Err(format!("nbdfuse shows nothing within {} s", PATIENCE.as_secs()));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(mount)
    }

    /// The device.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Whether nbdfuse still runs; it has no reason to end.
    pub fn lives(&mut self) -> bool {
        matches!(self.nbdfuse.try_wait(), Ok(None))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmount = |program: &str, options: &[&str]| {
            let mut command = Command::new(program);
            command.args(options).arg(&self.file);
            let done = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
            done.is_ok_and(|status| status.success())
        };
        if !unmount("fusermount3", &["-u"]) && !unmount("umount", &[]) && !unmount("umount", &["--lazy"]) {
            let _ = self.nbdfuse.kill();
        }
        let _ = self.nbdfuse.wait();
    }
}
