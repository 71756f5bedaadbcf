//! A server that answers many connections, and reads a block of the disk for each message (seed 001 §9): its sockets and its disk
//! in one loop of our engine, or epoll for the sockets and a pool of threads that read.
//!
//! A message is the number of a block; the answer is the block, which begins with its number, so each answer is checked. The
//! clients are a process of their own, with a thread for each, and what they cost is not charged to the server, who does not wait for their end
//! (wait4(2) adds up only those that were waited for).

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Barrier, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use baio_engine::{Arena, Buffer, Caching, Config, Descriptions, Engine, File, Open, Policy, Request, Wait};
use baio_stress::{Latency, Measurement, Random, Recorder};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use serde::{Deserialize, Serialize};

use crate::program::{joined, started};

/// Bytes of a block and of an answer; a message is a number of eight bytes.
pub(crate) const BLOCK: usize = 4096;

/// The server and its clients.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Server {
    pub(crate) path: PathBuf,
    /// Of the file: each begins with its number.
    pub(crate) blocks: u64,
    pub(crate) connections: u32,
    pub(crate) runtime_ms: u64,
    /// So many threads that read, behind epoll; `None` is one loop of the engine.
    pub(crate) pool: Option<u32>,
}

/// The clients: each asks, waits for the answer, and asks again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Clients {
    /// The name of the server's abstract socket.
    socket: String,
    blocks: u64,
    connections: u32,
    runtime_ms: u64,
}

/// What the clients print.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answered {
    requests: u64,
    errors: u64,
    seconds: f64,
    latency_us: Latency,
}

