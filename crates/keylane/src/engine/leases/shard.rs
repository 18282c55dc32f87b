//! The leases of some keys, and their last known state. Pure but for the leases themselves.

use std::task::Context;

use hashbrown::HashTable;
use keylane_rt::clock::{self, Instant, Tick, Ticker};
use keylane_source::lease::LaneLease;
use tokio_util::sync::DropGuard;

use keylane_rt::Slots;

/// Leases by key.
pub(super) struct Shard<K> {
    entries: HashTable<Entry<K>>,
    states: Slots<State>,
    /// How many leases had been lost when the leases were asked until when they are held.
    losses: u64,
}

/// What a message that starts looks at, and at nothing else as a rule.
///
/// Small, because it is one of many: the more of them a cache holds, the faster a message starts.
struct Entry<K> {
    key: K,
    until: Until,
    token: Token,
    /// The slot of its state.
    state: u32,
}

/// In which tick a lease ends, as it said when it was asked last: the first one, if it was lost or
/// not asked. And in the highest bit, whether its key had no lane when it was last looked at, and
/// was not used since.
#[derive(Clone, Copy, Default)]
struct Until(u32);

/// A fencing token as bytes: as a word it would have what holds one take four or eight bytes more.
#[derive(Clone, Copy, Default)]
struct Token([u8; 8]);

/// A lease that was held when it was looked up. It fits beside the tag of a job's work, so that a
/// job that carries one is not larger than others.
#[derive(Clone, Copy)]
pub(crate) struct HeldLease {
    token: Token,
    /// The tick in which it ends, and the lowest bytes of how many leases were lost before. While a
    /// job waits, as many are not lost as would have them come round.
    end: [u8; 7],
}

/// When leases are looked at, and how many were lost up to then.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    pub(super) losses: u64,
    pub(super) now: Tick,
}

/// The other things that are known of a lease.
pub(super) struct State {
    pub(super) hash: u64,
    /// Tells it from others of its key, before and after.
    pub(super) number: usize,
    pub(super) lease: Lease,
}

pub(super) enum Lease {
    /// Dropped, it cancels the call.
    Asked {
        _cancel: DropGuard,
    },
    Held(Box<dyn LaneLease>),
}

/// What became of a lease that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseState {
    /// It is not there, or was lost.
    Gone,
    Asked,
    Held,
}

impl HeldLease {
    #[inline]
    pub(in crate::engine) fn token(&self) -> u64 {
        self.token.get()
    }

    /// In a word, when it ends.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        let [a, b, c, d, e, f, g] = self.end;
        u64::from_le_bytes([a, b, c, d, e, f, g, 0])
    }

    /// The one with this token, and this [`end`](Self::end).
    #[inline]
    pub(crate) fn of(token: u64, end: u64) -> Self {
        Self {
            token: Token::of(token),
            end: lowest(end),
        }
    }

    /// Whether it is known to be held still.
    #[inline]
    pub(super) fn is_held(&self, moment: Moment) -> bool {
        let end = self.end();
        let until = Until(end as u32);
        until.is_after(moment.now) && end == end_of(until, moment.losses)
    }
}

/// When a lease ends, if no more are lost than so many.
#[inline]
fn end_of(until: Until, losses: u64) -> u64 {
    (losses << 40 >> 8) | u64::from(until.0)
}

#[inline]
fn lowest(end: u64) -> [u8; 7] {
    let [a, b, c, d, e, f, g, _] = end.to_le_bytes();
    [a, b, c, d, e, f, g]
}

impl<K> Default for Shard<K> {
    fn default() -> Self {
        Self {
            entries: HashTable::new(),
            states: Slots::new(),
            losses: 0,
        }
    }
}

impl<K: Eq> Shard<K> {
    /// So many leases were lost up to now. What is known of leases does not outlast a loss.
    #[inline]
    pub(super) fn follow(&mut self, losses: u64) {
        if self.losses != losses {
            self.forget_ends(losses);
        }
    }

    #[cold]
    fn forget_ends(&mut self, losses: u64) {
        self.losses = losses;
        for entry in &mut self.entries {
            entry.until.set(Tick::default());
        }
    }

    /// The lease of a key, if it is held. It is in use from now on.
    #[inline]
    pub(super) fn held(
        &mut self,
        hash: u64,
        key: &K,
        now: Tick,
        ticker: &Ticker,
    ) -> Option<HeldLease> {
        let entry = self.entries.find_mut(hash, |entry| entry.key == *key)?;
        if !entry.is_held(now, &self.states, ticker) {
            return None;
        }
        entry.until.set_idle(false);
        let end = end_of(entry.until, self.losses);
        Some(HeldLease::of(entry.token.get(), end))
    }

