//! Marks in the record of dm-log-writes: between the writes, at which line the worker was.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// The file beside the device in which a worker finds the device's name.
pub const MARKS: &str = "marks";
/// `struct dm_ioctl`, and behind it the message.
const HEAD: usize = 312;
const BYTES: usize = 512;
const NAME_AT: usize = 48;
const NAME_BYTES: usize = 128;
/// `DM_TARGET_MSG`
const MESSAGE: Opcode = opcode::read_write::<[u8; HEAD]>(0xfd, 14);

/// Who puts marks into the record of one device.
#[derive(Debug)]
pub struct Marks {
    control: File,
    name: String,
}

impl Marks {
    /// For the device of this name.
    ///
    /// # Errors
    /// There is no device-mapper here, or only root may ask it.
    pub fn new(name: &str) -> io::Result<Marks> {
        let control = File::options().read(true).write(true).open("/dev/mapper/control")?;
        Ok(Marks {
            control,
            name: name.chars().take(NAME_BYTES - 1).collect(),
        })
    }

    /// Puts a mark; it is in the record when this returns.
    ///
    /// # Errors
    /// The device is gone, or is no such record.
    pub fn put(&self, mark: u64) -> io::Result<()> {
        let mut bytes = [0_u8; BYTES];
        let mut at = |offset: usize, value: &[u8]| bytes[offset..offset + value.len()].copy_from_slice(value);
        at(0, &4_u32.to_ne_bytes());
        at(12, &(BYTES as u32).to_ne_bytes());
        at(16, &(HEAD as u32).to_ne_bytes());
        at(NAME_AT, self.name.as_bytes());
        // Behind the sector that the message is for, 0.
        at(HEAD + 8, format!("mark {mark}").as_bytes());
        // SAFETY: the kernel reads and writes at most as many bytes as the head says, which are those of the array.
        unsafe { ioctl(&self.control, Updater::<MESSAGE, [u8; BYTES]>::new(&mut bytes)) }?;
        Ok(())
    }
}
