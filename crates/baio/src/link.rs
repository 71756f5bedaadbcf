//! How a caller reaches a core. Whatever the link, it has the same methods; only the auto traits differ.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::task::{Poll, Waker};
use std::time::Duration;

use baio_broker::control::{Call, Reply};
use baio_engine::{Buffer, Stats, Time, Wait};
use baio_storage::cache::CacheStats;
use baio_storage::{
    Access, Account, Answer, CheckReport, Command, CreateOptions, DefragReport, Fault, HeldFreeze, Identity, Limits,
    OperationName, Outcome, OwnershipChange, ResizeOptions, Result, SegmentInfo, SegmentRequest, Ticket, VolumeView,
};

use crate::metrics::Metrics;
use crate::operation::Operation;
use crate::pool::{self, Pool};
use crate::segment::Segment;
use crate::transport::{Notice, Transport};

/// A volume that is frozen until this is dropped ([`Link::freeze`]).
#[derive(Debug)]
#[must_use = "the volume thaws when it is dropped"]
pub struct FrozenVolume(#[allow(dead_code, reason = "its drop thaws")] HeldFreeze);

/// A way to the disk: files, or a volume with its segments. [`Local`](crate::Local) works in the caller's thread,
/// [`Remote`](crate::Remote) on a thread of its own, or through a broker. Write `fn f<L: Link>(link: &L)`, and it takes both.
///
/// Whatever takes a while gives an [`Operation`]: await it, or call `.wait()`. Files are opened by [`File`](crate::File).
///
/// ```
/// use baio::{Access, CreateOptions, FormatOptions, Link, Local, Remote};
///
/// /// Makes a segment if there is none of that name, and says how many there are.
/// fn ensure<L: Link>(volume: &L, name: &str) -> baio::Result<usize> {
///     match volume.create_segment(name, &CreateOptions::of_size(1 << 20)).wait() {
///         Err(error) if error.code() != "EEXIST" => return Err(error),
///         _ => Ok(volume.list().wait()?.len()),
///     }
/// }
///
/// # fn main() -> baio::Result<()> {
/// # let path = std::env::temp_dir().join(format!("baio-link-doc-{}", std::process::id()));
/// baio::format(&path, &FormatOptions::of_size(16 << 20))?;
/// let volume = Local::open(&path)?;
/// assert_eq!(ensure(&volume, "journal")?, 1);
/// volume.close()?;
/// let volume = Remote::open(&path)?;
/// assert_eq!(ensure(&volume, "journal")?, 1);
/// # volume.close()?;
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(()) }
/// ```
///
/// Below the futures are tickets, as with io_uring: [`Opened::submit`](crate::Opened::submit), [`Link::turn`], [`Link::next_outcome`]. The
/// [`guide`](crate::guide#many-at-once) has an example.
pub trait Link: Transport {
    /// Makes a segment of the caller's own; ends when it is durable.
    ///
    /// It fails when the name is taken or not valid, when there is no space, or with the system's error.
    fn create_segment(&self, name: &str, options: &CreateOptions) -> Operation<Self, SegmentInfo> {
        self.create_segment_of(self.identity().uid, name, options)
    }

    /// Makes a segment for another owner; only uid 0 may.
    fn create_segment_of(&self, owner_uid: u32, name: &str, options: &CreateOptions) -> Operation<Self, SegmentInfo> {
        let command = Command::Create {
            owner_uid,
            name: name.to_owned(),
            options: *options,
            operation: OperationName::NONE,
        };
        Operation::new(self, command, segment_of)
    }

    /// Opens a segment of the caller's own.
    fn open_segment(&self, name: &str, access: Access) -> Operation<Self, Segment<Self>> {
        self.open_segment_of(self.identity().uid, name, access)
    }

    /// Opens somebody's segment, if its mode allows it.
    fn open_segment_of(&self, owner_uid: u32, name: &str, access: Access) -> Operation<Self, Segment<Self>> {
        let command = Command::Open {
            owner_uid,
            name: name.to_owned(),
            access,
        };
        Operation::new(self, command, |link, reply| match reply {
            Reply::Answer(Answer::Opened { handle, info, .. }) => {
                let segment = Segment::new(link, handle, info);
                link.tell_link(Notice::Named(handle, segment.name().to_owned()));
                Some(segment)
            }
            _ => None,
        })
    }

    /// Deletes a segment of the caller's own, when the requests under way on it have ended.
    fn delete_segment(&self, name: &str) -> Operation<Self, ()> {
        let command = Command::Delete {
            owner_uid: self.identity().uid,
            name: name.to_owned(),
            operation: OperationName::NONE,
        };
        Operation::new(self, command, |link, reply| segment_of(link, reply).map(drop))
    }

