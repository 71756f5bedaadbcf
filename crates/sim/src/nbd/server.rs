//! Threads that answer on a socket: one that takes clients, and one for each of their connections.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use super::disk::{Disk, Refusal};
use super::wire::{self, Ask};

/// Serves a disk until it is dropped.
#[derive(Debug)]
pub struct Server {
    socket: PathBuf,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves on a socket of this name.
    ///
    /// # Errors
    ///
    /// No socket can be made there, or no thread be started.
    pub fn start(disk: &Arc<Disk>, socket: &Path) -> io::Result<Server> {
        let listener = UnixListener::bind(socket)?;
        let ends = Arc::new(AtomicBool::new(false));
        let (disk, told) = (Arc::clone(disk), Arc::clone(&ends));
        let thread = thread::Builder::new()
            .name("nbd".into())
            .spawn(move || take_clients(&listener, &disk, &told))?;
        Ok(Server {
            socket: socket.to_owned(),
            ends,
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        // Whoever listens wakes up, and sees it.
        if UnixStream::connect(&self.socket).is_ok() {
            let _ = self.thread.take().map(JoinHandle::join);
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// A client's thread ends when the client leaves: nobody waits for it.
fn take_clients(listener: &UnixListener, disk: &Arc<Disk>, ends: &AtomicBool) {
    for client in listener.incoming() {
        if ends.load(Ordering::Acquire) {
            return;
        }
        let Ok(mut client) = client else { continue };
        let disk = Arc::clone(disk);
        let started = thread::Builder::new()
            .name("nbd client".into())
            .spawn(move || match serve(&mut client, &disk) {
                Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                    eprintln!("baio-sim: a client of the block device: {error}");
                }
                _ => {}
            });
        if let Err(error) = started {
            eprintln!("baio-sim: no thread for a client of the block device: {error}");
        }
    }
}

fn serve(client: &mut UnixStream, disk: &Disk) -> io::Result<()> {
    if !wire::greet(client, disk.size())? {
        return Ok(());
    }
    while let Some((cookie, ask)) = wire::next(client)? {
        wire::answer(client, cookie, &done(disk, ask))?;
    }
    Ok(())
}

fn done(disk: &Disk, ask: Ask) -> Result<Vec<u8>, Refusal> {
    match ask {
        Ask::Read { offset, len } => disk.read(offset, len),
        Ask::Write { offset, bytes, fua } => disk.write(offset, bytes, fua).map(|()| Vec::new()),
        Ask::Zero { offset, len, fua } => disk.zero(offset, len, fua).map(|()| Vec::new()),
        Ask::Flush => disk.flush().map(|()| Vec::new()),
        Ask::Unknown => Err(Refusal::Outside),
    }
}
