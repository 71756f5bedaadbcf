//! How answers leave the program: tables for people, one JSON object for programs.
//!
//! A command computes an [`Answer`] and gives it back; nothing is printed before it is known whether the command
//! succeeded. That is why `--json` prints exactly one object on standard output, an answer or an error, never both.
//! Progress and messages go to standard error and are the command's own affair.

use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anstyle::{AnsiColor, Style};
use baio::Errno;
use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use crate::exit_status::ExitStatus;
use crate::failure::Failure;
use crate::json::{versioned, write_object};
use crate::printable::{self, Printable};
use crate::terminal::Terminal;

/// What a command has to say when it succeeded.
///
/// The `Serialize` side must be a struct or a map: its keys stand beside `schema_version` in the printed object.
pub trait Answer: Serialize {
    /// Writes the answer as people like to read it.
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()>;

    /// The status with which the program ends; a measurement may have missed its threshold.
    fn exit_status(&self) -> ExitStatus {
        ExitStatus::Success
    }

    /// How loud a line of it is on a terminal that has colours. They are put around a line that is safe already, so nothing in an answer can make one.
    fn tone(&self, _line: &str) -> Tone {
        Tone::Plain
    }
}

/// How loud a line of an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As it is.
    Plain,
    /// What stands above others.
    Heading,
    /// What somebody has to look at.
    Bad,
}

impl Tone {
    fn around(self, line: &str) -> String {
        let style = match self {
            Tone::Plain => return line.to_owned(),
            Tone::Heading => Style::new().bold(),
            Tone::Bad => Style::new().fg_color(Some(AnsiColor::Red.into())),
        };
        format!("{style}{line}{style:#}")
    }
}

/// Was standard output closed when the program began?
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Standard output was closed when the program began: what the language has put in its place hears all, and tells nobody.
pub fn standard_output_is_closed() {
    CLOSED.store(true, Ordering::Relaxed);
}

/// Writes on standard output by `write`, to the last byte.
///
/// # Errors
/// It cannot be written; it was closed: `EBADF`.
pub fn write_out(write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    if CLOSED.load(Ordering::Relaxed) {
        return Err(Errno::EBADF.into());
    }
    write().and_then(|()| io::stdout().flush())
}

/// Where and in which form answers go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Tables on standard output, failures on standard error.
    Text,
    /// One object on standard output, whatever happens.
    Json,
}

impl Output {
    /// The form that the presence of `--json` asks for.
    pub fn new(json: bool) -> Output {
        if json { Output::Json } else { Output::Text }
    }

    /// Prints what became of a command and returns the status to end with.
    pub fn tell<A: Answer>(self, result: Result<A, Failure>) -> ExitStatus {
        match result {
            Ok(answer) => self.tell_answer(&answer),
            Err(failure) => self.tell_failure(&failure),
        }
    }

    /// Prints a failure and returns the status to end with.
    pub fn tell_failure(self, failure: &Failure) -> ExitStatus {
        match self {
            Output::Text => failure.tell(),
            Output::Json => {
                let written = write_out(|| write_object(&mut io::stdout(), &failure.to_json()));
                // Whoever closed the pipe wants to hear no more; all else that nobody could read there is told where people read.
                if written.is_err_and(|error| error.kind() != ErrorKind::BrokenPipe) {
                    failure.tell();
                }
            }
        }
        failure.exit_status()
    }

    fn tell_answer(self, answer: &impl Answer) -> ExitStatus {
        let mut text = Vec::new();
        let written = self.write_answer(answer, &mut text);
        if self == Output::Text && Terminal::of_stdout().is_some_and(|terminal| terminal.has_colour) {
            text = coloured(answer, &text);
        }
        let all = || match text.is_empty() {
            true => Ok(()),
            false => write_out(|| io::stdout().write_all(&text)),
        };
        match written.and_then(|()| all()) {
            Ok(()) => answer.exit_status(),
            // Whoever closed the pipe, as `head` does, had enough; the work itself is done.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => answer.exit_status(),
            // Standard output is what failed: not even an object can be printed on it.
            Err(error) => Output::Text.tell_failure(&unwritten(&error)),
        }
    }

    fn write_answer(self, answer: &impl Answer, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Output::Text => {
                let mut text = Vec::new();
                answer.write_text(&mut text)?;
                // The one place that all answers pass: a name in them may come from anywhere.
                out.write_all(printable::lines(&printable::readable_text(&text)).as_bytes())
            }
            Output::Json => write_object(out, &versioned(answer)?),
        }
    }
}

