//! What a kernel may lack is a line of one table, and each line can be taken away on every machine (docs/inside/kernels.md). A
//! test runs itself again in a child process, whose environment takes lines away.

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use baio_engine::{
    Caching, Choice, Engine, EngineOptions, Errno, Error, File, Memory, Op, Open, Patience, Policy, Region, Request,
    Time, Vectored, Wait, kernel,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::config::config;
use crate::device::LoopDevice;
use crate::filter;

/// Is this the child? Else runs it: this executable's test of that name, where these lines are taken away.
fn is_on(lines: &str, test: &str) -> bool {
    if std::env::var(kernel::LACKS).is_ok_and(|taken| taken == lines) {
        return true;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    let test = format!("as_on_older_kernels::{test}");
    child.args(["--exact", &test, "--nocapture"]).env(kernel::LACKS, lines);
    assert!(
        child.status().unwrap().success(),
        "failed where `{lines}` is taken away"
    );
    false
}

fn ring() -> Option<Engine> {
    let engine = Engine::new(&config(Choice::Uring));
    engine.map_err(|why| println!("SKIPPED: {why}")).ok()
}

/// Where registering an event fd waits for what is under way, for ever if that is an accept, nobody registers one any more once the
/// ring is made: neither when an outside loop first asks for its descriptor, nor when it arms it again.
#[test]
fn nothing_is_registered_while_requests_are_under_way() {
    if !is_on("late_event_fd", "nothing_is_registered_while_requests_are_under_way") {
        return;
    }
    let Some(mut engine) = ring() else { return };
    filter::forbid(&[libc::SYS_io_uring_register], Errno::EPERM.raw());
    for _ in 0..3 {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let pipe = File::from_fd(reader.into(), "a pipe").unwrap();
        let read = Request::read_stream(&pipe, engine.buffer(16).unwrap());
        engine.submit(read).unwrap();
        engine.turn(Wait::No).unwrap();
        let ready = engine
            .ready_fd(true)
            .expect("a descriptor")
            .try_clone_to_owned()
            .unwrap();
        engine.turn(Wait::No).unwrap();
        writer.write_all(b"x").unwrap();
        let long = Timespec { tv_sec: 20, tv_nsec: 0 };
        let woken = poll(&mut [PollFd::new(&ready, PollFlags::IN)], Some(&long));
        assert_eq!(woken, Ok(1), "slept through it");
        engine.ready_fd(false);
        engine.turn(Wait::one()).unwrap();
        assert_eq!(engine.next_completion().unwrap().result, Ok(1));
    }
}

/// A policy may refuse to register anything, or only to be asked what there is: neither costs the ring, nor any of the ends that an event
/// fd tells (since Linux 6.10 it does so once, unless it is registered again).
#[test]
fn what_may_not_be_registered_is_done_without() {
    const EVENT_FD: u32 = 4;
    const NO_EVENT_FD: u32 = 5;
    const PROBE: u32 = 8;
    if ring().is_none() {
        return;
    }
    let each = [EVENT_FD, NO_EVENT_FD, PROBE].map(|what| filter::Which::Argument(1, what));
    for which in each.into_iter().chain([filter::Which::All]) {
        let filtered = move || {
            filter::forbid_some(&[(libc::SYS_io_uring_register, which)], Errno::EPERM.raw());
            let mut engine = Engine::new(&config(Choice::Uring)).expect("a ring without it");
            for _ in 0..3 {
                let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
                let file = File::from_fd(bell.try_clone().unwrap(), "an event fd").unwrap();
                engine
                    .submit(Request::read_stream(&file, engine.buffer(8).unwrap()))
                    .unwrap();
                engine.turn(Wait::No).unwrap();
                let ready = engine.ready_fd(true).expect("something to sleep on");
                let ready = ready.try_clone_to_owned().unwrap();
                engine.turn(Wait::No).unwrap();
                let ring = std::thread::spawn(move || rustix::io::write(&bell, &1_u64.to_ne_bytes()));
                let long = Timespec { tv_sec: 20, tv_nsec: 0 };
                let woken = poll(&mut [PollFd::new(&ready, PollFlags::IN)], Some(&long));
                assert_eq!(woken, Ok(1), "{which:?}: slept through it");
                ring.join().unwrap().unwrap();
                engine.ready_fd(false);
                engine.turn(Wait::one()).unwrap();
                assert_eq!(engine.next_completion().unwrap().result, Ok(8));
            }
        };
        std::thread::spawn(filtered).join().unwrap();
    }
}

type Told = Vec<(&'static str, Result<(), String>)>;

/// What a ring has, and what it lacks and why; then the lines found lacking until now.
fn told() -> (Told, Vec<&'static str>) {
    // A small one: the memory of a ring that has ended counts as locked for a while.
    let config = EngineOptions {
        register_arena: true,
        arena_bytes: 64 << 10,
        ..config(Choice::Uring)
    };
    let features = Engine::new(&config).expect("a ring").explain().features;
    Region::create(4096).expect("memory");
    (features, kernel::lacking().map(|line| line.name).collect())
}

/// A policy that refuses something is told as that: a newer kernel would not give it.
#[test]
fn what_is_refused_is_not_told_as_missing() {
    const NOEXEC_SEAL: u32 = 8;
    // A child of its own: what has been found lacking is its process's.
    if ring().is_none() || !is_on(" ", "what_is_refused_is_not_told_as_missing") {
        return;
    }
    let (before, lacking) = told();
    for (refused, costs) in [
        (4, &["late_event_fd", "defer_taskrun"][..]),
        (5, &["late_event_fd", "defer_taskrun"]),
        (8, &["truncate", "registered_lists"]),
        (19, &["bounded_workers"]),
        (20, &["registered_ring"]),
    ] {
        let filtered = || {
            let calls = [
                (libc::SYS_io_uring_register, filter::Which::Argument(1, refused)),
                (libc::SYS_memfd_create, filter::Which::Bits(1, NOEXEC_SEAL)),
            ];
            filter::forbid_some(&calls, Errno::EPERM.raw());
            told()
        };
        let (after, lacking_after) = std::thread::scope(|scope| scope.spawn(filtered).join().unwrap());
        assert_eq!(lacking_after, lacking, "{refused}");
        for ((name, had), (_, has)) in before.iter().zip(&after) {
            match (had, has) {
                // What this kernel lacks: without a way to ask, why is not known.
                (Err(_), _) => assert!(has.is_err(), "{refused}: {name}"),
                (Ok(()), Err(why)) => assert!(why.contains("EPERM"), "{refused}: {name}: {why}"),
                (Ok(()), Ok(())) => assert!(!costs.contains(name), "{refused}: {name}"),
            }
        }
    }
}

/// What is left of a datagram after a read is lost, so one call has all parts of the list.
#[test]
fn a_list_of_who_will_not_wait_is_one_datagram() {
    if !is_on("nowait_streams", "a_list_of_who_will_not_wait_is_one_datagram") {
        return;
    }
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    for choice in [Choice::Sync, Choice::Threads, Choice::Aio, Choice::Uring] {
        let Ok(mut engine) = Engine::new(&config(choice)) else {
            continue;
        };
        for kind in [SocketType::DGRAM, SocketType::SEQPACKET, SocketType::STREAM] {
            let (one, other) = socketpair(AddressFamily::UNIX, kind, SocketFlags::empty(), None).unwrap();
            let socket = File::from_fd(one, "a socket").unwrap();
            let list = |engine: &Engine, parts: &[&[u8]]| {
                let mut list = Vectored::default();
                // Neighbours in memory would be one part.
                let gaps: Vec<_> = parts.iter().map(|_| engine.buffer(4096).unwrap()).collect();
                for (part, gap) in parts.iter().zip(gaps) {
                    let mut bytes = engine.buffer(part.len()).unwrap();
                    bytes.copy_from_slice(part);
                    list.push(bytes.into()).unwrap();
                    drop(gap);
                }
                Memory::Many(list)
            };
            let impatient = |mut request: Request| {
                request.policy.patience = Patience::NoWait;
                request
            };
            let parts: [&[u8]; 3] = [b"one", b"and", b"other"];
            let sent = engine.run(impatient(Request::write_stream(&socket, list(&engine, &parts))));
            assert_eq!(sent.result, Ok(11), "{choice} {kind:?}");
            let mut whole = [0; 64];
            let got = rustix::io::read(&other, &mut whole).unwrap();
            assert_eq!(&whole[..got], b"oneandother", "{choice} {kind:?}");
            rustix::io::write(&other, b"the answer!").unwrap();
            let blanks = list(&engine, &[&[0; 3], &[0; 3], &[0; 10]]);
            let done = engine.run(impatient(Request::read_stream(&socket, blanks)));
            assert_eq!(done.result, Ok(11), "{choice} {kind:?}");
            let Memory::Many(mut parts) = done.memory else {
                panic!("a list comes back");
            };
            let bytes = parts.drain().flat_map(|part| part.into_buffer().unwrap().to_vec());
            assert_eq!(&bytes.collect::<Vec<_>>()[..11], b"the answer!", "{choice} {kind:?}");
            let empty = engine.run(impatient(Request::read_stream(
                &socket,
                list(&engine, &[&[0; 3], &[0; 3]]),
            )));
            assert_eq!(empty.result, Err(Error::System(Errno::EAGAIN)), "{choice} {kind:?}");
        }
    }
}

/// What a read of an empty file says that will not wait; `EOPNOTSUPP` where its file system does not know the word.
fn at_the_end(engine: &mut Engine, file: &File) -> Result<u32, Error> {
    let mut read = Request::read(file, 0, engine.buffer(4096).unwrap(), Policy::kernel());
    read.policy.patience = Patience::NoWait;
    let told = engine.run(read).result;
    assert!(
        matches!(told, Ok(0) | Err(Error::System(Errno::EOPNOTSUPP))),
        "{told:?}"
    );
    told
}

/// A read that will not wait and finds nothing says so itself; only Linux 5.9 and 5.10 have to be asked where the file ends.
#[test]
fn who_will_not_wait_costs_no_second_call() {
    // A child of its own: its filter is the end of whoever asks for a size.
    if !is_on(" ", "who_will_not_wait_costs_no_second_call") {
        return;
    }
    for choice in [Choice::Threads, Choice::Aio, Choice::Uring] {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let Ok(mut engine) = Engine::new(&config(choice)) else {
                    return;
                };
                let kept = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
                let file = File::open(kept.path(), &Open::read()).unwrap();
                let told = at_the_end(&mut engine, &file);
                if kernel::lacking().any(|line| line.name == "nowait_at_end") {
                    return println!("SKIPPED: this kernel has to be asked");
                }
                filter::kill_for(&[libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx]);
                assert_eq!(at_the_end(&mut engine, &file), told, "{choice}");
            });
        });
    }
}