type Told<T> = Result<T, String>;

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Server {
    pub(super) fn run(&self) -> Told<Measurement> {
        let socket = format!("baio-report-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&socket).map_err(told)?;
        let listener = UnixListener::bind_addr(&address).map_err(|error| format!("listen for clients: {error}"))?;
        let mut clients = self.clients(socket)?;
        let connections = self.accept(&listener)?;
        let (backend, calls) = match self.pool {
            None => self
                .one_loop(connections)
                .map(|(backend, calls)| (backend, Some(calls)))?,
            Some(threads) => (self.epoll_and_pool(connections, threads)?, None),
        };
        let mut said = String::new();
        let out = clients.stdout.as_mut().ok_or("the clients have no output")?;
        out.read_to_string(&mut said).map_err(told)?;
        let answered: Answered =
            serde_json::from_str(said.trim()).map_err(|error| format!("the clients' output: {error}"))?;
        Ok(Measurement {
            latency_us: answered.latency_us,
            in_flight_max: self.connections.into(),
            errors: answered.errors,
            system_calls_per_request: calls.map(|calls| calls as f64 / answered.requests.max(1) as f64),
            threads_max: Some(self.pool.map_or(1, |threads| u64::from(threads) + 1)),
            backend,
            mode: "direct".into(),
            ..Measurement::of(answered.requests, BLOCK as u64, answered.seconds)
        })
    }

    /// They are never waited for: see above.
    fn clients(&self, socket: String) -> Told<Child> {
        let job = Clients {
            socket,
            blocks: self.blocks,
            connections: self.connections,
            runtime_ms: self.runtime_ms,
        };
        let mut command = crate::figures::job::command("Clients", &job)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().map_err(|error| format!("start the clients: {error}"))
    }

    fn accept(&self, listener: &UnixListener) -> Told<Vec<UnixStream>> {
        /// Clients that have not come by then do not come.
        const PATIENCE: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };
        let one = |_| {
            let mut waiting = [PollFd::new(listener, PollFlags::IN)];
            match poll(&mut waiting, Some(&PATIENCE)) {
                Ok(0) => Err("the clients did not connect".into()),
                Ok(_) => listener.accept().map(|(stream, _)| stream).map_err(told),
                Err(error) => Err(told(error)),
            }
        };
        (0..self.connections).map(one).collect()
    }

    /// The place of the block that a message asks for.
    fn place(&self, message: &[u8]) -> Told<u64> {
        let number: [u8; 8] = message.try_into().map_err(|_| "a message came in part")?;
        let number = u64::from_le_bytes(number);
        if number < self.blocks {
            return Ok(number * BLOCK as u64);
        }
        Err(format!("a client asks for block {number} of {}", self.blocks))
    }

    /// A connection has one buffer, which goes round: a message into it, the block into it, and the block out of it. Returns the
    /// backend, and how many system calls there were.
    fn one_loop(&self, connections: Vec<UnixStream>) -> Told<(String, u64)> {
        let mut engine = Engine::new(&Config {
            slots: self.connections + 1,
            reserved_slots: 0,
            arena_bytes: connections.len() * BLOCK + (256 << 10),
            ..Config::default()
        })
        .map_err(told)?;
        let open = Open {
            descriptions: Descriptions::Only(Caching::Direct),
            ..Open::read()
        };
        let disk = File::open(&self.path, &open).map_err(told)?;
        engine.attach(&disk);
        let mut sockets = Vec::with_capacity(connections.len());
        for connection in connections {
            let socket = File::from_fd(connection.into(), "a connection").map_err(told)?;
            engine.attach(&socket);
            sockets.push(socket);
        }
        for (index, socket) in sockets.iter().enumerate() {
            let buffer = engine.buffer(BLOCK).ok_or("no buffer")?;
            let receive = Request::receive(socket, buffer).tagged(Step::Receive.tag(index));
            engine.submit(receive).map_err(|_| "every slot is taken")?;
        }
        while engine.in_flight() > 0 {
            engine.turn(Wait::one()).map_err(told)?;
            while let Some(completion) = engine.next_completion() {
                let (step, index) = Step::of(completion.tag);
                let len = completion.result.map_err(|error| format!("{step:?}: {error}"))? as usize;
                let buffer = completion.memory.into_buffer().ok_or("a buffer did not come back")?;
                if let Some(next) = self.next(step, len, buffer, &disk, &sockets[index])? {
                    let next = next.tagged(step.then().tag(index));
                    engine.submit(next).map_err(|_| "every slot is taken")?;
                }
            }
        }
        Ok((engine.explain().backend.into(), engine.stats().system_calls))
    }

    /// What follows a step of a connection; nothing behind its end.
    fn next(&self, step: Step, len: usize, buffer: Buffer, disk: &File, socket: &File) -> Told<Option<Request>> {
        let next = match step {
            Step::Receive if len == 0 => return Ok(None),
            Step::Receive => Request::read(disk, self.place(&buffer[..len])?, buffer, Policy::direct()),
            Step::Read if len == BLOCK => Request::send(socket, buffer),
            Step::Read => return Err(format!("a block has {len} bytes")),
            Step::Send => Request::receive(socket, buffer),
        };
        Ok(Some(next))
    }

    /// One thread receives, and the threads of the pool read and answer.
    fn epoll_and_pool(&self, connections: Vec<UnixStream>, threads: u32) -> Told<String> {
        let disk = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(&self.path)
            .map_err(|error| format!("{}: {error}", self.path.display()))?;
        let arena = Arena::new(threads as usize * BLOCK).map_err(told)?;
        let queue = Queue::default();
        let answer = || -> Told<()> {
            let mut buffer = arena.buffer(BLOCK).ok_or("no buffer")?;
            let mut all = Ok(());
            while let Some((index, place)) = queue.next() {
                let mut connection = &connections[index];
                let read = disk.read_exact_at(&mut buffer, place);
                if let Err(error) = read.and_then(|()| connection.write_all(&buffer)) {
                    // Its client would wait for ever.
                    let _ = connection.shutdown(Shutdown::Both);
                    all = all.and(Err(format!("answer: {error}")));
                }
            }
            all
        };
        std::thread::scope(|scope| {
            let pool = started(scope, (0..threads).map(|_| answer)).inspect_err(|_| queue.close())?;
            let received = self.receive(&connections, &queue);
            queue.close();
            let answered = pool.into_iter().try_for_each(|thread| joined(thread.join()));
            received.and(answered)
        })?;
        Ok(format!("epoll and {threads} threads"))
    }

    fn receive(&self, connections: &[UnixStream], queue: &Queue) -> Told<()> {
        let all = baio_process::descriptor::epoll().map_err(told)?;
        for (index, connection) in connections.iter().enumerate() {
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&all, connection, data, epoll::EventFlags::IN).map_err(told)?;
        }
        let mut open = connections.len();
        let mut events = [MaybeUninit::uninit(); 64];
        while open > 0 {
            let (ready, _) = epoll::wait(&all, &mut events, None).map_err(told)?;
            for event in ready {
                let index = event.data.u64() as usize;
                let mut message = [0; 8];
                match (&connections[index]).read(&mut message) {
                    Ok(0) => {
                        epoll::delete(&all, &connections[index]).map_err(told)?;
                        open -= 1;
                    }
                    Ok(len) => queue.add((index, self.place(&message[..len])?)),
                    Err(error) => return Err(format!("receive: {error}")),
                }
            }
        }
        Ok(())
    }
}

