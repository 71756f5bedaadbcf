//! What a user has of a client: a connection, requests as futures, and an executor that knows nothing of it.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use baio_words::{Handle, IoError, Outcome, RequestFault, SegmentOp, SegmentRequest, Ticket, Time};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread::{self, JoinHandle};

use crate::client::Client;
use crate::service::{Ask, CORE, Doorbell, Modelled, Service, Token, Told};
use crate::shared::Shared;
use crate::table::Ended;
use crate::waiters::WaitPlace;

/// One user of a connection; clones share it.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) client: Arc<Client<Modelled>>,
    pub(crate) doorbell: Arc<Doorbell>,
    alive: Arc<AtomicUsize>,
}

/// A connection and its service.
pub(crate) struct World {
    pub(crate) user: User,
    service: Option<JoinHandle<Told>>,
}

impl World {
    /// For so many requests at a time.
    pub(crate) fn of(requests: u32) -> World {
        World::that_dies(requests, None)
    }

    /// One place more is for closing.
    pub(crate) fn that_dies(requests: u32, after: Option<u32>) -> World {
        let shared = Arc::new(Shared::new(requests + 1));
        let doorbell = Arc::new(Doorbell::default());
        let service = Service::new(Arc::clone(&shared), Arc::clone(&doorbell), after);
        let service = thread::spawn(move || service.serve());
        let client = Client::new(Modelled(Arc::clone(&doorbell)), (), shared, CORE, "a model".into());
        let user = User {
            client: Arc::new(client),
            doorbell,
            alive: Arc::default(),
        };
        World {
            user,
            service: Some(service),
        }
    }

    /// A thread that uses it.
    pub(crate) fn spawn<T: Send + 'static>(&self, act: impl FnOnce(&User) -> T + Send + 'static) -> JoinHandle<T> {
        let user = self.user.clone();
        thread::spawn(move || act(&user))
    }

    /// The end as `baio::Remote` has it: whoever is left is told, and nothing is left.
    pub(crate) fn end(mut self) -> Told {
        let client = &self.user.client;
        client.refuse();
        client.stop();
        let told = self.service.take().unwrap().join().unwrap();
        client.dismiss_helper();
        crate::sync::join_started();
        client.look_once();
        while client.next_outcome().is_some() {}
        assert_eq!(client.in_flight(), 0, "something is under way for ever");
        let state = client.lock();
        assert!(!state.sleeper, "somebody sleeps on the bell");
        assert!(state.followers.is_empty(), "somebody waits for the role");
        assert!(!state.table.needs_helper(), "somebody is counted who is not there");
        drop(state);
        assert_eq!(self.user.alive.load(Ordering::Relaxed), 0, "memory is missing");
        told
    }
}

impl User {
    pub(crate) fn read(&self, number: u64) -> SegmentRequest<Token> {
        self.request(SegmentOp::Read { offset: number }, number)
    }

    pub(crate) fn write(&self, number: u64) -> SegmentRequest<Token> {
        self.request(SegmentOp::Write { offset: number }, number)
    }

    fn request(&self, op: SegmentOp, number: u64) -> SegmentRequest<Token> {
        let memory = Token::new(number, &self.alive);
        let mut request = SegmentRequest::new(Handle::from_parts(CORE, 1, 1), op, memory);
        request.tag = number;
        request
    }

    /// One that the service holds until the gate is open.
    pub(crate) fn gated(&self, number: u64) -> SegmentRequest<Token> {
        let mut request = SegmentRequest::new(Handle::from_parts(CORE, 1, 1), SegmentOp::Sync, Token::default());
        request.tag = number;
        request
    }

    pub(crate) fn run(&self, request: SegmentRequest<Token>) -> Flying {
        Flying {
            user: self.clone(),
            stage: Stage::Fresh(request),
            place: None,
        }
    }

    pub(crate) fn ask(&self, ask: Ask) -> Asking {
        Asking {
            user: self.clone(),
            stage: AskStage::Fresh(Box::new(ask)),
            place: None,
        }
    }

    /// Takes a piece of memory that the service can be shown.
    pub(crate) fn take_memory(&self) -> Taking {
        Taking {
            user: self.clone(),
            place: None,
        }
    }

    /// Gives one back.
    pub(crate) fn give_memory(&self) {
        if self.doorbell.pool.give() {
            self.client.shared.bell.ring();
        }
    }

    /// Starts it; waits for a place if need be, as a thread that only knows tickets does.
    pub(crate) fn submit(&self, number: u64) -> Ticket {
        match self.client.start(self.read(number)) {
            Ok(ticket) => ticket,
            Err(_) => panic!("every place is taken: the story has too few"),
        }
    }

    pub(crate) fn wait(&self, ticket: Ticket) -> Outcome<Token> {
        match self.client.wait(ticket) {
            Some(Ended::Request(outcome)) => outcome,
            Some(Ended::Command(_)) => panic!("the end of a command"),
            None => panic!("the outcome went to somebody else"),
        }
    }
}

/// It is the request's own, and a good one.
pub(crate) fn good(outcome: &Outcome<Token>, number: u64) {
    assert_eq!(outcome.result.as_ref().expect("a good end"), &1);
    assert_eq!((outcome.tag, outcome.memory.number), (number, number));
}

