//! Devices whose server is a process, which is killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use baio_engine::sim::Random;

use super::rig::{DEVICE_BYTES, Rig, Strike, find, run};
use crate::powercut::real::Scratch;
use crate::powercut::worker::Failure;

/// A folder with the file that is served.
fn served(name: &str) -> Result<Scratch, Failure> {
    let folder = Scratch::new(name)?;
    fs::File::create(folder.0.join("disk"))?.set_len(DEVICE_BYTES)?;
    Ok(folder)
}

/// A server that ends with this process, however that ends.
fn start(program: &str, words: &[&str]) -> Result<Child, Failure> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(|error| format!("setpriv: {error}").into())
}

fn kill(server: &mut Child) {
    let _ = server.kill();
    let _ = server.wait();
}

const NBD: &str = "/dev/nbd0";

struct Nbd {
    folder: Scratch,
    server: Child,
}

pub(super) fn nbd() -> Result<Box<dyn Rig>, Failure> {
    run("nbdkit", &["--version"])?;
    let folder = served("nbd")?;
    let server = connect(&folder.0)?;
    Ok(Box::new(Nbd { folder, server }))
}

/// A server of the file, and the kernel's client.
fn connect(folder: &Path) -> Result<Child, Failure> {
    let socket = folder.join("socket");
    let _ = fs::remove_file(&socket);
    let [at, disk] = [&socket, &folder.join("disk")].map(|path| path.display().to_string());
    let server = start("nbdkit", &["--foreground", "--unix", &at, "file", &disk])?;
    find("socket of nbdkit", || socket.exists().then(|| socket.clone()))?;
    // Without a time limit requests that are under way when the server goes never end.
    run("nbd-client", &["-unix", &at, "-timeout", "3", NBD])?;
    Ok(server)
}

impl Rig for Nbd {
    fn path(&self) -> PathBuf {
        NBD.into()
    }

    fn strike(&mut self, _: &mut Random) -> Result<Strike, Failure> {
        kill(&mut self.server);
        Ok(Strike::Ends)
    }

    fn fails_by_itself(&self) -> bool {
        true
    }

    fn mend(&mut self) -> Result<(), Failure> {
        kill(&mut self.server);
        let _ = run("nbd-client", &["-d", NBD]);
        self.server = connect(&self.folder.0)?;
        Ok(())
    }
}

impl Drop for Nbd {
    fn drop(&mut self) {
        let _ = run("nbd-client", &["-d", NBD]);
        kill(&mut self.server);
    }
}

/// Its number, and its node.
const UBLK: (&str, &str) = ("7", "/dev/ublkb7");
/// A new server cannot have it before the kernel has seen that the old one is gone.
const RECOVERIES: usize = 4;

struct Ublk {
    folder: Scratch,
    server: Child,
    is_recovered: bool,
}

pub(super) fn ublk(is_recovered: bool) -> Result<Box<dyn Rig>, Failure> {
    run("rublk", &["--version"])
        .map_err(|error| format!("{error}; cure: cargo install rublk --no-default-features, which needs libclang"))?;
    if !Path::new("/dev/ublk-control").exists() {
        return Err("this kernel has no ublk (module ublk_drv)".into());
    }
    let folder = served("ublk")?;
    let server = serve(&folder.0, is_recovered)?;
    Ok(Box::new(Ublk {
        folder,
        server,
        is_recovered,
    }))
}

fn serve(folder: &Path, is_recovered: bool) -> Result<Child, Failure> {
    let disk = folder.join("disk").display().to_string();
    let mut words = vec!["add", "loop", "--foreground", "--number", UBLK.0, "--file", &disk];
    words.extend(["--logical-block-size", "512", "--no-discard"]);
    if is_recovered {
        words.push("--user-recovery");
    }
    let mut server = start("rublk", &words)?;
    let node = Path::new(UBLK.1);
    if let Err(error) = find("device of ublk", || node.exists().then(|| node.to_owned())) {
        kill(&mut server);
        return Err(error);
    }
    Ok(server)
}

fn delete() {
    let _ = run("rublk", &["del", "--number", UBLK.0]);
}

impl Rig for Ublk {
    fn path(&self) -> PathBuf {
        UBLK.1.into()
    }

    /// What is under way fails. What comes fails too, or waits for the new server.
    fn strike(&mut self, random: &mut Random) -> Result<Strike, Failure> {
        kill(&mut self.server);
        if !self.is_recovered {
            return Ok(Strike::Ends);
        }
        let mut done = Err("nobody has tried".into());
        for _ in 0..RECOVERIES {
            thread::sleep(Duration::from_millis(100 + random.below(400)));
            done = run("rublk", &["recover", "--number", UBLK.0]);
            if done.is_ok() {
                break;
            }
        }
        done.map(|_| Strike::Fails)
    }

    fn fails_by_itself(&self) -> bool {
        self.is_recovered
    }

    fn mend(&mut self) -> Result<(), Failure> {
        kill(&mut self.server);
        delete();
        self.server = serve(&self.folder.0, self.is_recovered)?;
        Ok(())
    }
}

impl Drop for Ublk {
    fn drop(&mut self) {
        kill(&mut self.server);
        delete();
    }
}