fn coloured(answer: &impl Answer, text: &[u8]) -> Vec<u8> {
    let lines = String::from_utf8_lossy(text);
    let lines = lines.lines().map(|line| answer.tone(line).around(line) + "\n");
    lines.collect::<String>().into_bytes()
}

/// A sentence in lines of 80 columns; a word that is longer has a line of its own. The end of a line in it can only be a part of some name,
/// and is an escape, as in a table: a name says nothing in a line of its own.
pub fn wrapped(sentence: &str) -> String {
    const COLUMNS: usize = 80;
    let mut lines = vec![String::new()];
    for word in Printable(sentence).to_string().split(' ') {
        let line = lines
            .last_mut()
            .filter(|line| line.is_empty() || line.width() + 1 + word.width() <= COLUMNS);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(format!("  {word}")),
        }
    }
    lines.join("\n")
}

/// The failure to write an answer.
pub fn unwritten(error: &io::Error) -> Failure {
    let failure = Failure::from_io("", error).on("standard output");
    failure.cured_by("let it lead to where there is room for the answer")
}

/// How the cells of a column stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Names and words.
    Left,
    /// Figures.
    Right,
}

/// A table for people: columns two spaces apart, as wide as their widest cell.
#[derive(Debug)]
pub struct Table {
    columns: Vec<Align>,
    rows: Vec<Vec<String>>,
    /// Columns of a line.
    room: Option<usize>,
    /// Headings in the order in which their columns go.
    dispensable: &'static [&'static str],
}

impl Table {
    /// An empty table with these columns under these headings.
    pub fn with_headings(columns: &[(&str, Align)]) -> Table {
        let mut table = Table::without_headings(&columns.iter().map(|c| c.1).collect::<Vec<_>>());
        table.row(columns.iter().map(|column| column.0));
        table
    }

    /// An empty table with these columns and no headings, such as a list of keys and values.
    pub fn without_headings(columns: &[Align]) -> Table {
        Table {
            columns: columns.to_vec(),
            rows: Vec::new(),
            room: None,
            dispensable: &[],
        }
    }