/// It is the request's own, and a good one or one that the service's end explains.
pub(crate) fn good_or_lost(outcome: &Outcome<Token>, number: u64) {
    assert_eq!(outcome.tag, number);
    match &outcome.result {
        Ok(_) => good(outcome, number),
        Err(error) => {
            let unknown = RequestFault::Io(IoError::Indeterminate);
            let ended = [RequestFault::ServiceEnded, RequestFault::Stale].contains(&error.fault);
            assert!(
                ended || (error.operation == "write" && error.fault == unknown),
                "{error}"
            );
        }
    }
}

/// A wait for memory, as `baio::Request` waits for a buffer to copy to.
pub(crate) struct Taking {
    user: User,
    place: Option<WaitPlace>,
}

impl Future for Taking {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let User { client, doorbell, .. } = self.user.clone();
        assert!(client.is_driven());
        if doorbell.pool.take() {
            self.leave();
            return Poll::Ready(());
        }
        client.wake_when_memory(&mut self.place, 1, context.waker(), None);
        // What came meanwhile is taken and given back.
        if doorbell.pool.take() {
            self.user.give_memory();
        }
        Poll::Pending
    }
}

impl Taking {
    fn leave(&mut self) {
        if let Some(place) = self.place.take() {
            self.user.client.leave_memory(place, 1);
        }
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        self.leave();
    }
}

enum Stage {
    Fresh(SegmentRequest<Token>),
    Started(Ticket),
    Ended,
}

/// A request as a future, as `baio::InFlight` is one. `None`: it was refused.
pub(crate) struct Flying {
    user: User,
    stage: Stage,
    place: Option<WaitPlace>,
}

impl Future for Flying {
    type Output = Option<Outcome<Token>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let client = Arc::clone(&self.user.client);
        let ticket = match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Ended => panic!("polled after its end"),
            Stage::Started(ticket) => ticket,
            Stage::Fresh(request) => {
                assert!(client.is_driven());
                match client.start_awaited(request, context.waker()) {
                    Ok(ticket) => {
                        self.stage = Stage::Started(ticket);
                        if let Some(place) = self.place.take() {
                            client.room_taken(place);
                        }
                        return Poll::Pending;
                    }
                    Err(_) if client.refusal().is_some() => return Poll::Ready(None),
                    Err(request) if request.deadline.is_some_and(|at| at <= crate::sync::monotonic()) => {
                        return Poll::Ready(None);
                    }
                    Err(request) => {
                        client.wake_when_room(&mut self.place, context.waker(), request.deadline);
                        self.stage = Stage::Fresh(request);
                        return Poll::Pending;
                    }
                }
            }
        };
        match client.poll(ticket, context.waker()) {
            Poll::Ready(Some(Ended::Request(outcome))) => Poll::Ready(Some(outcome)),
            Poll::Ready(_) => panic!("the outcome went to somebody else"),
            Poll::Pending => {
                assert!(client.is_driven());
                self.stage = Stage::Started(ticket);
                Poll::Pending
            }
        }
    }
}

impl Drop for Flying {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.user.client.leave_room(place);
        }
        if let Stage::Started(ticket) = self.stage {
            self.user.client.abandon(ticket);
        }
    }
}

enum AskStage {
    Fresh(Box<Ask>),
    Started(Ticket),
    Ended,
}

/// A command as a future, as `baio::Asked` is one. `None`: it was refused, or the service has ended.
pub(crate) struct Asking {
    user: User,
    stage: AskStage,
    place: Option<WaitPlace>,
}

impl Future for Asking {
    type Output = Option<Option<Handle>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let client = Arc::clone(&self.user.client);
        let ticket = match std::mem::replace(&mut self.stage, AskStage::Ended) {
            AskStage::Ended => panic!("polled after its end"),
            AskStage::Started(ticket) => ticket,
            AskStage::Fresh(ask) => {
                assert!(client.is_driven());
                match client.command(ask) {
                    Ok(ticket) => {
                        if let Some(place) = self.place.take() {
                            client.room_taken(place);
                        }
                        ticket
                    }
                    Err(_) if client.refusal().is_some() => return Poll::Ready(None),
                    Err(ask) => {
                        client.wake_when_room(&mut self.place, context.waker(), None);
                        self.stage = AskStage::Fresh(ask);
                        return Poll::Pending;
                    }
                }
            }
        };
        match client.poll(ticket, context.waker()) {
            Poll::Ready(Some(Ended::Command(answer))) => Poll::Ready(answer.ok()),
            Poll::Ready(_) => panic!("the answer went to somebody else"),
            Poll::Pending => {
                self.stage = AskStage::Started(ticket);
                Poll::Pending
            }
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.user.client.leave_room(place);
        }
        if let AskStage::Started(ticket) = self.stage {
            self.user.client.abandon(ticket);
        }
    }
}

/// Where the executor below sleeps.
#[derive(Default)]
pub(crate) struct Parked {
    woken: Mutex<bool>,
    condition: Condvar,
}

impl Parked {
    pub(crate) fn park(&self) {
        let mut woken = self.woken.lock().unwrap();
        while !*woken {
            woken = self.condition.wait(woken).unwrap();
        }
        *woken = false;
    }
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap() = true;
        self.condition.notify_one();
    }
}

/// An executor that knows nothing of us.
pub(crate) fn park_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let parked = Arc::new(Parked::default());
    let waker = Waker::from(Arc::clone(&parked));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        parked.park();
    }
}

/// Polls once.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// The moment in `ms` from now.
pub(crate) fn after_ms(ms: u64) -> Time {
    crate::sync::monotonic().after(std::time::Duration::from_millis(ms))
}