/// And there it says the same.
#[test]
fn the_end_of_a_file_is_told_where_its_size_must_be_asked_for() {
    let test = "the_end_of_a_file_is_told_where_its_size_must_be_asked_for";
    if !is_on("nowait_at_end", test) {
        return;
    }
    for choice in [Choice::Threads, Choice::Aio, Choice::Uring] {
        let Ok(mut engine) = Engine::new(&config(choice)) else {
            continue;
        };
        let kept = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let file = File::open(kept.path(), &Open::read()).unwrap();
        let told = at_the_end(&mut engine, &file);
        let asked = kernel::lacking().any(|line| line.name == "nowait_at_end");
        assert_eq!(told.is_ok(), asked, "{choice}: {told:?}");
    }
}

/// What comes of a request that will not wait, where each read at `place` is told so: an error number, or 0 for no bytes.
fn where_reads_are_told(
    (said, place): (i32, u32),
    choice: Choice,
    request: impl FnOnce(&Engine) -> Request + Send,
) -> Option<(Result<u32, Error>, u32)> {
    let ran = || {
        // Before there are workers, who make the reads.
        filter::forbid_some(&[(libc::SYS_preadv2, filter::Which::Argument(3, place))], said);
        let mut engine = Engine::new(&config(choice)).ok()?;
        let mut request = request(&engine);
        request.policy.patience = Patience::NoWait;
        let done = engine.run(request);
        Some((done.result, done.bytes_done))
    };
    std::thread::scope(|scope| scope.spawn(ran).join().unwrap())
}