    /// Deletes somebody's segment, and tells what it was; only uid 0 may if it is another's.
    fn delete_segment_of(&self, owner_uid: u32, name: &str) -> Operation<Self, SegmentInfo> {
        let command = Command::Delete {
            owner_uid,
            name: name.to_owned(),
            operation: OperationName::NONE,
        };
        Operation::new(self, command, segment_of)
    }

    /// Changes the size of a segment of the caller's own; open handles see it at once. What it gains reads as zero. It is moved
    /// where neither its reserve nor free blocks behind it are enough, and is served meanwhile.
    fn resize_segment(&self, name: &str, options: &ResizeOptions) -> Operation<Self, SegmentInfo> {
        self.resize_segment_of(self.identity().uid, name, options)
    }

    /// The same with somebody's segment; only uid 0 may if it is another's.
    fn resize_segment_of(&self, owner_uid: u32, name: &str, options: &ResizeOptions) -> Operation<Self, SegmentInfo> {
        let command = Command::Resize {
            owner_uid,
            name: name.to_owned(),
            options: *options,
            operation: OperationName::NONE,
        };
        Operation::new(self, command, segment_of)
    }

    /// Gives a segment of the caller's own another name; open handles stay valid.
    fn rename_segment(&self, old: &str, new: &str) -> Operation<Self, SegmentInfo> {
        self.rename_segment_of(self.identity().uid, old, new)
    }

    /// The same with somebody's segment; only uid 0 may if it is another's.
    fn rename_segment_of(&self, owner_uid: u32, old: &str, new: &str) -> Operation<Self, SegmentInfo> {
        let command = Command::Rename {
            owner_uid,
            old: old.to_owned(),
            new: new.to_owned(),
            operation: OperationName::NONE,
        };
        Operation::new(self, command, segment_of)
    }

    /// Changes the mode of a segment of the caller's own, or its group to one that the caller is in. Open handles keep the rights that they
    /// have: rights are checked when something is opened.
    fn change_ownership(&self, name: &str, change: OwnershipChange) -> Operation<Self, SegmentInfo> {
        self.change_ownership_of(self.identity().uid, name, change)
    }

    /// The same with somebody's segment; only uid 0 may if it is another's, and only uid 0 may give one to another owner. The new owner's
    /// quota is charged for it, and he must have no segment of that name.
    fn change_ownership_of(&self, owner_uid: u32, name: &str, change: OwnershipChange) -> Operation<Self, SegmentInfo> {
        let command = Command::ChangeOwnership {
            owner_uid,
            name: name.to_owned(),
            change,
            operation: OperationName::NONE,
        };
        Operation::new(self, command, segment_of)
    }

    /// The segments that the caller may see.
    fn list(&self) -> Operation<Self, Vec<SegmentInfo>> {
        Operation::new(self, Command::List, |_, reply| match reply {
            Reply::Answer(Answer::Segments { infos, .. }) => Some(infos),
            _ => None,
        })
    }

    /// The volume as it is now, as far as this user may see it.
    fn info(&self) -> Operation<Self, VolumeView> {
        Operation::new(self, Command::Info, |_, reply| match reply {
            Reply::Answer(Answer::Volume(view)) => Some(*view),
            _ => None,
        })
    }

    /// What an owner holds and may hold, in blocks and segments. Owners see their own.
    fn quota(&self, uid: u32) -> Operation<Self, Account> {
        Operation::new(self, Command::Quota { uid }, account_of)
    }

    /// Sets what an owner may hold; uid 0 may, and the user that the volume's file belongs to.
    fn set_quota(&self, uid: u32, limits: Limits) -> Operation<Self, Account> {
        Operation::new(self, Command::SetQuota { uid, limits }, account_of)
    }

    /// For a log of your own: says that it is durable up to and including this LSN. From now on pages may be written whose last change
    /// ([`Pin::change`](crate::Pin::change)) has this LSN or an earlier one. It never goes back.
    fn set_durable_lsn(&self, lsn: u64) -> Operation<Self, ()> {
        Operation::new(self, Call::DurableLsn(lsn), |_, reply| reply.is_done().then_some(()))
    }

