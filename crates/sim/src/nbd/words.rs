//! Commands in words, one a line: who drives the device from outside writes them to its standard input.

use super::cache::Manner;
use super::disk::{Cut, Disk};
use super::faults::{Fault, What};

/// What a line may say.
pub const HELP: &str = "\
cut [whole|some|torn|nothing] [after=WRITES]   the power fails; what was not flushed is gone
on                                             the power is back
fail read|write|flush [from=BYTE] [to=BYTE] [percent=N] [after=REQUESTS] [times=N]
heal                                           nothing fails any more
lie on|off                                     flushes do nothing
counts";

/// Does what the line says; gives the answer.
///
/// # Errors
///
/// It says nothing that this device knows.
pub fn obey(disk: &Disk, line: &str) -> Result<String, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["cut", rest @ ..] => cut(disk, rest)?,
        ["on"] => disk.power_on(),
        ["fail", rest @ ..] => disk.fail(fault(rest)?),
        ["heal"] => disk.heal(),
        ["lie", "on"] => disk.lie(true),
        ["lie", "off"] => disk.lie(false),
        ["counts"] => return serde_json::to_string(&disk.counts()).map_err(|error| error.to_string()),
        _ => return Err(format!("`{line}` is no command; there are:\n{HELP}")),
    }
    Ok("done".into())
}

fn cut(disk: &Disk, words: &[&str]) -> Result<(), String> {
    let (mut manner, mut after) = (Manner::Torn, None);
    for word in words {
        match word.split_once('=') {
            Some(("after", value)) => after = Some(number(value)?),
            _ => manner = named(&Manner::ALL, word)?,
        }
    }
    match after {
        Some(after_writes) => disk.cut_at(Some(Cut { after_writes, manner })),
        None => disk.cut(manner),
    }
    Ok(())
}

fn fault(words: &[&str]) -> Result<Fault, String> {
    let (what, rest) = words.split_first().ok_or("fail what: read, write or flush?")?;
    let mut fault = Fault::all(named(&What::ALL, what)?);
    for word in rest {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}` has no ="))?;
        match name {
            "from" => fault.place.start = number(value)?,
            "to" => fault.place.end = number(value)?,
            "after" => fault.after = number(value)?,
            "times" => fault.times = number(value)?,
            "percent" => fault.chance_ppm = chance(value)?,
            _ => return Err(format!("`{name}` is none of from, to, percent, after, times")),
        }
    }
    Ok(fault)
}

fn named<T: Copy>(all: &[(&'static str, T)], name: &str) -> Result<T, String> {
    let found = all.iter().find(|(known, _)| *known == name);
    found.map(|(_, thing)| *thing).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(known, _)| *known).collect();
        format!("`{name}` is none of {}", names.join(", "))
    })
}

fn number(value: &str) -> Result<u64, String> {
    value.parse().map_err(|error| format!("`{value}`: {error}"))
}

/// Percent, with decimals, as parts of a million.
pub fn chance(value: &str) -> Result<u32, String> {
    let percent: f64 = value.parse().map_err(|error| format!("`{value}`: {error}"))?;
    if !(0.0..=100.0).contains(&percent) {
        return Err(format!("`{value}` is not between 0 and 100"));
    }
    Ok((percent * 10_000.0).round() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd::disk::Refusal;

    #[test]
    fn what_is_said_is_done() {
        let disk = Disk::new(8192, 1);
        let say = |line: &str| obey(&disk, line);
        assert_eq!(say("fail read from=4096 times=1").unwrap(), "done");
        assert!(disk.read(0, 4096).is_ok());
        assert_eq!(disk.read(4096, 1), Err(Refusal::Io));
        assert!(disk.read(4096, 1).is_ok());
        say("cut whole after=0").unwrap();
        assert_eq!(disk.write(0, vec![1], false), Err(Refusal::Io));
        say("on").unwrap();
        assert_eq!(disk.read(0, 1), Ok(vec![0]));
        assert!(say("counts").unwrap().contains("\"cuts\":1"));
        for nonsense in [
            "",
            "cut now",
            "fail",
            "fail all",
            "fail read half",
            "fail read percent=101",
        ] {
            assert!(say(nonsense).is_err(), "{nonsense}");
        }
    }
}
