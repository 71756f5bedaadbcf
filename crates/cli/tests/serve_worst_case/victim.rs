//! Who does honest work beside it all: one request after the other, each looked at and timed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use baio_words::entry::{HandleWords, Op, Place, Submission};
use baio_words::session::{Answer, Question};
use baio_words::{Access, Durability, Mode, OperationName};

use crate::raw::{BLOCK, Client, Wire, create, hello};

/// How long each request of one kind took.
pub(crate) struct Waits {
    pub(crate) name: &'static str,
    took: Vec<Duration>,
    /// What it was told to try again later.
    pub(crate) refused: u64,
}

impl Waits {
    pub(crate) fn count(&self) -> usize {
        self.took.len()
    }

    /// The median, that of 99 in 100, and the worst, in milliseconds.
    pub(crate) fn figures(&self) -> [String; 3] {
        let mut sorted = self.took.clone();
        sorted.sort_unstable();
        let at = |part: f64| sorted.get((sorted.len().saturating_sub(1) as f64 * part) as usize);
        [0.5, 0.99, 1.0].map(|part| at(part).map_or("-".into(), |took| format!("{:.2}", took.as_secs_f64() * 1e3)))
    }
}

/// What it does, in turn; all but the first three many times for each of those.
const KINDS: [(&str, Act); 10] = [
    ("create and delete", Victim::creates),
    ("list", Victim::lists),
    ("connect", Victim::connects),
    ("cached read of 4 KiB", |victim| victim.reads(Mode::Cached)),
    ("direct read of 4 KiB", |victim| victim.reads(Mode::Direct)),
    ("cached write of 4 KiB", |victim| {
        victim.writes(Mode::Cached, Durability::None)
    }),
    ("durable write of 4 KiB", |victim| {
        victim.writes(Mode::Direct, Durability::Data)
    }),
    ("sync", Victim::syncs),
    ("open and close", Victim::opens),
    ("info", Victim::asks),
];

const RARE: usize = 3;
const OFTEN: u64 = 10;

type Act = fn(&mut Victim) -> Done;

/// Done, or refused: try again later.
type Done = Result<(), ()>;

pub(crate) struct Victim {
    socket: PathBuf,
    client: Client,
    handle: HandleWords,
    waits: Vec<Waits>,
    turns: u64,
}

const SEGMENT: u64 = 64 * BLOCK as u64;

impl Victim {
    pub(crate) fn new(socket: &Path) -> Victim {
        let mut client = loop {
            // Others may have all places for a while.
            if let Ok(client) = Wire::connect(socket).greet(&hello()) {
                break client;
            }
        };
        let handle = client.made_once("honest", SEGMENT);
        let named = |(name, _): &(&'static str, _)| Waits {
            name,
            took: Vec::new(),
            refused: 0,
        };
        Victim {
            socket: socket.to_owned(),
            client,
            handle,
            waits: KINDS.iter().map(named).collect(),
            turns: 0,
        }
    }

    /// One of each.
    pub(crate) fn goes_on(&mut self) {
        self.turns += 1;
        let rare = if self.turns % OFTEN == 1 { 0 } else { RARE };
        for (nth, (_, act)) in KINDS.iter().enumerate().skip(rare) {
            let since = Instant::now();
            let done = act(self);
            let waits = &mut self.waits[nth];
            match done {
                Ok(()) => waits.took.push(since.elapsed()),
                Err(()) => waits.refused += 1,
            }
        }
    }

    pub(crate) fn waits(self) -> Vec<Waits> {
        self.waits
    }

    fn connects(&mut self) -> Done {
        let wire = Wire::connect(&self.socket);
        wire.try_send(&hello().encode());
        match wire.greeted() {
            Ok(_) => Ok(()),
            Err(failed) if failed.code == "EAGAIN" => Err(()),
            Err(failed) => panic!("{failed:?}"),
        }
    }

    /// Where this turn writes and reads, and what.
    fn block(&self) -> (u64, [u8; BLOCK as usize]) {
        let offset = self.turns % (SEGMENT / u64::from(BLOCK)) * u64::from(BLOCK);
        (offset, [self.turns as u8; BLOCK as usize])
    }

    fn writes(&mut self, mode: Mode, durability: Durability) -> Done {
        let (offset, bytes) = self.block();
        self.client.memory.arena().unwrap().copy_in(&bytes);
        let write = Submission {
            mode,
            durability,
            ..self.transfer(Op::Write, offset)
        };
        assert_eq!(self.client.run(&write).result, Ok(BLOCK));
        Ok(())
    }

    /// What the turn before has written.
    fn reads(&mut self, mode: Mode) -> Done {
        self.turns -= 1;
        let (offset, expected) = self.block();
        self.turns += 1;
        let read = Submission {
            mode,
            ..self.transfer(Op::Read, offset)
        };
        assert_eq!(self.client.run(&read).result, Ok(BLOCK));
        let mut bytes = [0; BLOCK as usize];
        self.client.memory.arena().unwrap().copy_out(&mut bytes);
        assert!(
            self.turns == 1 || bytes == expected,
            "these are not the bytes that were written"
        );
        Ok(())
    }

    fn transfer(&mut self, op: Op, offset: u64) -> Submission {
        Submission {
            place: Place::Arena { at: 0, len: BLOCK },
            ..self.client.entry(op, 0, self.handle, offset)
        }
    }

    fn syncs(&mut self) -> Done {
        assert_eq!(self.client.sync(self.handle).result, Ok(0));
        Ok(())
    }

    fn opens(&mut self) -> Done {
        let uid = self.client.uid();
        match self.client.open_of(uid, "honest", Access::Read) {
            Ok(handle) => self.client.close(handle),
            Err(code) => return is_later(&code),
        }
        Ok(())
    }

    fn creates(&mut self) -> Done {
        let (owner_uid, name) = (self.client.uid(), format!("{}", self.turns));
        let delete = Question::Delete {
            operation: OperationName::NONE,
            owner_uid,
            name: name.clone(),
        };
        for question in [create(owner_uid, &name, 4096), delete] {
            match self.client.ask(&question) {
                Answer::Segment { .. } => {}
                Answer::Failed(failed) => return is_later(&failed.code),
                other => panic!("{other:?}"),
            }
        }
        Ok(())
    }

    fn lists(&mut self) -> Done {
        let id = self.client.pose(&Question::List);
        let mut has_seen_its_own = false;
        loop {
            match self.client.answer(id) {
                Answer::Segments { more, infos } => {
                    has_seen_its_own |= infos.iter().any(|info| info.name == "honest");
                    if !more {
                        assert!(has_seen_its_own, "its segment is in no list");
                        return Ok(());
                    }
                }
                Answer::Failed(failed) => return is_later(&failed.code),
                other => panic!("{other:?}"),
            }
        }
    }

    fn asks(&mut self) -> Done {
        match self.client.ask(&Question::Info) {
            Answer::Volume(_) => Ok(()),
            Answer::Failed(failed) => is_later(&failed.code),
            other => panic!("{other:?}"),
        }
    }
}

/// A refusal for now; no other is expected.
fn is_later(code: &str) -> Done {
    assert_eq!(code, "EAGAIN");
    Err(())
}
