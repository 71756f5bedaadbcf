//! What is heard during a copy, and what it waits for by itself: signals, and streams that a backend would wait for deaf.

use std::fs::File;

use baio::Errno;
use baio_console::diagnostics;
use baio_console::failure::Failure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::ends::End;
use super::super::plain::Flow;
use super::super::tally;
use super::{Copy, Source};
use crate::operands::Status;

/// So often a copy looks for signals that came between a look and a sleep.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// May a stream be read or written?
pub(super) enum Ready {
    Yes,
    /// SIGINT has ended the copy.
    Interrupted,
    /// With `nonblock`, what would wait fails.
    Failed(Failure),
}

impl Copy<'_> {
    /// Does what signals have asked for meanwhile.
    pub(super) fn heed(&mut self) {
        while self.signals.take_asked() {
            self.print_figures(self.progress.written());
        }
        if self.signals.interrupted() && !self.interrupted {
            self.interrupted = true;
            self.end_plan();
        }
    }

    /// The figures when everything before `position` is written.
    fn print_figures(&mut self, position: u64) {
        let figures = tally::figures(&self.source, self.operands, position);
        self.meter.finish();
        figures.print(self.operands.status, self.meter.elapsed().as_secs_f64());
    }

    /// A failure that is passed over (`conv=noerror`), with the figures.
    pub(super) fn say(&mut self, failure: &Failure) {
        if self.operands.status != Status::Silent {
            self.meter.finish();
            diagnostics::say(failure);
            // What was taken is as good as written.
            let taken = match &self.source {
                Source::InOrder(stream) => stream.blocks().whole(),
                Source::Anywhere(_) => self.progress.written(),
            };
            self.print_figures(taken);
        }
    }

    /// Looks whether a stream can be read or written now, or waits until then where its backend hears no signal.
    pub(super) fn ready(&mut self, end: &End, flags: PollFlags) -> Ready {
        let Some(file) = end.positioned.as_ref().filter(|_| end.flow == Flow::InOrder) else {
            return Ready::Yes;
        };
        let (operation, given) = match flags.contains(PollFlags::IN) {
            true => ("read", &self.operands.input_flags),
            false => ("write", &self.operands.output_flags),
        };
        if given.nonblock && !is_ready(file, flags, &Timespec::default()) {
            let error = baio::Error::new(operation, end.typed.clone(), Errno::EAGAIN);
            return Ready::Failed(end.failed(&error.at(0)));
        }
        while !self.routes.backend().1 {
            self.heed();
            if self.interrupted {
                return Ready::Interrupted;
            }
            if is_ready(file, flags, &LOOK) {
                break;
            }
        }
        Ready::Yes
    }
}

fn is_ready(file: &File, flags: PollFlags, longest: &Timespec) -> bool {
    // Whatever else there is to say, the request says it.
    !matches!(
        poll(&mut [PollFd::new(file, flags)], Some(longest)),
        Ok(0) | Err(rustix::io::Errno::INTR)
    )
}