    /// The fencing token of a key, if its lease is held.
    pub(super) fn token(&mut self, hash: u64, key: &K, now: Tick, ticker: &Ticker) -> Option<u64> {
        let entry = self.entries.find_mut(hash, |entry| entry.key == *key)?;
        let is_held = entry.is_held(now, &self.states, ticker);
        is_held.then(|| entry.token.get())
    }

    /// Whether a lease is held, or will be.
    pub(super) fn standing(
        &mut self,
        hash: u64,
        key: &K,
        now: Tick,
        ticker: &Ticker,
    ) -> LeaseState {
        let Some(entry) = self.entries.find_mut(hash, |entry| entry.key == *key) else {
            return LeaseState::Gone;
        };
        let state = self.states.get(entry.state);
        match state.map(|state| &state.lease) {
            Some(Lease::Asked { .. }) => LeaseState::Asked,
            _ if entry.is_held(now, &self.states, ticker) => LeaseState::Held,
            _ => LeaseState::Gone,
        }
    }

    /// Wakes this task when the lease of a key is lost. True: it is lost.
    pub(super) fn poll_lost(
        &mut self,
        (hash, key): (u64, &K),
        now: Tick,
        ticker: &Ticker,
        cx: &mut Context<'_>,
    ) -> bool {
        let Some(entry) = self.entries.find_mut(hash, |entry| entry.key == *key) else {
            return true;
        };
        let state = self.states.get_mut(entry.state);
        let Some(Lease::Held(lease)) = state.map(|state| &mut state.lease) else {
            return true;
        };
        lease.poll_lost(cx).is_ready() || !entry.is_held(now, &self.states, ticker)
    }

    /// A lease that was asked for under this number is held. Returns it, if it was not asked for.
    pub(super) fn grant(
        &mut self,
        (hash, key, number): (u64, &K, usize),
        lease: Box<dyn LaneLease>,
    ) -> Option<Box<dyn LaneLease>> {
        let entry = self.entries.find_mut(hash, |entry| entry.key == *key);
        let entry = entry.and_then(|entry| Some((self.states.get_mut(entry.state)?, entry)));
        let Some((state, entry)) = entry.filter(|(state, _)| state.number == number) else {
            return Some(lease);
        };
        entry.until = Until::default();
        entry.token = Token::of(lease.token());
        state.lease = Lease::Held(lease);
        None
    }

    /// Looks whether a lease is still needed. `has_lane` says whether the key has a lane, which may
    /// need it. `None`: it is another one.
    pub(super) fn is_needed(
        &mut self,
        (hash, key, number): (u64, &K, usize),
        lingers: bool,
        has_lane: impl FnOnce() -> bool,
    ) -> Option<bool> {
        let entry = self.entries.find_mut(hash, |entry| entry.key == *key)?;
        let state = self.states.get(entry.state)?;
        if state.number != number {
            return None;
        }
        let has_lane = has_lane();
        Some(match state.lease {
            Lease::Asked { .. } => has_lane,
            Lease::Held(_) => {
                let was_idle = entry.until.is_idle();
                entry.until.set_idle(!has_lane);
                has_lane || (lingers && !was_idle)
            }
        })
    }

    /// Of a key that has none.
    pub(super) fn put(&mut self, key: K, state: State) {
        let hash = state.hash;
        let slot = self.states.insert(state);
        let entry = Entry {
            key,
            until: Until::default(),
            token: Token::default(),
            state: slot.expect("as many leases do not fit into memory"),
        };
        let states = &self.states;
        self.entries.insert_unique(hash, entry, |entry| {
            states.get(entry.state).map_or(0, |state| state.hash)
        });
    }

    /// Takes the lease of a key, to be dropped outside of the lock.
    pub(super) fn take(&mut self, hash: u64, key: &K) -> Option<(K, Option<State>)> {
        let entry = self.entries.find_entry(hash, |entry| entry.key == *key);
        let (entry, _) = entry.ok()?.remove();
        Some((entry.key, self.states.remove(entry.state)))
    }
}

impl<K> Shard<K> {
    /// All keys, and all leases.
    pub(super) fn into_parts(self) -> (impl Iterator<Item = K>, impl Iterator<Item = State>) {
        let keys = self.entries.into_iter().map(|entry| entry.key);
        (keys, self.states.into_values())
    }
}