/// Linux 5.9 and 5.10 say 0 for what the page cache has not, and `EAGAIN` at the end: to reads of files and devices, and to transfers.
#[test]
fn only_the_end_of_a_file_ends_what_will_not_wait() {
    if !is_on("nowait_at_end", "only_the_end_of_a_file_ends_what_will_not_wait") {
        return;
    }
    const SIZE: u64 = 65_536;
    let mut kept = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    kept.write_all(&[7; SIZE as usize]).unwrap();
    kept.as_file().sync_all().unwrap();
    let regular = File::open(kept.path(), &Open::read()).unwrap();
    let device = LoopDevice::over(kept.path()).map(|device| (device.open(), device));
    if let Err(why) = &device {
        println!("SKIPPED: as_on_older_kernels::only_the_end_of_a_file_ends_what_will_not_wait: {why:?}");
    }
    let (end, before) = (SIZE as u32, SIZE as u32 - 4096);
    let eagain = Err(Error::System(Errno::EAGAIN));
    for choice in [Choice::Sync, Choice::Threads, Choice::Aio] {
        for (said, place, expected) in [
            (libc::EAGAIN, end, (Ok(8192), 8192)),
            (0, end, (Ok(8192), 8192)),
            (libc::EAGAIN, before, (eagain, 4096)),
            (0, before, (eagain, 4096)),
        ] {
            let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            let target = File::from_fd(ours.into(), "a socket").unwrap();
            let told = where_reads_are_told((said, place), choice, |engine| {
                let window = engine.buffer(4096).unwrap();
                Request::transfer(&regular, SIZE - 8192, 16_384, &target, window, Policy::kernel())
            });
            match told {
                Some((Err(Error::System(Errno::EOPNOTSUPP)), _)) => {
                    return println!("SKIPPED: the file system has no RWF_NOWAIT");
                }
                told => assert_eq!(told.unwrap_or(expected), expected, "{choice}: {said} at {place}"),
            }
        }
        for file in device.iter().map(|(file, _)| file).chain([&regular]) {
            for (said, place, expected) in [(0, end, (Ok(0), 0)), (0, before, (eagain, 0))] {
                let told = where_reads_are_told((said, place), choice, |engine| {
                    let buffer = engine.buffer(4096).unwrap();
                    Request::read(file, place.into(), buffer, Policy::kernel())
                });
                assert_eq!(told.unwrap_or(expected), expected, "{choice}: {file:?} at {place}");
            }
        }
    }
}

