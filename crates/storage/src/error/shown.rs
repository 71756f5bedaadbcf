//! How the error is shown, what is below it, and how it goes through interfaces that know only `std::io::Error`.

use std::fmt;
use std::io;

use baio_words::{IN_LINE, ON_LINES, into_std, write_advice};

use crate::identity::Sight;

use super::{Errno, Error, Fault};
use crate::segment::layout::{BLOCK_SIZE_MAX, BLOCK_SIZE_MIN, LayoutError, SEGMENTS_MIN};

impl Error {
    fn write(&self, f: &mut fmt::Formatter<'_>, between: &str) -> fmt::Result {
        write!(f, "{} {}", self.operation, self.object)?;
        if let Some(offset) = self.offset {
            write!(f, " at {offset}")?;
        }
        match &self.fault {
            // The same was being done to the same: said once.
            Fault::Setup(error) if (error.operation, &error.object) == (self.operation, &self.object) => {
                write!(f, ": {}", error.errno)?;
            }
            fault => write!(f, ": {fault}")?,
        }
        write_advice(f, between, self.need().as_deref(), self.cure().as_deref())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, IN_LINE)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            self.0.fmt(f)
        } else {
            self.write(f, ON_LINES)
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.fault {
            Fault::Io(error) => Some(error),
            Fault::Setup(error) => Some(error.as_ref()),
            Fault::Name(error) => Some(error),
            Fault::Layout(error) => Some(error),
            Fault::Cache(error) => Some(error),
            Fault::Log(error) => Some(error.as_ref()),
            Fault::RepairCut { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl From<Error> for io::Error {
    /// The kind is that of [`Error::errno`]. The error itself is inside: `get_ref` and `downcast_ref` find it, and with it the
    /// number, for `raw_os_error` is `None`.
    fn from(error: Error) -> io::Error {
        into_std(error.errno().unwrap_or(Errno::EIO), error)
    }
}

pub(super) fn layout_need(error: &LayoutError) -> Option<String> {
    Some(match error {
        LayoutError::BlockSize { .. } => {
            format!("a power of two from {BLOCK_SIZE_MIN} to {BLOCK_SIZE_MAX} bytes")
        }
        LayoutError::TooSmall { least_bytes, .. } => format!("{least_bytes} bytes"),
        LayoutError::MaxBelowSize { size_bytes, .. } => format!("a maximal size of at least {size_bytes} bytes"),
        LayoutError::Segments { .. } => format!("at least {SEGMENTS_MIN} segments"),
        LayoutError::DataBlocks { max, .. } => format!("1 to {max} data blocks"),
        LayoutError::Overflow => "an end of the volume below 2^63 bytes".into(),
    })
}

impl Fault {
    /// The same without the volume's figures, for whom they are not shown to.
    pub(crate) fn seen_with(self, sight: Sight) -> Fault {
        match (sight, self) {
            (Sight::Own, Fault::NoSpace { asked, .. }) => Fault::NoSpace {
                asked,
                free: None,
                largest: None,
            },
            (Sight::Own, Fault::TableFull { .. }) => Fault::TableFull { segments_max: None },
            (_, fault) => fault,
        }
    }
}
