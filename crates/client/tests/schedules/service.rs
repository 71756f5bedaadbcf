//! The model's service, and the memory that goes to it and comes back. It answers what it holds in any order, alone or in
//! batches, when it likes; it may die in the middle. What is no correct client's is an error here.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use baio_words::entry::{Completion, Limits, Op, Place, Submission};
use baio_words::{Caching, Failure, Handle, IoError, Payload};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::{Condvar, Mutex};

use crate::carrier::{Between, Carrier};
use crate::exchange::Parcel;
use crate::ring::Cursor;

pub(crate) const CORE: u32 = 3;

/// Memory with a number, counted while it lives.
#[derive(Debug, Default)]
pub(crate) struct Token {
    pub(crate) number: u64,
    alive: Option<Arc<AtomicUsize>>,
}

impl Token {
    pub(crate) fn new(number: u64, alive: &Arc<AtomicUsize>) -> Token {
        alive.fetch_add(1, Ordering::Relaxed);
        let alive = Some(Arc::clone(alive));
        Token { number, alive }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if let Some(alive) = &self.alive {
            alive.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Payload for Token {
    fn payload_bytes(&self) -> usize {
        usize::from(self.alive.is_some())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Open,
    Close,
}

/// Where the service sleeps; and the gate that a story keeps requests behind: a service holds every `Sync` until it is open.
#[derive(Debug, Default)]
pub(crate) struct Doorbell {
    rung: Mutex<bool>,
    heard: Condvar,
    open: shuttle::sync::atomic::AtomicBool,
    pub(crate) pool: Pool,
}

/// Memory that a service can be shown, in pieces of one size.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: shuttle::sync::atomic::AtomicUsize,
    is_awaited: shuttle::sync::atomic::AtomicBool,
    /// How often some came back. No place where threads meet: every look of a client asks for it.
    came: AtomicUsize,
}

impl Pool {
    pub(crate) fn take(&self) -> bool {
        let one_less = |free: usize| free.checked_sub(1);
        self.free
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less)
            .is_ok()
    }

    /// Gives one piece back. True: ring for whoever waits.
    pub(crate) fn give(&self) -> bool {
        self.free.fetch_add(1, Ordering::SeqCst);
        self.is_awaited.load(Ordering::SeqCst) && self.came.fetch_add(1, Ordering::SeqCst) == 0
    }
}

impl Doorbell {
    pub(crate) fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.heard.notify_one();
    }

    fn sleep(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.heard.wait(rung).unwrap();
        }
        *rung = false;
    }

    pub(crate) fn open_the_gate(&self) {
        self.open.store(true, Ordering::SeqCst);
        self.ring();
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::SeqCst)
    }
}

pub(crate) struct Modelled(pub(crate) Arc<Doorbell>);

impl Carrier for Modelled {
    type Memory = Token;
    type Command = Ask;
    type Reply = Option<Handle>;
    type Kept = ();

    fn place(&self, (): &(), memory: &Token) -> Place {
        match memory.alive {
            Some(_) => Place::Exchange { len: 1 },
            None => Place::Nowhere,
        }
    }

    fn ring(&self) {
        self.0.ring();
    }

    fn opened(reply: &Option<Handle>) -> Option<Handle> {
        *reply
    }

    fn await_memory(&self, awaited: bool) {
        self.0.pool.is_awaited.store(awaited, Ordering::SeqCst);
    }

    fn memory_came(&self) -> usize {
        self.0.pool.came.swap(0, Ordering::SeqCst)
    }
}

/// What lies in the exchange.
type Lying = Parcel<Token, Ask, Option<Handle>>;

/// What a service has of a client, and what became of it.
pub(crate) struct Service {
    pub(crate) shared: Arc<Between<Modelled>>,
    pub(crate) doorbell: Arc<Doorbell>,
    /// It ends when it has taken so many entries.
    pub(crate) dies_after: Option<u32>,
    taken: Cursor,
    posted: Cursor,
    entries: u32,
    held: Vec<(Submission, Option<Lying>)>,
    told: Told,
}

/// What a service tells when it has ended.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) opened: u32,
    pub(crate) closed: u32,
}