    /// Runs this on the core's thread, where it reads and changes pages of the buffer pool in place. It needs no latch, because nothing else
    /// happens there meanwhile. So it must not block. Over [`Remote`](crate::Remote) all changes in one call cost one hop. If it panics, so does
    /// the task that awaits it.
    fn with_pool<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut Pool<'_>) -> T + Send + Sync + 'static,
    ) -> Operation<Self, T> {
        pool::run(self, run)
    }

    /// Moves the segments that the caller may change towards the beginning of the volume, so that the free space is one run. Requests go on
    /// meanwhile.
    fn defrag(&self) -> Operation<Self, DefragReport> {
        Operation::new(self, Command::Defrag, |_, reply| match reply {
            Reply::Answer(Answer::Defragged(report)) => Some(*report),
            _ => None,
        })
    }

    /// Reads every copy of all metadata and compares them. Requests go on meanwhile; changes of metadata wait. It repairs nothing. Only uid 0
    /// and the owner of the volume's file may.
    fn check(&self) -> Operation<Self, CheckReport> {
        Operation::new(self, Command::Check, |_, reply| match reply {
            Reply::Answer(Answer::Checked(report)) => Some(*report),
            _ => None,
        })
    }

    /// Freezes the volume until the value is dropped. A copy that is made of its file meanwhile is of one moment, and has everything that was
    /// completed. Writes wait meanwhile; reads do not. Only uid 0 and the owner of the volume's file may.
    fn freeze(&self) -> Operation<Self, FrozenVolume> {
        Operation::new(self, Command::Freeze, |_, reply| match reply {
            Reply::Frozen(held) => Some(FrozenVolume(held)),
            _ => None,
        })
    }

    /// All counters at one moment.
    fn metrics(&self) -> Operation<Self, Metrics> {
        Operation::new(self, Call::Counters, |link: &Self, reply| match reply {
            Reply::Counters(counters, _) => {
                let mut metrics = Metrics::from(*counters);
                (metrics.link.bounced_requests, metrics.link.bounced_bytes) = link.bounced();
                Some(metrics)
            }
            _ => None,
        })
    }

    /// Counters of the engine.
    fn stats(&self) -> Operation<Self, Stats> {
        Operation::new(self, Call::Counters, |_, reply| match reply {
            Reply::Counters(counters, _) => Some(counters.engine),
            _ => None,
        })
    }

    /// Counters of the page cache, if there is one.
    fn cache_stats(&self) -> Operation<Self, Option<CacheStats>> {
        Operation::new(self, Call::Counters, |_, reply| match reply {
            Reply::Counters(counters, _) => Some(counters.cache),
            _ => None,
        })
    }

    /// The backend that was chosen.
    fn backend(&self) -> Operation<Self, &'static str> {
        Operation::new(self, Call::Counters, |_, reply| match reply {
            Reply::Counters(_, backend) => Some(backend),
            _ => None,
        })
    }

    /// A buffer of `len` bytes from this link's arena: requests on it move without a copy.
    ///
    /// # Errors
    /// `NoMemory` when the arena is used up.
    fn buffer(&self, len: usize) -> Result<Buffer> {
        self.take_buffer(len)
    }

    /// Runs a future to its end in this thread, driving the link meanwhile.
    ///
    /// # Errors
    /// The link cannot be driven: its backend is broken, it was closed, or its service has ended.
    fn block_on<F: Future>(&self, future: F) -> Result<F::Output> {
        self.run_on_link(future)
    }

    /// Closes the link: ends all requests, writes what the page cache has not written yet, and marks the volume as closed. Blocks until then.
    /// Segments, files and futures of the link fail with `Stale` from now on. A link that is dropped without this loses cached writes that
    /// were not synced.
    ///
    /// # Errors
    /// What the system said; the next open then heals the volume.
    fn close(self) -> Result<()> {
        self.end_link()
    }

    /// A descriptor for your own event loop (epoll(7), GLib, libuv, asyncio): it is readable while there is something to do for the link. Each
    /// call gives a copy of the same one.
    ///
    /// Start requests by ticket. Before the loop sleeps, turn the link without waiting ([`Wait::No`]): that sends them, and brings the
    /// descriptor up to date. When it is readable, turn, and take outcomes until there is none ([`Link::next_outcome`]). A completion between
    /// the turn and the sleep is not lost. The descriptor is level-triggered; `EPOLLET` works too. Neither read nor write it.
    ///
    /// On a thread that has a [`Local`](crate::Local), `epoll_wait` may end with `EINTR` without a signal, since the kernel does the ring's work there:
    /// sleep again. An adapter (tokio's, compio's) may drive the same link beside the loop: each turn that does not wait arms the descriptor anew.
    ///
    /// Over [`Remote`](crate::Remote) a thread of the library collects completions meanwhile. The descriptor is readable while there is an outcome that
    /// nobody awaits, and once the link has ended: the turn says why. On [`Local`](crate::Local) it may be readable with nothing to take.
    ///
    /// ```
    /// use baio::{File, Link, Remote, SegmentOp, Wait};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let path = std::env::temp_dir().join(format!("baio-event-doc-{}", std::process::id()));
    /// let link = Remote::new()?;
    /// let file = File::options().write().create().open(&link, &path).wait()?;
    /// let event = link.event_fd()?;
    /// let mut buffer = link.buffer(4096)?;
    /// buffer.fill(7);
    /// let request = file.request(SegmentOp::Write { offset: 0 }, buffer);
    /// file.submit(request).map_err(|_| "every slot is taken")?;
    /// link.turn(Wait::No)?;
    /// rustix::event::poll(&mut [rustix::event::PollFd::new(&event, rustix::event::PollFlags::IN)], None)?;
    /// let outcome = link.next_outcome().ok_or("readable, and nothing there")?;
    /// assert_eq!(outcome.result?, 4096);
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// No thread or descriptor can be had; the link belongs to the parent of this forked process, or was closed.
    fn event_fd(&self) -> Result<OwnedFd> {
        self.link_event()
    }

    /// Free buffer memory, in bytes.
    fn arena_free_bytes(&self) -> usize {
        self.link_arena().0.map_or(0, |arena| arena.free_bytes())
    }

    /// How many requests were copied through a buffer of the arena, and their bytes: because their memory was not aligned
    /// ([`Request::bounced`](crate::Request::bounced)), or because a broker cannot see it.
    fn bounced(&self) -> (u64, u64) {
        self.link_facts().bounces.counts()
    }

    /// The time of the link's clock, which deadlines go by.
    fn now(&self) -> Time {
        self.link_clock()
    }

    /// The moment `duration` from now, for a request's deadline. A request that is not done by then completes as
    /// indeterminate: it may or may not take effect.
    fn deadline(&self, duration: Duration) -> Time {
        self.now().after(duration)
    }

    // The lower shapes: tickets.

    /// Queues a request. It is submitted when the loop is about to sleep, when somebody drives the link, or when many are
    /// queued.
    ///
    /// # Errors
    /// The request itself, when every slot is taken or the link is closed.
    fn start(&self, request: SegmentRequest) -> std::result::Result<Ticket, SegmentRequest> {
        self.submit(request)
    }

    /// Takes the outcome of a request if it has ended; else keeps the waker for then. `None` for a ticket that is not valid
    /// any more. It does not collect completions itself.
    fn poll(&self, ticket: Ticket, waker: &Waker) -> Poll<Option<Outcome>> {
        self.poll_request(ticket, waker)
    }

    /// Waits for the end of a request, and drives the link meanwhile. `None` for a ticket that is not valid any more.
    ///
    /// # Errors
    /// The backend itself is broken.
    fn wait(&self, ticket: Ticket) -> Result<Option<Outcome>> {
        self.wait_for_ticket(ticket)
    }

    /// Asks that a request end early, if that is possible. It still has an outcome, once.
    fn cancel(&self, ticket: Ticket) {
        self.tell_link(Notice::Cancel(ticket));
    }

    /// Gives up the outcome of a request. The request keeps its memory until the kernel no longer uses it.
    fn abandon(&self, ticket: Ticket) {
        self.tell_link(Notice::Abandon(ticket));
    }

    /// Submits what is queued, sleeps as long as `wait` allows, and collects completions. Returns how many requests ended meanwhile.
    /// Over [`Remote`](crate::Remote) outcomes that were not taken yet count towards `wait`. With nothing in flight it does
    /// not sleep, and a count of 0 sleeps until anything happens.
    ///
    /// # Errors
    /// The backend itself is broken, the link is closed, or the service has ended and nothing is left to be taken.
    fn turn(&self, wait: Wait) -> Result<usize> {
        self.turn_link(wait)
    }

    /// Takes the next outcome of a request that was started by ticket and that nobody polls for, in the order of completion. It does not
    /// collect completions itself. Over [`Remote`](crate::Remote) an outcome that was not taken keeps its slot, and an [`Operation`] needs one
    /// too: it waits while outcomes hold all of them.
    #[must_use]
    fn next_outcome(&self) -> Option<Outcome> {
        self.next_ended()
    }

    /// How many requests have not ended, or were not collected yet.
    fn in_flight(&self) -> usize {
        self.link_state().in_flight
    }

    /// Why the link takes no requests any more; `None` while it does.
    fn refusal(&self) -> Option<Fault> {
        self.link_state().refusal
    }

    /// Its name in messages: the path of the volume, for example.
    fn name(&self) -> String {
        self.link_facts().name.clone()
    }

    /// The identity that access is checked for.
    fn identity(&self) -> Identity {
        self.link_facts().identity
    }
}

impl<T: Transport> Link for T {}

/// A segment, where one was asked for.
fn segment_of<L: Transport>(_: &L, reply: Reply) -> Option<SegmentInfo> {
    match reply {
        Reply::Answer(Answer::Segment { info }) => Some(info),
        _ => None,
    }
}

fn account_of<L: Transport>(_: &L, reply: Reply) -> Option<Account> {
    match reply {
        Reply::Answer(Answer::Account(account)) => Some(account),
        _ => None,
    }
}
