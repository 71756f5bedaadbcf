//! Markup that is safe by type: what is written raw is part of this program, and everything else is escaped.
//!
//! Names, commands and notes come from a file, and may hold anything. So there is one way in for text, which serves between tags
//! and in quoted attributes alike, and one for data of a script.

use std::fmt::{self, Display, Write as _};

use baio_console::printable::is_hidden;
use serde::Serialize;

/// Markup of ours, and in its places text of anybody's: `put!(html, "<li>{}</li>", name)`. The markup is a literal, in which no name of a
/// variable can stand (`concat!` sees to that), so whatever is put into it is escaped.
macro_rules! put {
    ($html:expr, $markup:literal $(, $value:expr)* $(,)?) => {
        $html.put(format_args!(concat!($markup) $(, $crate::report::page::markup::Text(&$value))*))
    };
}

pub(super) use put;

/// A page as it grows.
#[derive(Default)]
pub(super) struct Html {
    out: String,
}

/// What is shown as it is, between tags or within a quoted attribute.
pub(super) struct Text<'a, T>(pub(super) &'a T);

impl<T: Display> Display for Text<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaped(f), "{}", self.0)
    }
}

/// Lets through what is no markup.
struct Escaped<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|character| match character {
            '&' => self.0.write_str("&amp;"),
            '<' => self.0.write_str("&lt;"),
            '>' => self.0.write_str("&gt;"),
            '"' => self.0.write_str("&quot;"),
            '\'' => self.0.write_str("&#39;"),
            '\n' | '\t' => self.0.write_char(character),
            other if is_hidden(other) => write!(self.0, "{}", other.escape_unicode()),
            other => self.0.write_char(other),
        })
    }
}

impl Html {
    /// Markup of ours, to the letter.
    pub(super) fn raw(&mut self, markup: &'static str) {
        self.out.push_str(markup);
    }

    /// For [`put`].
    pub(super) fn put(&mut self, markup: fmt::Arguments<'_>) {
        // A string always takes what is written.
        let _ = self.out.write_fmt(markup);
    }

    /// Data for a script, within `<script type="application/json">`.
    pub(super) fn data(&mut self, value: &impl Serialize) {
        // Names are strings and numbers are finite or null, so nothing can go wrong; if it did, the chart would say so.
        let json = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
        for character in json.chars() {
            // In JSON these stand in strings only, where an escape is the same: no end tag and no comment can begin.
            match character {
                '<' | '>' | '&' => self.escape(character),
                other if is_hidden(other) => self.escape(other),
                other => self.out.push(other),
            }
        }
    }

    /// As JSON has it: those behind U+FFFF are two.
    fn escape(&mut self, character: char) {
        for unit in character.encode_utf16(&mut [0; 2]) {
            _ = write!(self.out, "\\u{unit:04x}");
        }
    }

    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    pub(super) fn finish(self) -> String {
        self.out
    }
}

#[cfg(test)]
mod tests {
    use baio_console::printable::Printable;

    use super::*;

    #[test]
    fn text_ends_no_tag_and_no_attribute_and_shows_what_cannot_be_seen() {
        for (text, shown) in [
            (
                "<b a=\"1\" c='2'>&amp;",
                "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;amp;",
            ),
            (
                "a\0\u{1b}[1mb\u{202e}c\u{2028}",
                "a\\u{0}\\u{1b}[1mb\\u{202e}c\\u{2028}",
            ),
            ("ümläut → µ\n", "ümläut → µ\n"),
        ] {
            let mut html = Html::default();
            put!(html, "<i title=\"{}\">", text);
            assert_eq!(html.finish(), format!("<i title=\"{shown}\">"));
        }
    }

    #[test]
    fn data_ends_no_script_and_is_the_same_data() {
        let hostile = "</script><!--<script>\u{2028}&\u{0}\u{7f}\u{202e}\"";
        let mut html = Html::default();
        html.data(&hostile);
        let json = html.finish();
        assert!(
            !json.contains(['<', '>', '&', '\u{2028}', '\u{202e}', '\u{7f}']),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), hostile);
    }

    /// An answer escapes what is hidden, each in its own way: in data that would be no JSON any more.
    #[test]
    fn an_answer_finds_nothing_to_escape_in_a_page() {
        let hidden: String = ('\0'..=char::MAX).filter(|one| is_hidden(*one)).collect();
        assert!(hidden.contains(['\u{ad}', '\u{2060}', '\u{e0001}']));
        let mut html = Html::default();
        html.data(&hidden);
        let json = html.finish();
        assert_eq!(Printable(&json).to_string(), json);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), hidden);
        let mut html = Html::default();
        put!(html, "<i>{}</i>", hidden.replace(['\n', '\t'], ""));
        let text = html.finish();
        assert_eq!(Printable(&text).to_string(), text);
    }
}
