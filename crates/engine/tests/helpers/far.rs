//! A device that another thread serves: requests end later, in any order, and the engine's doorbell is rung behind each. It may be
//! told to hold what it has, to take few at a time, and to lie.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use baio_engine::backend::{Attach, Backend, Detached, Done};
use baio_engine::{
    Caching, Device, DirectLimits, Doorbell, DurableBy, Engine, Errno, Error, Explain, File, Op, RequestId, Slots,
    Wait, Work,
};

/// What the test tells the device, and what it tells the test.
#[derive(Default)]
pub(crate) struct Inside {
    pub(crate) bytes: Vec<u8>,
    /// What comes is kept and not answered.
    pub(crate) holds: bool,
    /// How many it takes at a time; 0: all.
    pub(crate) most: usize,
    /// How long each takes, at most.
    pub(crate) long: Duration,
    /// Its turn fails with this, behind what it reports.
    pub(crate) fails: Option<Errno>,
    /// It reports this, too, and copies into that request's memory.
    pub(crate) lie: Option<(RequestId, i32)>,
    /// "attach", "detach", in order; and how often it was asked whom it serves.
    pub(crate) told: Vec<&'static str>,
    pub(crate) asked: usize,
    /// What it rings.
    pub(crate) bell: Option<Doorbell>,
    /// How often it was offered requests.
    pub(crate) offered: usize,
    /// Numbers of requests in the order in which they were taken.
    pub(crate) taken: Vec<&'static str>,
}

#[derive(Clone, Default)]
pub(crate) struct Far(Arc<Mutex<Inside>>);

impl Far {
    pub(crate) fn new(bytes: &[u8]) -> Far {
        let far = Far::default();
        far.inside().bytes = bytes.to_vec();
        far
    }

    pub(crate) fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap()
    }

    pub(crate) fn file(&self) -> File {
        File::on(self.clone(), "far away")
    }

    /// Has this engine serve it, and all others of its sort.
    pub(crate) fn help(&self, engine: &mut Engine) {
        engine.add_helper(|doorbell| Ok(Server::start(self, doorbell))).unwrap();
    }
}

impl Device for Far {
    fn identity(&self) -> (u64, u64) {
        (0xfa7, Arc::as_ptr(&self.0).addr() as u64)
    }

    fn size(&self) -> Result<u64, Errno> {
        Ok(self.inside().bytes.len() as u64)
    }

    fn direct_limits(&self) -> DirectLimits {
        DirectLimits { memory: 1, offset: 1 }
    }

    fn durable_by(&self) -> DurableBy {
        DurableBy::Flag
    }

    fn gives(&self, _: Caching) -> bool {
        true
    }

    fn try_lock(&self, _: bool) -> Result<(), Errno> {
        Ok(())
    }

    fn unlock(&self) {}
}

struct Job {
    id: RequestId,
    far: Far,
    work: Work,
    bytes: Vec<u8>,
}

type Ended = Arc<Mutex<Vec<(RequestId, i32, Vec<u8>)>>>;

pub(crate) struct Server {
    /// Whose knobs it obeys.
    far: Far,
    doorbell: Doorbell,
    jobs: Option<Sender<Job>>,
    held: Vec<Job>,
    ended: Ended,
    running: usize,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(far: &Far, doorbell: Doorbell) -> Box<Server> {
        let (jobs, incoming) = channel();
        far.inside().bell = Some(doorbell.clone());
        let ended = Ended::default();
        let thread = {
            let (far, ended, doorbell) = (far.clone(), Arc::clone(&ended), doorbell.clone());
            std::thread::spawn(move || serve(&far, &incoming, &ended, &doorbell))
        };
        Box::new(Server {
            far: far.clone(),
            doorbell,
            jobs: Some(jobs),
            held: Vec::new(),
            ended,
            running: 0,
            thread: Some(thread),
        })
    }
}

