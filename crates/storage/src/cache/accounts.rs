//! Whose dirty pages they are: no owner takes all the room of the others.
//!
//! Each object belongs to an account: that of its owner, or the one of all objects that name none. The rule:
//!
//! - While only one account has dirty pages, it may use the whole dirty limit. (A page counts as dirty here from its change until a write of
//!   it has ended; pages whose write failed, that wait for a log which will not go on, or for a flush only, do not count against accounts.)
//! - When another account has dirty pages too, or waits for room, each may have at most half of the limit. Pages that an account has above
//!   its half from before may stay until they are written, and do not count against the others. So the second account has room at once, even
//!   if the device of the first stands still. All dirty pages together may then be half more than the limit, but never so many that no
//!   clean page is left (`unsafe_max`).
//! - Waiting accounts get room in turn, and within an account the first request does. An account that may have no more is passed over,
//!   and a new request waits only behind those that could go on.
//! - The writes of the cleaner and of syncs share their depth in the same way. But an account above its half may stay there, because it takes
//!   nothing from others: an account with fewer than half of the depth in flight begins more, whatever the others have. So a device
//!   that stands still under one owner's pages does not keep the others' pages from being written. The cleaner goes from account to account.
//!
//! Why half, and not a share for each account? Few owners write at one moment. A limit that moved with each of them would make writers wait for
//! pages that were allowed when they were changed. A share below half would keep room free for nobody; above it, two owners could
//! not have the same.

use std::collections::{BTreeMap, VecDeque};

use super::Cache;
use super::frames::FrameState;
use super::object::ObjectId;
use super::rounds::Round;
use super::wait::{Links, List};

/// The account of all objects that name no owner.
const NOBODYS: u32 = 0;

#[derive(Debug, Default)]
struct Account {
    /// None for that of nobody.
    owner: Option<u32>,
    objects: u32,
    /// Its pages that were changed, and of which no write has ended.
    dirty: u32,
    /// Its requests that wait for room.
    waiters: List,
    /// Its writes on their way, of the cleaner and of syncs.
    writes: u32,
    /// Its objects that may have dirty pages, that which the cleaner is at first.
    round: Round,
}

impl Account {
    fn stands(&self) -> bool {
        self.dirty > 0 || !self.waiters.is_empty()
    }
}

/// All accounts of a cache.
#[derive(Debug)]
pub(super) struct Accounts {
    all: Vec<Account>,
    free: Vec<u32>,
    by_owner: BTreeMap<u32, u32>,
    /// Pages that may be dirty, and those of one account beside others.
    dirty_max: u32,
    half: u32,
    /// The dirty pages of all.
    dirty: u32,
    /// Accounts that have dirty pages or wait for room.
    standing: u32,
    /// What accounts have above their half, together.
    above: u32,
    /// Accounts that wait for room, in their turn.
    waiting: VecDeque<u32>,
    /// Writes on their way of one account that count against the others' depth; what accounts have above that, together.
    half_depth: u32,
    writes_above: u32,
    /// Accounts that have objects to be cleaned, in their turn.
    cleaning: VecDeque<u32>,
}

impl Accounts {
    pub(super) fn new(dirty_max: u32, depth: u32) -> Accounts {
        Accounts {
            all: vec![Account::default()],
            free: Vec::new(),
            by_owner: BTreeMap::new(),
            dirty_max,
            half: (dirty_max / 2).max(1),
            dirty: 0,
            standing: 0,
            above: 0,
            waiting: VecDeque::new(),
            half_depth: (depth / 2).max(1),
            writes_above: 0,
            cleaning: VecDeque::new(),
        }
    }

    /// The account of this owner has an object more.
    fn join(&mut self, owner: u32) -> u32 {
        let (all, free) = (&mut self.all, &mut self.free);
        let at = *self.by_owner.entry(owner).or_insert_with(|| {
            free.pop().unwrap_or_else(|| {
                all.push(Account::default());
                all.len() as u32 - 1
            })
        });
        let account = &mut self.all[at as usize];
        account.owner = Some(owner);
        account.objects += 1;
        at
    }

    /// An object has gone, and all its pages.
    pub(super) fn leave(&mut self, at: u32) {
        let account = &mut self.all[at as usize];
        let Some(owner) = account.owner else { return };
        account.objects -= 1;
        if account.objects == 0 {
            debug_assert!(!account.stands(), "an account without objects has dirty pages");
            account.owner = None;
            self.by_owner.remove(&owner);
            self.free.push(at);
        }
    }

    /// A page of this account goes from one state to another.
    pub(super) fn count(&mut self, at: u32, before: FrameState, now: FrameState) {
        let account = &mut self.all[at as usize];
        match (is_dirty(before), is_dirty(now)) {
            (false, true) => {
                self.standing += u32::from(!account.stands());
                account.dirty += 1;
                self.dirty += 1;
                self.above += u32::from(account.dirty > self.half);
            }
            (true, false) => {
                self.above -= u32::from(account.dirty > self.half);
                account.dirty -= 1;
                self.dirty -= 1;
                self.standing -= u32::from(!account.stands());
            }
            _ => {}
        }
    }

    /// The dirty pages of all accounts.
    pub(super) fn dirty(&self) -> u32 {
        self.dirty
    }

