//! Markup that is safe by type: what is written raw is part of this program, and everything else is escaped.
//!
//! Names, commands and notes come from a file, and may hold anything. So there is one way in for text, which serves between tags
//! and in quoted attributes alike, and one for data of a script.

use std::fmt::Write as _;

use serde::Serialize;

/// A page as it grows.
#[derive(Default)]
pub(super) struct Html {
    out: String,
}

impl Html {
    /// Markup of ours, to the letter.
    pub(super) fn raw(&mut self, markup: &'static str) -> &mut Html {
        self.out.push_str(markup);
        self
    }

    /// Text of anybody's, between tags or within a quoted attribute.
    pub(super) fn text(&mut self, text: &str) -> &mut Html {
        for character in text.chars() {
            match character {
                '&' => self.out.push_str("&amp;"),
                '<' => self.out.push_str("&lt;"),
                '>' => self.out.push_str("&gt;"),
                '"' => self.out.push_str("&quot;"),
                '\'' => self.out.push_str("&#39;"),
                '\n' | '\t' => self.out.push(character),
                other if is_invisible(other) => {
                    // A string always takes what is written.
                    let _ = write!(self.out, "{}", other.escape_unicode());
                }
                other => self.out.push(other),
            }
        }
        self
    }

    /// A number or a position.
    pub(super) fn show(&mut self, value: impl std::fmt::Display) -> &mut Html {
        self.text(&value.to_string())
    }

    /// Data for a script, within `<script type="application/json">`.
    pub(super) fn data(&mut self, value: &impl Serialize) -> &mut Html {
        // Names are strings and numbers are finite or null, so nothing can go wrong; if it did, the chart would say so.
        let json = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
        for character in json.chars() {
            match character {
                // In JSON these stand in strings only, where an escape is the same: no end tag and no comment can begin.
                '<' | '>' | '&' => {
                    let _ = write!(self.out, "\\u{:04x}", u32::from(character));
                }
                // All of these have four digits.
                other if is_invisible(other) => {
                    let _ = write!(self.out, "\\u{:04x}", u32::from(other));
                }
                other => self.out.push(other),
            }
        }
        self
    }

    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    pub(super) fn finish(self) -> String {
        self.out
    }
}

/// Shown as an escape: what has no shape of its own, or turns around what stands beside it.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(of: &str) -> String {
        let mut html = Html::default();
        html.text(of);
        html.finish()
    }

    #[test]
    fn text_ends_no_tag_and_no_attribute() {
        assert_eq!(
            text("<b a=\"1\" c='2'>&amp;"),
            "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;amp;"
        );
    }

    #[test]
    fn what_cannot_be_seen_is_shown() {
        assert_eq!(
            text("a\0\u{1b}[1mb\u{202e}c\u{2028}"),
            "a\\u{0}\\u{1b}[1mb\\u{202e}c\\u{2028}"
        );
        assert_eq!(text("ümläut → µ\n"), "ümläut → µ\n");
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
}
