//! The one object that `--json` prints.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;

/// The version of all objects that `--json` prints.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// The object of an answer: its own keys beside the version.
pub(crate) fn versioned(answer: &impl Serialize) -> io::Result<Value> {
    match serde_json::to_value(answer)? {
        Value::Object(mut object) => {
            object.insert("schema_version".to_owned(), SCHEMA_VERSION.into());
            Ok(Value::Object(object))
        }
        other => Err(io::Error::other(format!(
            "an answer must be a JSON object, this one is {other}"
        ))),
    }
}

/// Writes the object on a line of its own, so that line-wise tools can read it too.
pub(crate) fn write_object(out: &mut dyn Write, object: &Value) -> io::Result<()> {
    serde_json::to_writer(&mut *out, object)?;
    writeln!(out)
}