    /// May so many more pages of this account become dirty?
    pub(super) fn has_room(&self, at: u32, pages: u32) -> bool {
        let account = &self.all[at as usize];
        if account.dirty + pages <= self.half {
            return self.dirty - self.above + pages <= self.dirty_max;
        }
        let is_alone = self.standing == u32::from(account.stands());
        is_alone && self.dirty + pages <= self.dirty_max
    }

    /// A write of the cleaner or of a sync goes off.
    pub(super) fn write_begins(&mut self, at: u32) {
        let writes = &mut self.all[at as usize].writes;
        *writes += 1;
        self.writes_above += u32::from(*writes > self.half_depth);
    }

    /// And has ended.
    pub(super) fn write_ends(&mut self, at: u32) {
        let writes = &mut self.all[at as usize].writes;
        self.writes_above -= u32::from(*writes > self.half_depth);
        *writes -= 1;
    }

    /// Is there an account that has taken the depth of another one?
    pub(super) fn is_depth_taken(&self) -> bool {
        self.writes_above > 0 && self.standing > 1
    }

    /// May this account begin a write though the depth is taken, if so many are on their way?
    fn has_own_depth(&self, at: u32, under_way: u32, depth: u32) -> bool {
        self.all[at as usize].writes < self.half_depth && under_way - self.writes_above < depth
    }

    /// An object of this account may have dirty pages.
    pub(super) fn must_be_cleaned(&mut self, at: u32, object: u32) {
        let round = &mut self.all[at as usize].round;
        if round.is_empty() && !self.cleaning.contains(&at) {
            self.cleaning.push_back(at);
        }
        round.push_back(object);
    }

    /// How many accounts have objects to be cleaned.
    pub(super) fn cleaning(&self) -> usize {
        self.cleaning.len()
    }

    /// Whose turn it is; the next time it is another's.
    pub(super) fn next_cleaning(&mut self) -> Option<u32> {
        let at = self.cleaning.pop_front()?;
        self.cleaning.push_back(at);
        Some(at)
    }

    /// The objects of an account that take turns.
    pub(super) fn round_of(&mut self, at: u32) -> &mut Round {
        &mut self.all[at as usize].round
    }

    /// Nothing is left to be cleaned of this account.
    pub(super) fn is_cleaned(&mut self, at: u32) {
        self.cleaning.retain(|&cleaning| cleaning != at);
    }

    pub(super) fn nobody_waits(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The accounts that wait for room, in their turn.
    pub(super) fn waiting(&self) -> impl Iterator<Item = u32> + '_ {
        self.waiting.iter().copied()
    }

    /// The first request of this account that waits.
    pub(super) fn first_of(&self, at: u32) -> Option<u32> {
        self.all[at as usize].waiters.first()
    }

    /// Of the account whose turn it is.
    pub(super) fn first(&self) -> Option<u32> {
        self.waiting.front().and_then(|&at| self.first_of(at))
    }

    /// It had its turn.
    pub(super) fn had_turn(&mut self, at: u32) {
        if let Some(nth) = self.waiting.iter().position(|&waiting| waiting == at) {
            self.waiting.remove(nth);
            self.waiting.push_back(at);
        }
    }

    /// Changes the list of those who wait of an account.
    pub(super) fn change_waiters(&mut self, at: u32, links: &mut Links, change: impl FnOnce(&mut Links, &mut List)) {
        let account = &mut self.all[at as usize];
        let (stood, waited) = (account.stands(), !account.waiters.is_empty());
        change(links, &mut account.waiters);
        let (stands, waits) = (account.stands(), !account.waiters.is_empty());
        self.standing = self.standing + u32::from(stands) - u32::from(stood);
        match (waited, waits) {
            (false, true) => self.waiting.push_back(at),
            (true, false) => self.waiting.retain(|&waiting| waiting != at),
            _ => {}
        }
    }
}

/// Does it count against its account? What failed does not: it may stay for as long as a device is broken.
fn is_dirty(state: FrameState) -> bool {
    matches!(state, FrameState::Dirty | FrameState::Gated | FrameState::WriteBack)
}

impl Cache {
    /// An object as by [`Cache::add`], whose dirty pages are this owner's: beside those of others they take half of the room at most. All
    /// objects that were added without an owner are like those of one more.
    pub fn add_of(&mut self, owner: u32, size_bytes: u64, readahead_bytes_max: usize) -> ObjectId {
        let id = self.add(size_bytes, readahead_bytes_max);
        self.objects[id.slot as usize].account = self.accounts.join(owner);
        id
    }

    /// Nothing is left of this object: its account has one less.
    pub(super) fn leave_account(&mut self, slot: u32) {
        let account = std::mem::replace(&mut self.objects[slot as usize].account, NOBODYS);
        self.accounts.leave(account);
    }

    /// May the cleaner or a sync begin a write of this account's pages?
    pub(super) fn has_depth(&self, account: u32) -> bool {
        let (under_way, depth) = (self.flights.live_background, self.config.cleaner_depth.max(1));
        self.filling_depth || self.accounts.has_own_depth(account, under_way, depth)
    }

    /// May a page of this object become dirty before those who wait for room? If none of them waits of its own account, and the others
    /// could have none.
    pub(super) fn is_next_for_room(&self, object: u32) -> bool {
        let own = self.objects[object as usize].account;
        self.accounts.nobody_waits()
            || (self.accounts.first_of(own).is_none()
                && !self.accounts.waiting().any(|account| self.account_has_room(account, 1)))
    }
}
