//! Where a story runs: a device, and a folder for what its worker keeps beside it.

use std::path::PathBuf;

/// A device and a folder.
pub trait Place {
    /// The device, or the file that stands for it.
    fn device(&self) -> PathBuf;

    /// A file in the folder.
    fn beside(&self, name: &str) -> PathBuf;

    /// The power fails, if it can fail here: what was not flushed is gone.
    fn lose_power(&mut self) {}

    /// As after a start of the machine.
    ///
    /// # Errors
    /// The device does not come back.
    fn restart(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// A file in a folder that stands for a device. Its power does not fail.
#[derive(Debug)]
pub struct Folder(pub PathBuf);

impl Place for Folder {
    fn device(&self) -> PathBuf {
        self.beside("device")
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}