fn serve(far: &Far, incoming: &Receiver<Job>, ended: &Ended, doorbell: &Doorbell) {
    let mut dice = 1_u64;
    for job in incoming {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let long = far.inside().long;
        if !long.is_zero() {
            std::thread::sleep(long.mul_f64((dice >> 40) as f64 / (1 << 24) as f64));
        }
        let (raw, bytes) = run(job.far.inside().bytes.as_mut_slice(), job.work, job.bytes);
        ended.lock().unwrap().push((job.id, raw, bytes));
        doorbell.ring();
    }
}

fn run(all: &mut [u8], work: Work, mut bytes: Vec<u8>) -> (i32, Vec<u8>) {
    let from = |offset: u64| offset.min(all.len() as u64) as usize;
    match work {
        Work::Read { offset, len, .. } => {
            let start = from(offset);
            bytes = all[start..all.len().min(start + len)].to_vec();
        }
        Work::Write { offset, .. } => {
            let start = from(offset);
            let len = bytes.len().min(all.len() - start);
            all[start..start + len].copy_from_slice(&bytes[..len]);
            return (len as i32, Vec::new());
        }
        _ => return (0, Vec::new()),
    }
    (bytes.len() as i32, bytes)
}

impl Backend for Server {
    fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize {
        let room = match self.far.inside().most {
            0 => queue.len(),
            most => most.saturating_sub(self.running).min(queue.len()),
        };
        self.far.inside().offered += 1;
        for &id in &queue[..room] {
            let work = slots.begin(id);
            let far = slots.file(id).and_then(File::device::<Far>).unwrap().clone();
            let mut bytes = Vec::new();
            if let Work::Write { len, .. } = work {
                bytes.resize(len, 0);
                slots.copy_out(id, &mut bytes);
            }
            let kind = match work {
                Work::Read { .. } => "read",
                Work::Write { .. } => "write",
                Work::Sync { .. } => "sync",
                _ => "other",
            };
            let job = Job { id, far, work, bytes };
            self.far.inside().taken.push(kind);
            let holds = self.far.inside().holds;
            match &self.jobs {
                Some(jobs) if !holds => jobs.send(job).unwrap(),
                _ => self.held.push(job),
            }
        }
        self.running += room;
        room
    }

    fn turn(&mut self, slots: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        assert_eq!(wait, Wait::No, "a helper does not sleep");
        if !self.far.inside().holds
            && let Some(jobs) = &self.jobs
        {
            self.held.drain(..).for_each(|job| jobs.send(job).unwrap());
        }
        for (id, raw, bytes) in self.ended.lock().unwrap().drain(..) {
            slots.copy_in(id, &bytes);
            done.raw.push((id, raw));
            self.running -= 1;
        }
        if let Some((id, raw)) = self.far.inside().lie {
            slots.copy_in(id, b"a lie");
            done.raw.push((id, raw));
        }
        self.far.inside().fails.map_or(Ok(()), Err)
    }

    fn cancel(&mut self, _: &Slots, id: RequestId) {
        if let Some(at) = self.held.iter().position(|job| job.id == id) {
            self.held.swap_remove(at);
            self.ended
                .lock()
                .unwrap()
                .push((id, -Errno::ECANCELED.raw(), Vec::new()));
            self.doorbell.ring();
        }
    }

    fn attach(&mut self, _: Attach<'_>) -> Result<(), Errno> {
        self.far.inside().told.push("attach");
        Ok(())
    }

    fn detach(&mut self, _: Detached<'_>) {
        self.far.inside().told.push("detach");
    }

    fn serves(&self, file: &File) -> bool {
        self.far.inside().asked += 1;
        file.device::<Far>().is_some()
    }

    fn doorbell(&self) -> Doorbell {
        self.doorbell.clone()
    }

    fn explain(&self) -> Explain {
        Explain::named("far")
    }

    fn refuses(&self, op: Op) -> Option<Error> {
        // It takes connections, which it has no right to.
        (!op.is_for_disks() && op != Op::Accept).then(|| op.unsupported_by("far"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.jobs = None;
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()));
    }
}
