//! A writer of a log that is to be killed: appends records one by one, and prints the number of each that is safe.

use std::io::Write;
use std::path::PathBuf;

use baio::{File, LogOptions, Remote};
use serde::{Deserialize, Serialize};

/// More than it writes before it is killed.
const LOG_BYTES: u64 = 128 << 20;

/// What it is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Appender {
    pub(crate) log: PathBuf,
}

/// The bytes of the record of this number, the first of which is 1.
pub(crate) fn record_of(number: u64) -> Vec<u8> {
    let words = (0..16).map(|word| baio_stress::mix(number * 16 + word));
    words.flat_map(u64::to_le_bytes).collect()
}

impl Appender {
    /// # Errors
    /// The log cannot be made, or written.
    pub(crate) fn run(&self) -> Result<serde_json::Value, String> {
        self.append().map_err(|error| error.to_string())
    }

    fn append(&self) -> Result<serde_json::Value, Box<dyn std::error::Error>> {
        let link = Remote::new()?;
        let file = File::options().write().create().open(&link, &self.log).wait()?;
        let options = LogOptions {
            file_bytes: LOG_BYTES,
            ..LogOptions::default()
        };
        let log = file.open_or_create_log(&options).wait()?;
        let mut out = std::io::stdout().lock();
        for number in 1_u64.. {
            log.append_durable(&record_of(number)).wait()?;
            writeln!(out, "{number}")?;
            out.flush()?;
        }
        Ok(serde_json::Value::Null)
    }
}
