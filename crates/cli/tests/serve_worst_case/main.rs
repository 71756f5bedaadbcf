//! Promise: with the packaged limits of memory and descriptors a broker survives whoever does his worst, one user or all of them, and
//! serves the others meanwhile: each request of theirs ends, with the right bytes. What they wait is printed, and judged by who reads it.
//!
//! `BAIO_WORST_SECONDS=N` chooses how long; `.ci/long` takes ten minutes for each. `--nocapture` shows the tables. Needs root, to be several
//! users and to make a memory cgroup.

mod floods;
#[allow(dead_code, reason = "these stories do not need all of it")]
#[path = "../../../broker/tests/sessions/raw.rs"]
mod raw;
#[path = "../support/mod.rs"]
mod support;
mod victim;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use baio_words::session::BrokerStatus;
use support::cgroup::Cgroup;
use support::confined::{as_user, give, reachable};
use support::server::Server;
use support::serving::{Talk, as_child, role, times};
use support::{BAIO, Place, TestName, until};
use victim::{Victim, Waits};

/// What the client written from the page of the protocol asks of its house.
mod house {
    pub(crate) use crate::support::until;
}

/// Whom the broker runs as, who is honest, and the first of those who are not.
const BROKER: u32 = 4240;
const HONEST: u32 = 4241;
const FIRST: u32 = 4250;
/// All of them together ask for several times what there is.
const ALL: u32 = 10;

/// What the unit that is packaged says.
fn packaged(key: &str) -> u64 {
    let unit = include_str!("../../../../packaging/baio.service");
    let value = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let value = value.expect("a limit of the unit");
    let (number, unit) = match value.strip_suffix(['M', 'G']) {
        Some(number) if value.ends_with('M') => (number, 1 << 20),
        Some(number) => (number, 1 << 30),
        None => (value, 1),
    };
    number.parse::<u64>().unwrap() * unit
}

/// As much as this process may give: root of a container may not raise its limit.
fn locked_memory() -> u64 {
    use rustix::process::{Resource, getrlimit};
    getrlimit(Resource::Memlock).maximum.unwrap_or(u64::MAX)
}

fn one_test(test: TestName, users: u32) {
    if let Some(socket) = role() {
        return floods::rage(Path::new(&socket));
    }
    if !support::is_root() {
        return;
    }
    let Some(cgroup) = Cgroup::make(test.0, packaged("MemoryMax")) else {
        support::skip("no memory cgroup can be made here");
        return;
    };
    let stage = Stage::new(cgroup);
    stage.plays(test, users);
}

#[test]
fn one_user_at_his_worst() {
    one_test(TestName::of(one_user_at_his_worst), 1);
}

#[test]
fn all_users_at_their_worst() {
    one_test(TestName::of(all_users_at_their_worst), ALL);
}

/// A broker as it is packaged.
struct Stage {
    place: Place,
    broker: Server,
    cgroup: Cgroup,
    length: Duration,
}

impl Stage {
    fn new(cgroup: Cgroup) -> Stage {
        let place = Place::new();
        place.baio("format vol.img --size 4G").succeeds();
        let program = reachable(BAIO, &place.path(""));
        for path in [place.path(""), place.path("vol.img")] {
            give(&path, BROKER);
        }
        let mut command = cgroup.command("prlimit");
        command
            .arg(format!("--nofile={}", packaged("LimitNOFILE")))
            .arg(format!("--memlock={}", packaged("LimitMEMLOCK").min(locked_memory())))
            .args(["setpriv", "--clear-groups", "--no-new-privs", "--bounding-set=-all"])
            .args([format!("--reuid={BROKER}"), format!("--regid={BROKER}")])
            .arg(program)
            .args("serve vol.img --socket vol.sock --mode 0666".split(' '))
            .current_dir(place.path(""));
        Stage {
            broker: Server::begin(&mut command).ready(),
            place,
            cgroup,
            length: Duration::from_secs(times("BAIO_WORST_SECONDS", 3)),
        }
    }

    fn socket(&self) -> PathBuf {
        self.place.path("vol.sock")
    }

