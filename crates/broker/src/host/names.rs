//! The name of a volume. A core names its path in errors and reports; a client must see the name under which the volume is served instead.

use baio_storage::{Answer, Error};
use baio_words::session::Failed;

/// What the volume is called here and there.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// The path, as the core says it.
    pub(super) path: String,
    /// The name under which it is served.
    pub(super) served: String,
}

impl Names {
    /// A text of the core's, without the host's path. One that is no more than a name tells nothing of the host, and may be any word.
    pub(super) fn told(&self, text: &str) -> String {
        match self.path.contains('/') {
            true => text.replace(&self.path, &self.served),
            false => self.object(text),
        }
    }

    /// An object, which begins with the path: `PATH`, `PATH#UID/NAME`, `PATH, slot 1`.
    fn object(&self, text: &str) -> String {
        let rest = text.strip_prefix(&self.path);
        let rest = rest.filter(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || "-_.".contains(next)));
        rest.map_or_else(|| text.to_owned(), |rest| format!("{}{rest}", self.served))
    }

    /// What failed. The name behind `PATH#UID/` is as its client said it, and may be any text: it is told as it is, so that nobody sees in it
    /// whether he has guessed the path.
    fn of_failure(&self, object: &str) -> String {
        let rest = object.strip_prefix(&self.path).filter(|rest| rest.starts_with('#'));
        rest.map_or_else(|| self.told(object), |rest| format!("{}{rest}", self.served))
    }

    /// The answer without the host's path.
    pub(super) fn hidden_in(&self, mut answer: Answer) -> Answer {
        let hide = |text: &mut String| *text = self.told(text);
        match &mut answer {
            Answer::Volume(view) => {
                let warnings = view.whole.iter_mut().flat_map(|whole| &mut whole.warnings);
                warnings.for_each(hide);
            }
            Answer::Defragged(report) => report.unmoved.iter_mut().for_each(|unmoved| hide(&mut unmoved.why)),
            Answer::Checked(report) => {
                for problem in &mut report.problems {
                    hide(&mut problem.place.object);
                    hide(&mut problem.what);
                }
            }
            _ => {}
        }
        answer
    }

    pub(super) fn failed(&self, error: &Error) -> Answer {
        Answer::Failed(Box::new(Failed {
            code: error.code().to_owned(),
            errno: error.errno().map_or(0, |errno| errno.raw().unsigned_abs()),
            operation: error.operation.to_owned(),
            object: self.of_failure(&error.object),
            offset: error.offset,
            what: self.told(&error.fault.to_string()),
            need: error.need().map(|text| self.told(&text)),
            cure: error.cure().map(|text| self.told(&text)),
        }))
    }
}

#[cfg(test)]
mod tests {
    use baio_storage::Fault;

    use super::*;

    #[test]
    fn a_short_path_garbles_no_text() {
        let names = |path: &str| Names {
            path: path.to_owned(),
            served: "vol".to_owned(),
        };
        let e = names("e");
        assert_eq!(e.told("no such segment"), "no such segment");
        assert_eq!(e.told("e"), "vol");
        assert_eq!(e.told("e#7/e"), "vol#7/e");
        assert_eq!(e.told("e, slot 3 of bucket 1"), "vol, slot 3 of bucket 1");
        assert_eq!(e.told("e is not open"), "vol is not open");
        assert_eq!(e.told("everything"), "everything");
        let whole = names("/srv/disk/volume.img");
        assert_eq!(
            whole.told("look at /srv/disk/volume.img and repair it"),
            "look at vol and repair it"
        );
    }

    #[test]
    fn a_guess_at_the_path_is_told_as_it_was_said() {
        let path = "/srv/disk/volume.img";
        let names = Names {
            path: path.to_owned(),
            served: "vol".to_owned(),
        };
        for guess in [path, "/srv/disk/another.img"] {
            let error = Error::new("open", format!("{path}#7/{guess}"), Fault::NotFound);
            let Answer::Failed(failed) = names.failed(&error) else {
                panic!("it failed")
            };
            assert_eq!(failed.object, format!("vol#7/{guess}"));
        }
    }
}