/// Before Linux 6.13 the kernel forgets the files of a ring only when every request on them has ended. Here none ends because the ring cannot be
/// entered any more, as none ends of a device that is stuck.
#[test]
fn a_ring_is_dropped_though_a_request_on_a_registered_file_never_ends() {
    let leave = || {
        let Some(mut engine) = ring() else { return };
        // The kernel tells who polls it when the machine gets another name.
        let name = std::fs::File::open("/proc/sys/kernel/hostname").unwrap();
        let file = File::from_fd(name.into(), "a name").unwrap();
        if !engine.attach(&file) {
            println!("SKIPPED: this ring registers no files");
        }
        let events = libc::POLLPRI as u32;
        let poll = Request::bare(Op::Poll { events }, Some(&file), Policy::kernel());
        engine.submit(poll).unwrap();
        assert_eq!(engine.turn(Wait::No), Ok(0));
        filter::forbid(&[libc::SYS_io_uring_enter], Errno::EPERM.raw());
        drop(engine);
    };
    let (told, hears) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        leave();
        told.send(())
    });
    assert_eq!(
        hears.recv_timeout(Duration::from_secs(20)),
        Ok(()),
        "it is still being dropped"
    );
}

/// Who sleeps outside is told that there is nothing to sleep on, or is woken.
#[test]
fn a_timer_wakes_who_sleeps_outside_or_there_is_no_descriptor() {
    let asked = |choice| {
        filter::forbid(&[libc::SYS_timerfd_create], Errno::EMFILE.raw());
        let Ok(mut engine) = Engine::new(&config(choice)) else {
            return;
        };
        let at = engine.now().after(Duration::from_millis(100));
        let timer = Request::bare(Op::Timer { at }, None, Policy::kernel());
        engine.submit(timer).unwrap();
        let ready = engine.ready_fd(true).map(|fd| fd.try_clone_to_owned().unwrap());
        engine.turn(Wait::No).unwrap();
        if let Some(ready) = ready
            && engine.completed() == 0
        {
            let long = Timespec { tv_sec: 5, tv_nsec: 0 };
            let woken = poll(&mut [PollFd::new(&ready, PollFlags::IN)], Some(&long));
            assert_eq!(woken, Ok(1), "{choice}: slept through it");
        }
    };
    for choice in [Choice::Threads, Choice::Aio, Choice::Uring] {
        std::thread::scope(|scope| {
            scope.spawn(|| asked(choice));
        });
    }
}

