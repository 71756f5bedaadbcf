//! Text that is safe to show: the one place that says what is.

use std::ffi::OsStr;
use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt as _;

/// Text from outside, safe to show on a terminal: what moves its cursor, its colours or the direction of its lines, and what cannot be
/// seen at all, appears as escapes.
pub struct Printable<'a>(pub &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            if is_hidden(character) {
                write!(f, "{}", character.escape_default())?;
            } else {
                f.write_char(character)?;
            }
        }
        Ok(())
    }
}

/// A text of lines, as [`Printable`] but for their ends and the tabs in them.
pub(crate) fn lines(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for part in text.split_inclusive(['\n', '\t']) {
        let (words, end) = match part.strip_suffix(['\n', '\t']) {
            Some(words) => part.split_at(words.len()),
            None => (part, ""),
        };
        safe.push_str(&Printable(words).to_string());
        safe.push_str(end);
    }
    safe
}

/// Is it shown as an escape? Controls, ends of lines, and Unicode's format characters: those of direction (U+202E turns a name round), the
/// invisible, the tags.
pub fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A path, or any text of the system, as characters. A byte that is no part of any stands as `\xff`, and then each backslash is doubled; so is it in a name
/// that holds such letters itself. So two names that differ are shown as two, in JSON too.
pub fn readable(text: impl AsRef<OsStr>) -> String {
    let bytes = text.as_ref().as_bytes();
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains("\\x") => text.to_owned(),
        _ => with_escapes(bytes, "\\\\"),
    }
}

/// The same of a text with names in it, which are so already.
pub(crate) fn readable_text(bytes: &[u8]) -> String {
    with_escapes(bytes, "\\")
}

fn with_escapes(bytes: &[u8], backslash: &str) -> String {
    let mut readable = String::new();
    for chunk in bytes.utf8_chunks() {
        readable.push_str(&chunk.valid().replace('\\', backslash));
        for byte in chunk.invalid() {
            readable.push_str(&format!("\\x{byte:02x}"));
        }
    }
    readable
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn what_drives_a_terminal_or_turns_a_name_round_is_escaped_and_what_people_write_is_not() {
        for (text, shown) in [
            ("a\u{1b}[2Jb", "a\\u{1b}[2Jb"),
            ("gpj.\u{202e}exe", "gpj.\\u{202e}exe"),
            ("a\u{200b}b\u{2066}\u{feff}", "a\\u{200b}b\\u{2066}\\u{feff}"),
            ("line\u{2028}line\n", "line\\u{2028}line\\n"),
            ("ä 日本 e\u{301} \\ \"", "ä 日本 e\u{301} \\ \""),
        ] {
            assert_eq!(Printable(text).to_string(), shown);
        }
    }

    #[test]
    fn names_that_are_no_text_stay_apart() {
        let [one, two] = [&b"a\xff"[..], &b"a\xfe"[..]].map(|bytes| readable(OsStr::from_bytes(bytes)));
        assert_eq!((one.as_str(), two.as_str()), ("a\\xff", "a\\xfe"));
        assert_eq!((readable("ä"), readable("a\\b")), ("ä".into(), "a\\b".into()));
        // The letters of an escape are no byte, nor are those of an escaped backslash.
        let names: [&[u8]; 6] = [b"\xff", b"\\xff", b"\\\\xff", b"\\\xff", b"\\\\\xff", b"\\\\"];
        let shown: HashSet<_> = names.iter().map(|name| readable(OsStr::from_bytes(name))).collect();
        assert_eq!(shown.len(), names.len(), "{shown:?}");
    }
}