    /// Has whole columns go, in the order of these headings, where there is no room for all: cut figures would be wrong figures.
    #[must_use]
    pub fn fit(mut self, room: Option<usize>, dispensable: &'static [&'static str]) -> Table {
        (self.room, self.dispensable) = (room, dispensable);
        self
    }

    /// Appends a row. Missing cells are empty, surplus ones are dropped.
    pub fn row<C: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let mut row: Vec<String> = cells
            .into_iter()
            .map(|cell| Printable(cell.as_ref()).to_string())
            .collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// Writes all rows.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        self.lines().iter().try_for_each(|line| writeln!(out, "{line}"))
    }

    /// A line for each row, without spaces at its end.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let widths = self.widths();
        let columns = self.columns_of(&widths);
        let line = |row: &Vec<String>| {
            let mut line = String::new();
            for &(at, align) in &columns {
                let (cell, width) = (&row[at], widths[at]);
                // Padding by `{:<width$}` would count characters, and some are two columns wide or none.
                let missing = width - cell.width().min(width);
                line += &match align {
                    Align::Left => format!("{cell}{:missing$}  ", ""),
                    Align::Right => format!("{:missing$}{cell}  ", ""),
                };
            }
            line.truncate(line.trim_end().len());
            line
        };
        self.rows.iter().map(line).collect()
    }

    /// The columns for which there is room, and those that never go.
    fn columns_of(&self, widths: &[usize]) -> Vec<(usize, Align)> {
        let mut columns: Vec<_> = self.columns.iter().copied().enumerate().collect();
        let mut dispensable = self.dispensable.iter();
        loop {
            let taken: usize = columns.iter().map(|(at, _)| widths[*at] + 2).sum();
            if self.room.is_none_or(|room| taken <= room + 2) {
                return columns;
            }
            let Some(goes) = dispensable.next() else {
                return columns;
            };
            columns.retain(|(at, _)| self.rows.first().is_none_or(|headings| headings[*at] != *goes));
        }
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.width()).max().unwrap_or(0)
        };
        (0..self.columns.len()).map(width).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[derive(Serialize)]
    struct Blocks {
        free: u64,
    }

    impl Answer for Blocks {
        fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
            writeln!(out, "{} blocks free", self.free)
        }
    }

    #[derive(Serialize)]
    struct Bare(u64);

    impl Answer for Bare {
        fn write_text(&self, _: &mut dyn Write) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(output: Output, answer: &impl Answer) -> io::Result<String> {
        let mut out = Vec::new();
        output.write_answer(answer, &mut out)?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    #[test]
    fn people_get_text() {
        let text = written(Output::Text, &Blocks { free: 7 }).unwrap();
        assert_eq!(text, "7 blocks free\n");
    }

    #[test]
    fn a_line_is_loud_where_its_answer_says_so() {
        struct Loud;
        impl Serialize for Loud {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_unit()
            }
        }
        impl Answer for Loud {
            fn write_text(&self, _: &mut dyn Write) -> io::Result<()> {
                Ok(())
            }
            fn tone(&self, line: &str) -> Tone {
                if line.ends_with("LOST") { Tone::Bad } else { Tone::Plain }
            }
        }
        let text = coloured(&Loud, b"plain\nall is LOST\n");
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "plain\n\u{1b}[31mall is LOST\u{1b}[0m\n"
        );
    }

    #[test]
    fn programs_get_one_object_with_its_version() {
        let text = written(Output::Json, &Blocks { free: 7 }).unwrap();
        let object: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object, serde_json::json!({"schema_version": 1, "free": 7}));
        assert_eq!(text.lines().count(), 1);
        assert!(text.ends_with('\n'));
    }

    #[test]
    fn nothing_in_an_answer_reaches_a_terminal_as_a_command() {
        #[derive(Serialize)]
        struct Raw {
            name: String,
        }
        impl Answer for Raw {
            fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
                writeln!(out, "{}:\t1", self.name)?;
                out.write_all(b"and \xff\n")
            }
        }
        let name = "a\u{1b}[2J\u{202e}b".to_owned();
        let text = written(Output::Text, &Raw { name }).unwrap();
        assert_eq!(text, "a\\u{1b}[2J\\u{202e}b:\t1\nand \\xff\n");
    }

    #[test]
    fn an_answer_that_is_no_object_is_an_error() {
        assert!(written(Output::Json, &Bare(3)).is_err());
    }

    #[test]
    fn tables_line_up() {
        let mut table = Table::with_headings(&[("NAME", Align::Left), ("SIZE", Align::Right)]);
        table.row(["a", "4 KiB"]);
        table.row(["longer"]);
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "NAME     SIZE\na       4 KiB\nlonger\n");
    }

    #[test]
    fn columns_leave_whole_when_there_is_no_room() {
        let fitted = |room| {
            let columns = ["NAME", "SIZE", "BLOCKS"].map(|heading| (heading, Align::Left));
            let mut table = Table::with_headings(&columns).fit(room, &["SIZE", "BLOCKS"]);
            table.row(["a", "12345", "7"]);
            table.lines()
        };
        assert_eq!(fitted(Some(19)), ["NAME  SIZE   BLOCKS", "a     12345  7"]);
        assert_eq!(fitted(None), fitted(Some(19)));
        assert_eq!(fitted(Some(18)), ["NAME  BLOCKS", "a     7"]);
        // What cannot go stays, whatever the room.
        assert_eq!(fitted(Some(11)), ["NAME", "a"]);
        assert_eq!(fitted(Some(0)), ["NAME", "a"]);
    }

    #[test]
    fn a_long_sentence_takes_several_lines_of_eighty_columns() {
        for word in ["twelve words ", "日本語 "] {
            let lines = wrapped(word.repeat(30).trim());
            assert!(
                lines.lines().count() > 2 && lines.lines().all(|line| line.width() <= 80),
                "{lines}"
            );
            assert_eq!(lines.split_whitespace().count(), word.split_whitespace().count() * 30);
        }
        assert_eq!(wrapped("short"), "short");
    }

    #[test]
    fn a_name_makes_no_line_of_its_own() {
        let name = "f\nall verified\ttab\u{202e}";
        assert_eq!(
            wrapped(&format!("{name}: uring")),
            "f\\nall verified\\ttab\\u{202e}: uring"
        );
    }

    #[test]
    fn wide_characters_and_those_without_width_line_up() {
        let mut table = Table::without_headings(&[Align::Left, Align::Right, Align::Left]);
        table.row(["日本", "x", "|"]);
        table.row(["e\u{301}", "語", "|"]);
        table.row(["abcd", "yz", "|"]);
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "日本   x  |\ne\u{301}     語  |\nabcd  yz  |\n"
        );
    }

    #[test]
    fn surplus_cells_and_control_characters_do_no_harm() {
        let mut table = Table::without_headings(&[Align::Left]);
        table.row(["a\tb", "dropped"]);
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        assert_eq!(out, b"a\\tb\n");
    }
}