/// A deadline may be so far away that no milliseconds of 31 bits hold it; who sleeps for it needs no call that is younger than Linux 5.4.
#[test]
fn a_sleep_of_centuries_needs_no_young_call() {
    for choice in [Choice::Threads, Choice::Aio, Choice::Uring] {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                filter::forbid(&[libc::SYS_epoll_pwait2], Errno::ENOSYS.raw());
                let Ok(mut engine) = Engine::new(&config(choice)) else {
                    return;
                };
                let (reader, writer) = std::io::pipe().unwrap();
                let pipe = File::from_fd(reader.into(), "a pipe").unwrap();
                let mut read = Request::read_stream(&pipe, engine.buffer(16).unwrap());
                read.policy.deadline = Some(Time(u64::MAX));
                engine.submit(read).unwrap();
                let late = std::thread::spawn(move || (&writer).write_all(b"x"));
                let deadline = Some(Time(u64::MAX));
                let wait = Wait::Until {
                    count: 1,
                    min_wait: Duration::ZERO,
                    deadline,
                };
                while engine.completed() == 0 {
                    engine.turn(wait).unwrap_or_else(|error| panic!("{choice}: {error}"));
                }
                late.join().unwrap().unwrap();
                assert_eq!(engine.next_completion().unwrap().result, Ok(1), "{choice}");
            });
        });
    }
}

/// A variable that names nothing would leave a test without what it is about.
#[test]
fn a_word_that_is_no_line_starts_no_engine() {
    if !is_on("trunkate", "a_word_that_is_no_line_starts_no_engine") {
        return;
    }
    for choice in Choice::ALL {
        let error = Engine::new(&config(choice)).err().expect("refused");
        assert_eq!(error.errno, Errno::EINVAL, "{error}");
        assert!(error.need.as_ref().unwrap().contains("`trunkate`"), "{error}");
        assert!(error.cure.is_some(), "{error}");
    }
}

/// FUSE, NFS and others know no read that does not wait; where there is no cachestat(2) either, nothing tells what the page cache has.
#[test]
fn a_probe_finds_what_was_asked_for_where_nothing_tells() {
    if !is_on("cachestat", "a_probe_finds_what_was_asked_for_where_nothing_tells") {
        return;
    }
    let kept = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    kept.as_file().set_len(1 << 16).unwrap();
    let file = File::open(kept.path(), &Open::read()).unwrap();
    if !file.gives(Caching::Direct) {
        return println!("SKIPPED: no direct I/O here");
    }
    let told = file.probe(Caching::Direct);
    let quiet = filter::Which::Bits(5, libc::RWF_NOWAIT as u32);
    filter::forbid_some(&[(libc::SYS_preadv2, quiet)], Errno::EOPNOTSUPP.raw());
    assert_eq!(file.probe(Caching::Direct), told);
}