/// Where the buffer of a connection is.
#[derive(Clone, Copy, Debug)]
enum Step {
    Receive,
    Read,
    Send,
}

impl Step {
    const ALL: [Step; 3] = [Step::Receive, Step::Read, Step::Send];

    fn then(self) -> Step {
        Step::ALL[(self as usize + 1) % 3]
    }

    fn tag(self, connection: usize) -> u64 {
        (connection * 3 + self as usize) as u64
    }

    fn of(tag: u64) -> (Step, usize) {
        let tag = tag as usize;
        (Step::ALL[tag % 3], tag / 3)
    }
}

/// What the pool has to do: connections, and the places of their blocks.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    news: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<(usize, u64)>,
    is_over: bool,
}

impl Queue {
    fn add(&self, job: (usize, u64)) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.jobs.push_back(job);
        drop(waiting);
        self.news.notify_one();
    }

    fn close(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
        self.news.notify_all();
    }

    fn next(&self) -> Option<(usize, u64)> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = |waiting: &mut Waiting| waiting.jobs.is_empty() && !waiting.is_over;
        let waited = self.news.wait_while(waiting, idle);
        waited.unwrap_or_else(PoisonError::into_inner).jobs.pop_front()
    }
}

impl Clients {
    pub(super) fn run(&self) -> Told<Answered> {
        let address = SocketAddr::from_abstract_name(&self.socket).map_err(told)?;
        let connect = |_| UnixStream::connect_addr(&address).map_err(|error| format!("connect: {error}"));
        let connections: Vec<_> = (0..self.connections).map(connect).collect::<Told<_>>()?;
        let start = Barrier::new(connections.len() + 1);
        let ask = |seed: u64, connection: UnixStream| {
            start.wait();
            self.ask(
                seed,
                connection,
                Instant::now() + Duration::from_millis(self.runtime_ms),
            )
        };
        let (mut requests, mut errors, mut latency) = (0, 0, Recorder::new());
        let mut begun = Instant::now();
        std::thread::scope(|scope| {
            let ask = &ask;
            let numbered = connections.into_iter().zip(1_u64..);
            let asking = numbered.map(|(connection, seed)| move || ask(seed, connection));
            let threads = started(scope, asking)?;
            start.wait();
            begun = Instant::now();
            threads.into_iter().try_for_each(|thread| {
                let (wrong, times) = joined(thread.join())?;
                requests += times.count();
                errors += wrong;
                latency.merge(&times);
                Ok::<(), String>(())
            })
        })?;
        Ok(Answered {
            requests,
            errors,
            seconds: begun.elapsed().as_secs_f64(),
            latency_us: latency.latency(),
        })
    }

    /// Returns how many answers were wrong, and how long each took.
    fn ask(&self, seed: u64, mut connection: UnixStream, deadline: Instant) -> Told<(u64, Recorder)> {
        let mut random = Random::new(seed);
        let mut answer = vec![0; BLOCK];
        let (mut wrong, mut latency, mut now) = (0, Recorder::new(), Instant::now());
        while now < deadline {
            let number = random.below(self.blocks).to_le_bytes();
            connection.write_all(&number).map_err(|error| format!("ask: {error}"))?;
            match connection.read_exact(&mut answer) {
                Ok(()) => wrong += u64::from(answer[..8] != number),
                // The server has given up, and says why.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok((wrong + 1, latency)),
                Err(error) => return Err(format!("wait for an answer: {error}")),
            }
            let after = Instant::now();
            latency.record(after - now);
            now = after;
        }
        Ok((wrong, latency))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_says_connection_and_step() {
        for index in [0, 1, 300] {
            for step in Step::ALL {
                let (said, connection) = Step::of(step.tag(index));
                assert_eq!((said as usize, connection), (step as usize, index));
            }
        }
        assert!(matches!(Step::Send.then(), Step::Receive));
    }

    #[test]
    fn a_message_names_a_block_of_the_file() {
        let server = Server {
            path: PathBuf::new(),
            blocks: 4,
            connections: 1,
            runtime_ms: 1,
            pool: None,
        };
        assert_eq!(server.place(&3_u64.to_le_bytes()), Ok(3 * BLOCK as u64));
        assert!(server.place(&4_u64.to_le_bytes()).is_err());
        assert!(server.place(&[0; 5]).is_err());
    }

    #[test]
    fn the_queue_ends_when_all_is_done() {
        let queue = Queue::default();
        queue.add((1, 2));
        queue.close();
        assert_eq!((queue.next(), queue.next()), (Some((1, 2)), None));
    }
}