impl Service {
    pub(crate) fn new(shared: Arc<Between<Modelled>>, doorbell: Arc<Doorbell>, dies_after: Option<u32>) -> Service {
        Service {
            shared,
            doorbell,
            dies_after,
            taken: Cursor::default(),
            posted: Cursor::default(),
            entries: 0,
            held: Vec::new(),
            told: Told::default(),
        }
    }

    /// Serves until it is asked to end, has closed, or dies.
    pub(crate) fn serve(mut self) -> Told {
        let shared = Arc::clone(&self.shared);
        let submissions = shared.submissions.ring();
        while self.take() && !shared.is_stopping() && self.answer_some() {
            if self.next().is_none() && submissions.fall_asleep(&self.taken) {
                self.doorbell.sleep();
                submissions.wake_up();
            }
        }
        // What is held goes with it; what was answered, and not published, may still be.
        if thread_rng().gen_bool(0.5) {
            self.publish();
        }
        self.held.clear();
        shared.end();
        self.told
    }

    /// False: it dies.
    fn take(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let submissions = shared.submissions.ring();
        let limits = Limits {
            places: shared.exchange.places(),
            arena_bytes: 0,
        };
        while let Some(raw) = submissions.pop(&mut self.taken).expect("the client's ring is broken") {
            let asked = Submission::decode(&raw, &limits).expect("no correct client sends this");
            let same = |(held, _): &(Submission, _)| held.tag == asked.tag;
            match asked.op {
                Op::Cancel => {
                    if let Some(at) = self.held.iter().position(same) {
                        self.answer(at, Err(Failure::Io(IoError::Cancelled)));
                    }
                }
                Op::CloseHandle => self.told.closed += 1,
                _ => {
                    assert!(!self.held.iter().any(same), "a tag is used twice");
                    let parcel = shared.exchange.take(asked.tag.index);
                    assert_eq!(parcel.is_some(), asked.op != Op::Sync, "what an entry says lies there");
                    self.held.push((asked, parcel));
                }
            }
            self.entries += 1;
            if self.dies_after.is_some_and(|after| self.entries >= after) {
                return false;
            }
        }
        submissions.release(&self.taken);
        true
    }

    /// One that can be answered now: any, but the end comes last.
    fn next(&self) -> Option<usize> {
        let open = self.doorbell.is_open();
        let is_close = |parcel: &_| matches!(parcel, Some(Parcel::Command(ask)) if **ask == Ask::Close);
        let ready = |(asked, parcel): &(Submission, _)| (open || asked.op != Op::Sync) && !is_close(parcel);
        let ready: Vec<usize> = (0..self.held.len()).filter(|&at| ready(&self.held[at])).collect();
        if ready.is_empty() {
            return (self.held.len() == 1 && is_close(&self.held[0].1)).then_some(0);
        }
        Some(ready[thread_rng().gen_range(0..ready.len())])
    }

    /// False: it has closed.
    fn answer_some(&mut self) -> bool {
        while let Some(at) = self.next() {
            let closes = matches!(&self.held[at].1, Some(Parcel::Command(ask)) if **ask == Ask::Close);
            self.answer(at, Ok(1));
            if closes {
                self.publish();
                return false;
            }
            if thread_rng().gen_bool(0.5) {
                self.publish();
            }
            if thread_rng().gen_bool(0.25) {
                break;
            }
        }
        self.publish();
        true
    }

    fn publish(&self) {
        if self.shared.completions.ring().publish(&self.posted) {
            self.shared.bell.ring();
        }
    }

    fn answer(&mut self, at: usize, result: Result<u32, Failure>) {
        let (asked, parcel) = self.held.swap_remove(at);
        let parcel = match parcel {
            Some(Parcel::Command(ask)) => {
                let opened = *ask == Ask::Open && result.is_ok();
                self.told.opened += u32::from(opened);
                Some(Parcel::Reply(Box::new(opened.then(|| Handle::from_parts(CORE, 1, 1)))))
            }
            parcel => parcel,
        };
        if let Some(parcel) = parcel {
            assert!(self.shared.exchange.put(asked.tag.index, parcel));
        }
        let completion = Completion {
            tag: asked.tag,
            result,
            bytes_done: result.unwrap_or(0),
            took: Caching::Direct,
            iterations: 1,
        };
        let completions = self.shared.completions.ring();
        let posted = completions.push(&mut self.posted, &completion.encode());
        posted.expect("a completion for each place fits");
    }
}