/// `baio doctor` says what a newer kernel would give, without a request that would have to find it out.
#[test]
fn what_no_engine_has_to_try_is_tried_for_who_asks() {
    let lines = "nowait_at_end, nowait_streams, cachestat";
    if !is_on(lines, "what_no_engine_has_to_try_is_tried_for_who_asks") {
        return;
    }
    baio_engine::try_the_kernel();
    let lacking: Vec<_> = kernel::lacking().map(|line| line.name).collect();
    assert_eq!(lacking.join(", "), lines);
}

/// The page has the table as it is.
#[test]
fn the_page_tells_every_line() {
    let page = include_str!("../../../../docs/inside/kernels.md");
    let begins = "| name | since Linux | what it is | found out by | instead |\n|---|---|---|---|---|\n";
    let lines = kernel::TABLE.iter().map(|line| {
        let kernel::Line {
            name,
            since,
            what,
            found,
            instead,
            ..
        } = line;
        format!("| `{name}` | {since} | {what} | {found} | {instead} |\n")
    });
    let table = format!("{begins}{}\n", lines.collect::<String>());
    assert!(
        page.contains(&table),
        "docs/inside/kernels.md lacks this table:\n{table}"
    );
}

/// The kernels that are tested, how new they are as the table counts, and what of older lines each lacks all the same: the stable series of
/// 5.10 has taken over the io_uring of 5.15, and nothing else of it.
const TESTED: &[(&str, &str, &[&str])] = &[
    ("5.10", "5.15", &[]),
    ("6.1", "6.1", &[]),
    ("6.12", "6.12", &[]),
    ("6.18", "6.18", &[]),
];

/// And what each kernel lacks is what the table says.
#[test]
fn the_pages_tell_what_each_tested_kernel_lacks() {
    let page = include_str!("../../../../docs/inside/kernels.md");
    let version = |text: &str| {
        let (major, minor) = text.split_once('.').expect("a version");
        (major.parse::<u32>().unwrap(), minor.parse::<u32>().unwrap())
    };
    for (kernel, as_new_as, besides) in TESTED {
        let lacks = |line: &&kernel::Line| version(line.since) > version(as_new_as) || besides.contains(&line.name);
        let names: Vec<_> = kernel::TABLE
            .iter()
            .filter(lacks)
            .map(|line| format!("`{}`", line.name))
            .collect();
        let names = if names.is_empty() {
            "nothing".to_owned()
        } else {
            names.join(", ")
        };
        let is_its = |row: &&str| row.starts_with(&format!("| {kernel}")) && row.matches('|').count() == 4;
        let row = page
            .lines()
            .find(is_its)
            .unwrap_or_else(|| panic!("no row of {kernel}"));
        assert!(
            row.ends_with(&format!(" | {names} |")),
            "{kernel} lacks {names}, and the page says:\n{row}"
        );
    }
    let (last, first) = TESTED.split_last().unwrap();
    let first: Vec<_> = first.iter().map(|(kernel, ..)| *kernel).collect();
    let told = format!("It is tested on Linux {} and {}", first.join(", "), last.0);
    assert!(
        include_str!("../../../../README.md").contains(&told),
        "README.md lacks: {told}"
    );
}

/// The blocks of a log follow from it: one that was made where the kernel tells opens where it does not.
#[test]
fn a_file_has_the_limits_of_its_device_where_the_kernel_does_not_tell() {
    let test = "a_file_has_the_limits_of_its_device_where_the_kernel_does_not_tell";
    if !is_on("direct_limits", test) {
        return;
    }
    let temporary = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let flags = rustix::fs::StatxFlags::DIOALIGN;
    let told = rustix::fs::statx(&temporary, c"", rustix::fs::AtFlags::EMPTY_PATH, flags).unwrap();
    let kind = rustix::fs::fstatfs(&temporary).unwrap().f_type;
    if !matches!(kind, 0xef53 | 0x5846_5342) || told.stx_dio_offset_align == 0 {
        println!("SKIPPED: {test}: needs ext4 or XFS below, and a kernel that tells");
        return;
    }
    let file = File::from_fd(temporary.into(), "a file").unwrap();
    assert_eq!(file.direct_limits().offset, told.stx_dio_offset_align);
}
