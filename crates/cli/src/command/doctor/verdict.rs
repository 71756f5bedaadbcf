//! What an administrator wants to know first: is it well here, and if not, what is to be done?

use std::io::{self, Write};

use baio_console::printable::Printable;
use serde::Serialize;

use super::Diagnosis;

/// One thing to do, and why.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Task {
    /// What was found.
    because: String,
    /// What to do about it.
    what: String,
}

impl Task {
    pub(super) fn new(because: String, what: impl Into<String>) -> Task {
        Task {
            because,
            what: what.into(),
        }
    }
}

/// The verdict on a machine, in one sentence; nothing is well of a volume that cannot be opened.
pub(super) fn sentence(backend: &str, is_asynchronous: bool, is_broken: bool, tasks: &[Task]) -> String {
    let way = shown(backend);
    if is_broken {
        let rest = match tasks.len() {
            0 | 1 => "there is one thing to do.".to_owned(),
            several => format!("there are {several} things to do."),
        };
        return format!("Bad: the volume cannot be opened, whatever the backend ({way} works here); {rest}");
    }
    let rest = match tasks.len() {
        0 => "there is nothing to do.".to_owned(),
        1 => "one thing could be better.".to_owned(),
        several => format!("{several} things could be better."),
    };
    match (backend, is_asynchronous) {
        (_, false) => format!("Bad: every request blocks its caller, because only {way} works here; {rest}"),
        ("uring", true) => format!("Good: requests go through {way}, which is the best there is; {rest}"),
        (_, true) => format!("Usable: requests go through {way}, because io_uring does not work here; {rest}"),
    }
}

/// A backend as people call it.
pub(super) fn shown(backend: &str) -> &str {
    match backend {
        "uring" => "io_uring",
        "aio" => "Linux AIO",
        "threads" => "a pool of threads",
        "sync" => "plain system calls",
        other => other,
    }
}

/// What hinders a better backend, what the chosen one cannot have because of this machine's settings, and what costs speed at the path.
pub(super) fn tasks(diagnosis: &Diagnosis) -> Vec<Task> {
    let backends = diagnosis.rejected.iter().filter_map(|rejected| rejected.task());
    let features = diagnosis.features.iter().filter_map(|feature| feature.task());
    let place = diagnosis.path.iter().flat_map(|place| place.tasks());
    let mut tasks: Vec<Task> = Vec::new();
    for task in backends.chain(features).chain(place) {
        // One limit stands in the way of several things.
        if !tasks.iter().any(|other| other.what == task.what) {
            tasks.push(task);
        }
    }
    tasks
}

/// The head of the answer: the verdict, and the list.
pub(super) fn write(sentence: &str, tasks: &[Task], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{sentence}")?;
    for task in tasks {
        writeln!(out, "- {}", Printable(&task.because))?;
        writeln!(out, "  do: {}", Printable(&task.what))?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_begins_with_the_verdict() {
        let one = [Task::new("a".into(), "b")];
        for (backend, is_asynchronous, is_broken, tasks, said) in [
            (
                "uring",
                true,
                false,
                &[][..],
                "Good: requests go through io_uring, which is the best there is; there is nothing",
            ),
            (
                "uring",
                true,
                true,
                &one[..],
                "Bad: the volume cannot be opened, whatever the backend (io_uring works here); there is one thing",
            ),
            (
                "uring",
                true,
                false,
                &one[..],
                "Good: requests go through io_uring, which is the best there is; one thing",
            ),
            (
                "threads",
                true,
                false,
                &one[..],
                "Usable: requests go through a pool of threads",
            ),
            ("sync", false, false, &[], "Bad: every request blocks its caller"),
        ] {
            let told = sentence(backend, is_asynchronous, is_broken, tasks);
            assert!(told.starts_with(said), "{told}");
        }
    }
}