    fn plays(self, test: TestName, users: u32) {
        let program = reachable(std::env::current_exe().unwrap().to_str().unwrap(), &self.place.path(""));
        let mut root = Talk::connect(&self.socket()).expect("a welcome");
        let calm = self.beside(self.length / 10);
        let mut raging: Vec<Raging> = (FIRST..FIRST + users)
            .map(|uid| Raging::begin(&program, test, &self.socket(), uid))
            .collect();
        until("all of them have come", || {
            let status = root.status();
            status
                .owners
                .iter()
                .filter(|row| row.uid >= FIRST && row.clients > 20)
                .count()
                == users as usize
        });
        let stormy = self.beside(self.length);
        let status = root.status();
        let descriptors = self.broker.holds().0;
        assert!(
            raging.iter_mut().all(Raging::is_alive),
            "whoever was to do his worst has ended"
        );
        drop(raging);
        self.tells(test.0, users, (&calm, &stormy), &status, descriptors);
        assert_eq!(
            self.cgroup.killed(),
            0,
            "the kernel has killed something for want of memory"
        );
        // Nothing of theirs is left.
        until("they have gone", || {
            let status = root.status();
            let others = status.owners.iter().filter(|row| row.uid != 0);
            others.map(|row| row.clients + row.handles + row.in_flight).sum::<u32>() == 0
        });
        let again = self.beside(self.length / 10);
        assert!(
            again.iter().all(|waits| waits.refused == 0),
            "there is not all that there was"
        );
        drop(root);
        self.broker.stops_well();
        self.place.baio("check vol.img").succeeds();
    }

    /// What the honest user waits for so long.
    fn beside(&self, length: Duration) -> Vec<Waits> {
        let (socket, since) = (self.socket(), Instant::now());
        as_user(HONEST, move || {
            let mut victim = Victim::new(&socket);
            while since.elapsed() < length {
                victim.goes_on();
            }
            victim.waits()
        })
    }

    #[allow(clippy::print_stdout, reason = "the table is what it is run for")]
    fn tells(&self, name: &str, users: u32, (calm, stormy): (&[Waits], &[Waits]), status: &BrokerStatus, fds: usize) {
        let mut text = format!(
            "{name}: {} s, users at their worst: {users}, 1024 places, {} MiB, {} descriptors\n",
            self.length.as_secs(),
            packaged("MemoryMax") >> 20,
            packaged("LimitNOFILE"),
        );
        text += "ms of the honest user's       alone: median      99%    worst    beside: median      99%    worst  requests  refused\n";
        for (calm, stormy) in calm.iter().zip(stormy) {
            let [alone, beside] = [calm, stormy].map(Waits::figures);
            text += &format!(
                "{:<30}{:>15}{:>9}{:>9}{:>18}{:>9}{:>9}{:>10}{:>9}\n",
                calm.name,
                alone[0],
                alone[1],
                alone[2],
                beside[0],
                beside[1],
                beside[2],
                stormy.count(),
                stormy.refused
            );
        }
        let theirs = || status.owners.iter().filter(|row| row.uid >= FIRST);
        text += &format!(
            "the others: {} connections now, {} requests, {} failed, {} MiB, {} violations; {} sessions ended\n",
            theirs().map(|row| row.clients).sum::<u32>(),
            theirs().map(|row| row.requests).sum::<u64>(),
            theirs().map(|row| row.errors).sum::<u64>(),
            theirs().map(|row| row.bytes_read + row.bytes_written).sum::<u64>() >> 20,
            theirs().map(|row| row.violations).sum::<u64>(),
            status.sessions_ended,
        );
        text += &format!(
            "the broker: at most {} MiB of its cgroup, {} MiB resident, {fds} descriptors at the end\n",
            self.cgroup.peak_bytes() >> 20,
            self.broker.status("VmHWM") >> 10,
        );
        println!("{text}");
    }
}

/// A process that does a user's worst, until this goes.
struct Raging(Child);

impl Raging {
    fn begin(program: &Path, test: TestName, socket: &Path, uid: u32) -> Raging {
        // Behind the broker and the honest one: what they wait for is the broker's turn, and not the processor.
        let mut command = Command::new("nice");
        command
            .args(["-n", "19"])
            .arg(program)
            .uid(uid)
            .gid(uid)
            .current_dir("/");
        as_child(&mut command, test, socket.to_str().unwrap()).stderr(Stdio::null());
        Raging(command.spawn().unwrap())
    }

    fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Raging {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