impl<K> Entry<K> {
    #[inline]
    fn is_held(&mut self, now: Tick, states: &Slots<State>, ticker: &Ticker) -> bool {
        self.until.is_after(now) || self.ask_again(states, ticker)
    }

    #[cold]
    fn ask_again(&mut self, states: &Slots<State>, ticker: &Ticker) -> bool {
        let Some(Lease::Held(lease)) = states.get(self.state).map(|state| &state.lease) else {
            return false;
        };
        let until = lease.held_until().map(Instant::from);
        self.until
            .set(until.map_or(Tick::default(), |until| ticker.at(until)));
        until.is_some_and(|until| clock::now() < until)
    }
}

/// The bit of [`Until`] that is not of the tick.
const IDLE: u32 = 1 << 31;

impl Until {
    #[inline]
    fn is_after(self, now: Tick) -> bool {
        self.0 & !IDLE > now.number()
    }

    fn set(&mut self, tick: Tick) {
        self.0 = (self.0 & IDLE) | tick.number();
    }

    fn is_idle(self) -> bool {
        self.0 & IDLE != 0
    }

    /// Writes only what changes: other processors have copies of what is not written.
    #[inline]
    fn set_idle(&mut self, is_idle: bool) {
        if self.is_idle() != is_idle {
            self.0 ^= IDLE;
        }
    }
}

impl Token {
    #[inline]
    fn of(token: u64) -> Self {
        Self(token.to_ne_bytes())
    }

    #[inline]
    fn get(self) -> u64 {
        u64::from_ne_bytes(self.0)
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use std::task::Poll;
    use std::time::Duration;

    use super::*;

    /// Held for a minute, unless it was told otherwise.
    struct Fixed {
        token: u64,
        until: Option<tokio::time::Instant>,
    }

    impl LaneLease for Fixed {
        fn token(&self) -> u64 {
            self.token
        }

        fn held_until(&self) -> Option<tokio::time::Instant> {
            self.until
        }

        fn poll_lost(&mut self, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }
    }

    fn put(shard: &mut Shard<u8>, key: u8, token: u64, until: Option<tokio::time::Instant>) {
        let lease = Lease::Held(Box::new(Fixed { token, until }));
        let state = State {
            hash: key.into(),
            number: 0,
            lease,
        };
        shard.put(key, state);
        let granted = Box::new(Fixed { token, until });
        assert!(shard.grant((key.into(), &key, 0), granted).is_none());
    }

    fn token(shard: &mut Shard<u8>, key: u8, ticker: &Ticker) -> Option<u64> {
        let held = shard.held(key.into(), &key, ticker.now(), ticker);
        held.map(|held| held.token())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn tokens_are_whole_whatever_their_size() {
        let ticker = Ticker::new(&keylane_rt::Handle::current());
        let until = Some(tokio::time::Instant::now() + Duration::from_secs(60));
        let mut shard = Shard::default();
        let tokens = [0, 7, u32::MAX.into(), u64::from(u32::MAX) + 1, u64::MAX];
        for (key, token) in (0..).zip(tokens) {
            put(&mut shard, key, token, until);
            assert_eq!(self::token(&mut shard, key, &ticker), Some(token));
        }
        assert_eq!(token(&mut shard, 9, &ticker), None);
        assert!(shard.take(3, &3).is_some());
        assert_eq!(token(&mut shard, 3, &ticker), None);
        assert_eq!(token(&mut shard, 4, &ticker), Some(u64::MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_held_up_to_its_end_and_not_longer() {
        let ticker = Ticker::new(&keylane_rt::Handle::current());
        let until = tokio::time::Instant::now() + Duration::from_millis(100);
        let mut shard = Shard::default();
        put(&mut shard, 1, 5, Some(until));
        let known = shard.held(1, &1, ticker.now(), &ticker).expect("held");
        for left in [100, 50, 9, 8, 7, 1, 0] {
            let at = until - Duration::from_millis(left);
            tokio::time::advance(at - tokio::time::Instant::now()).await;
            let held = shard.held(1, &1, ticker.now(), &ticker);
            assert_eq!(held.is_some(), left > 0, "{left}");
            // What was known before does not say more, and says so up to the last tick.
            let now = ticker.now();
            let is_held = known.is_held(Moment { losses: 0, now });
            assert!(is_held <= held.is_some() && is_held >= (left > 8), "{left}");
            assert!(!known.is_held(Moment { losses: 1, now }));
        }
    }
}
