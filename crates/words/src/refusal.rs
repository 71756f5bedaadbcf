//! Why something was not done.

use crate::codec::{Field, Malformed, NAME_MAX, Reader, Writer};

/// Why something was not done. It always fits into a message: longer texts are cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failed {
    /// The word that stands for it: "EACCES", "EINDETERMINATE".
    pub code: String,
    /// The nearest error number of Linux.
    pub errno: u32,
    /// What was asked.
    pub operation: String,
    /// Of what.
    pub object: String,
    /// At which byte of it.
    pub offset: Option<u64>,
    /// What went wrong.
    pub what: String,
    /// What was needed instead.
    pub need: Option<String>,
    /// What to do about it.
    pub cure: Option<String>,
}

impl Field for Failed {
    fn put(&self, writer: &mut Writer) {
        writer.cut(&self.code, NAME_MAX);
        self.errno.put(writer);
        writer.text(&self.operation);
        writer.text(&self.object);
        self.offset.put(writer);
        writer.text(&self.what);
        writer.opt_text(self.need.as_deref());
        writer.opt_text(self.cure.as_deref());
    }

    fn take(reader: &mut Reader<'_>) -> Result<Failed, Malformed> {
        Ok(Failed {
            code: Field::take(reader)?,
            errno: Field::take(reader)?,
            operation: reader.text()?,
            object: reader.text()?,
            offset: Field::take(reader)?,
            what: reader.text()?,
            need: reader.opt_text()?,
            cure: reader.opt_text()?,
        })
    }
}
