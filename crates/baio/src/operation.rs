//! What takes a while besides requests, as a future: making, opening, resizing, listing.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use baio_broker::control::{Call, Reply};
use baio_storage::{Error, Fault, OperationName, Result, Watch};

use crate::object::Object;
use crate::trace::{self, Trace};
use crate::transport::{InLine, Lack, NotAsked, Notice, Transport};

/// An operation on a volume, file or link: a future of its result. It begins when it is polled first, and blocks no thread
/// while a device works. If it is dropped the answer is lost, but what it asked for may happen all the same.
#[must_use = "an operation that is never awaited never begins"]
pub struct Operation<L: Transport, T> {
    on: On<L>,
    stage: Stage<L>,
    what: &'static str,
    read: Option<Read<L, T>>,
    /// Where it waits for a slot.
    line: Option<InLine>,
}

/// What it is about, which it keeps open.
pub(crate) enum On<L: Transport> {
    Link(L),
    Object(Arc<Object<L>>),
}

impl<L: Transport> On<L> {
    pub(crate) fn link(&self) -> &L {
        match self {
            On::Link(link) => link,
            On::Object(object) => &object.link,
        }
    }

    /// What it is called in messages.
    fn name(&self) -> String {
        match self {
            On::Link(link) => link.link_facts().name.clone(),
            On::Object(object) => object.name.clone(),
        }
    }
}

/// Makes the answer of a reply; `None` for a reply to another question.
type Read<L, T> = Box<dyn FnOnce(&On<L>, Reply) -> Option<Result<T>> + Send + Sync>;

enum Stage<L: Transport> {
    Fresh(Box<Call>),
    Started(L::Question, Trace),
    Ended,
}

impl<L: Transport, T> fmt::Debug for Operation<L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Operation({} on {})", self.what, self.on.name())
    }
}

impl<L: Transport, T> Operation<L, T> {
    /// One on a link.
    pub(crate) fn new(
        link: &L,
        call: impl Into<Call>,
        read: impl FnOnce(&L, Reply) -> Option<T> + Send + Sync + 'static,
    ) -> Operation<L, T> {
        Operation::trying(On::Link(link.clone()), call, |on, reply| read(on.link(), reply).map(Ok))
    }

    /// One whose answer is a result by itself.
    pub(crate) fn trying(
        on: On<L>,
        call: impl Into<Call>,
        read: impl FnOnce(&On<L>, Reply) -> Option<Result<T>> + Send + Sync + 'static,
    ) -> Operation<L, T> {
        let call = call.into();
        Operation {
            on,
            what: call.name(),
            stage: Stage::Fresh(Box::new(call)),
            read: Some(Box::new(read)),
            line: None,
        }
    }

    /// Gives it a name. If it is asked for again under that name, it is recognised and not done twice ([`OperationName`]). For creates, deletes,
    /// resizes and renames, before they begin; it has no effect on others.
    pub fn named(mut self, name: OperationName) -> Operation<L, T> {
        if let Stage::Fresh(call) = &mut self.stage {
            call.give_name(name);
        }
        self
    }

    /// Adds a watch that says how far it is, for a display of progress: of creates, resizes, lists and defragmentations. Before it begins.
    pub fn watched(mut self) -> (Operation<L, T>, Watch) {
        let watch = Watch::default();
        if let Stage::Fresh(call) = &mut self.stage {
            call.watch(&watch);
        }
        (self, watch)
    }

    /// Waits for its end in this thread, and drives the link meanwhile. Do not call it in a signal handler: it may wait for what it interrupted.
    ///
    /// # Errors
    /// As its future; and that the link could not be driven to its end.
    pub fn wait(self) -> Result<T> {
        let link = self.on.link().clone();
        link.run_on_link(self)?
    }

    fn start(&mut self, call: Box<Call>, context: &mut Context<'_>) -> Poll<Result<T>> {
        if let Some(fault) = self.on.link().nobody_drives() {
            return Poll::Ready(Err(self.failed(fault)));
        }
        match self.on.link().ask(call) {
            Ok(question) => {
                // It may do without the place that it waited for.
                self.leave_line();
                let trace = trace::operation_begins(self.what, || self.on.name());
                self.look(question, trace, context)
            }
            Err(NotAsked::Refused(fault)) => Poll::Ready(Err(self.failed(fault))),
            Err(NotAsked::Full(call)) => {
                let link = self.on.link();
                link.stand_in_line(&mut self.line, Lack::Slot, context.waker(), None);
                self.stage = Stage::Fresh(call);
                Poll::Pending
            }
        }
    }

    fn look(&mut self, question: L::Question, trace: Trace, context: &mut Context<'_>) -> Poll<Result<T>> {
        match self.on.link().poll_answer(&question, context.waker()) {
            Poll::Ready(answer) => {
                let answer = self.answer(answer);
                trace::operation_ended(trace, answer.as_ref().map(drop));
                Poll::Ready(answer)
            }
            Poll::Pending if self.on.link().is_driven() => {
                self.stage = Stage::Started(question, trace);
                Poll::Pending
            }
            // With nobody to reap, waiting would last for ever.
            Poll::Pending => {
                self.on.link().tell_link(Notice::Leave(question));
                Poll::Ready(Err(self.failed(Fault::NobodyDrives)))
            }
        }
    }

    fn answer(&mut self, answer: Result<Reply>) -> Result<T> {
        let reply = answer?;
        let read = self.read.take().ok_or_else(|| self.failed(Fault::Stale))?;
        // A reply to another question: only a service that is wrong gives it.
        read(&self.on, reply).unwrap_or_else(|| Err(self.failed(Fault::ServiceEnded)))
    }

    fn leave_line(&mut self) {
        if let Some(line) = self.line.take() {
            self.on.link().tell_link(Notice::LeftLine { line, has_it: false });
        }
    }

    fn failed(&self, fault: Fault) -> Error {
        Error::new(self.what, self.on.name(), fault)
    }
}

impl<L: Transport, T> Future for Operation<L, T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let this = self.get_mut();
        let polled = match std::mem::replace(&mut this.stage, Stage::Ended) {
            Stage::Fresh(call) => this.start(call, context),
            Stage::Started(question, trace) => this.look(question, trace, context),
            Stage::Ended => Poll::Ready(Err(this.failed(Fault::Stale))),
        };
        if polled.is_ready() {
            this.leave_line();
        }
        polled
    }
}

impl<L: Transport, T> Drop for Operation<L, T> {
    fn drop(&mut self) {
        self.leave_line();
        if let Stage::Started(question, _) = std::mem::replace(&mut self.stage, Stage::Ended) {
            self.on.link().tell_link(Notice::Leave(question));
        }
    }
}
