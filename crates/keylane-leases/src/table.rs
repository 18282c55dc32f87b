//! The leases of one owner: which are held and until when, and what to do next. Pure: time is an
//! argument, and other code calls the store.
//!
//! # Until when a lease is held
//!
//! The store counts the time to live from the moment of a grant or renewal. The caller sees that
//! moment only through the answer, which may take long. So this table counts from before the call
//! was sent: its end comes first, whatever the network does. The end is earlier by another
//! [tenth](ends_at), for clocks that run at different speeds.
//!
//! ```text
//! sent          granted          renewed again      ends here    ends at the store
//!  |───────────────|────────────────────|──────────────────|───────|──────|
//!  0               answer          ttl/3 to ttl/2       0.9 ttl   ttl   granted + ttl
//! ```
//!
//! # When a lease is renewed
//!
//! The rest of a lease at its renewal is the time for which the store may be unreachable. It is
//! more than half of the lease, or at least ten seconds: a larger part of a long lease would only
//! cost renewals. So a lease of up to 17 seconds is renewed after a third of its time, and one of
//! 25 seconds and more after a half.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::counts::HeldLease;
use crate::store::{Claim, Token};

/// Returns when a lease ends for its holder, if the call that granted or renewed it was sent then.
pub fn ends_at(sent: Instant, ttl: Duration) -> Instant {
    sent + ttl * 9 / 10
}

/// For how long the renewal of a long lease can be repeated.
const SPARE: Duration = Duration::from_secs(10);

/// Returns when to renew a lease.
fn renew_at(sent: Instant, ttl: Duration) -> Instant {
    let lasts = ends_at(sent, ttl) - sent;
    let latest = lasts.saturating_sub(SPARE);
    sent + latest.clamp(ttl / 3, ttl / 2)
}

/// Returns the pause before a failed call about a lease is repeated.
pub(crate) fn pause(ttl: Duration) -> Duration {
    (ttl / 30).clamp(Duration::from_millis(10), Duration::from_secs(1))
}

/// Returns when to repeat a failed renewal.
fn retry_at(now: Instant, ttl: Duration) -> Instant {
    now + pause(ttl)
}

/// The leases of one owner.
#[derive(Debug, Default)]
pub struct Table {
    leases: HashMap<Bytes, State>,
    /// The end of each lease that is held.
    ends: Schedule,
    /// The renewal of each lease, except those in a renewal that is in progress.
    renewals: Schedule,
}

/// Leases by one of their times. Those of one call share a time, and go together: each is put into
/// a list, and has no place in an order of its own.
#[derive(Debug, Default)]
struct Schedule(BTreeMap<Instant, Group>);

/// The leases of one time; at least one.
#[derive(Debug, Default)]
struct Group {
    /// Some may have left.
    keys: Vec<Bytes>,
    /// How many have not.
    live: usize,
}

/// Returns a time of a lease, if the lease has it.
type TimeOf = fn(&Holding) -> Option<Instant>;

/// With so many more keys than leases, the group drops the keys that have left.
const MOST_LEFT: usize = 64;

#[derive(Clone, Copy, Debug)]
enum State {
    /// The store was asked for it, or is about to be.
    Asked,
    Held(Holding),
}

#[derive(Clone, Copy, Debug)]
struct Holding {
    token: Token,
    ttl: Duration,
    ends_at: Instant,
    /// `None`: the store was asked, and has not answered.
    renew_at: Option<Instant>,
}

impl Holding {
    fn new(token: Token, ttl: Duration, sent: Instant) -> Self {
        Self {
            token,
            ttl,
            ends_at: ends_at(sent, ttl),
            renew_at: Some(renew_at(sent, ttl)),
        }
    }

    fn ends_at(&self) -> Option<Instant> {
        Some(self.ends_at)
    }

    fn renew_at(&self) -> Option<Instant> {
        self.renew_at
    }
}

/// The state of a lease that was granted or renewed.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is held until then, unless it is renewed before.
    Until(Instant),
    /// Too late: it has run out before the answer came.
    RanOut,
    /// The store reports that another owner has it.
    TakenOver,
    /// It was released, or has run out and was reported, while the call was in progress.
    Gone,
}

/// Due work.
#[must_use]
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// These have run out, and are not held from now on.
    pub ran_out: Vec<(Bytes, Token)>,
    /// These are due for renewal: then call [`Table::renewed`] or [`Table::not_renewed`].
    pub renew: Vec<Claim>,
}

impl Table {
    /// Creates an empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns how many leases are held or requested.
    pub fn len(&self) -> usize {
        self.leases.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// Records that the store is about to be asked for a key. Returns `false` if this owner holds
    /// the key already, or asks for it: it must not ask again, because the store would grant it.
    #[must_use]
    pub fn ask(&mut self, key: &Bytes) -> bool {
        match self.leases.entry(key.clone()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(State::Asked);
                true
            }
        }
    }

    /// Records that the store has not granted an [asked](Self::ask) key, or has not answered.
    pub fn not_granted(&mut self, key: &Bytes) {
        if let Some(State::Asked) = self.leases.get(key) {
            self.leases.remove(key);
        }
    }

    /// Records that the store has granted an [asked](Self::ask) key, with a call that was sent at
    /// that time.
    pub fn granted(
        &mut self,
        key: &Bytes,
        token: Token,
        ttl: Duration,
        sent: Instant,
        now: Instant,
    ) -> Kept {
        let Some(State::Asked) = self.leases.get(key) else {
            return Kept::Gone;
        };
        self.leases.remove(key);
        self.hold(key, Holding::new(token, ttl, sent), now)
    }

    /// Returns due work, with at most `most` renewals: call it again until there is none.
    ///
    /// Leases that are due a little later are renewed along with those that are due now, so that
    /// leases of one time come to share their calls.
    pub fn due(&mut self, now: Instant, most: usize) -> Due {
        let mut due = Due::default();
        while let Some((at, key)) = self.ends.pop_until(now) {
            let held = self.leases.get(&key).and_then(State::held);
            if let Some(held) = held.filter(|held| held.ends_at == at).copied() {
                self.take(&key, held.token);
                due.ran_out.push((key, held.token));
            }
        }
        let mut until = now;
        while due.renew.len() < most
            && let Some((at, key)) = self.renewals.pop_until(until)
        {
            let held = self.leases.get_mut(&key).and_then(State::held_mut);
            if let Some(held) = held.filter(|held| held.renew_at == Some(at)) {
                held.renew_at = None;
                until = until.max(now + held.ttl / 12);
                due.renew.push(Claim::new(key, held.token, held.ttl));
                self.renewals.left(at);
            }
        }
        due
    }

    /// Records the answer to a renewal that was sent at that time: whether the lease is held.
    pub fn renewed(
        &mut self,
        key: &Bytes,
        token: Token,
        is_held: bool,
        sent: Instant,
        now: Instant,
    ) -> Kept {
        let Some(held) = self.of(key, token) else {
            return Kept::Gone;
        };
        let renewed = Holding::new(token, held.ttl, sent);
        let kept = match is_held {
            false => Kept::TakenOver,
            // Its holder may have seen the end of it: the lease does not come back.
            true if held.ends_at <= now || renewed.ends_at <= now => Kept::RanOut,
            true => Kept::Until(renewed.ends_at),
        };
        match kept {
            Kept::Until(_) => self.change(key, renewed),
            _ => {
                self.take(key, token);
            }
        }
        kept
    }

    /// Records a failed renewal: the store may have done it or not.
    pub fn not_renewed(&mut self, key: &Bytes, token: Token, now: Instant) {
        if let Some(held) = self.of(key, token).copied() {
            let renew_at = Some(retry_at(now, held.ttl));
            self.change(key, Holding { renew_at, ..held });
        }
    }

    /// Gives a lease up. Returns the claim to release at the store, if the lease was held.
    pub fn release(&mut self, key: &Bytes, token: Token) -> Option<Claim> {
        let held = self.take(key, token)?;
        Some(Claim::new(key.clone(), token, held.ttl))
    }

    /// Gives up all leases. Returns those that were held.
    pub fn release_all(&mut self) -> Vec<Claim> {
        self.ends.0.clear();
        self.renewals.0.clear();
        let all = self.leases.drain();
        all.filter_map(|(key, state)| match state {
            State::Asked => None,
            State::Held(held) => Some(Claim::new(key, held.token, held.ttl)),
        })
        .collect()
    }

    /// Returns when [`due`](Self::due) has work.
    pub fn next(&self) -> Option<Instant> {
        let firsts = [&self.ends, &self.renewals];
        firsts.into_iter().filter_map(Schedule::first).min()
    }

    /// Returns up to `most` leases that are held, the one that ends first first.
    pub(crate) fn first_to_end(&self, most: usize, now: Instant) -> Vec<HeldLease> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        for (&at, group) in &self.ends.0 {
            for key in &group.keys {
                let held = self.leases.get(key).and_then(State::held);
                // It may have left, and come again in the same instant.
                let Some(held) = held.filter(|held| held.ends_at == at && seen.insert(key)) else {
                    continue;
                };
                if found.len() == most {
                    return found;
                }
                found.push(HeldLease {
                    key: key.clone(),
                    token: held.token,
                    ttl: held.ttl,
                    remaining: at.saturating_duration_since(now),
                });
            }
        }
        found
    }

    /// Returns until when this owner holds a key, if it does.
    pub fn held_until(&self, key: &Bytes) -> Option<Instant> {
        let held = self.leases.get(key)?.held()?;
        Some(held.ends_at)
    }

    /// Returns whether this owner holds a key under this token.
    pub fn is_held(&self, key: &Bytes, token: Token) -> bool {
        self.of(key, token).is_some()
    }

    fn of(&self, key: &Bytes, token: Token) -> Option<&Holding> {
        let held = self.leases.get(key)?.held()?;
        (held.token == token).then_some(held)
    }

    fn take(&mut self, key: &Bytes, token: Token) -> Option<Holding> {
        let held = *self.of(key, token)?;
        self.leases.remove(key);
        self.reschedule(key, Some(&held), None);
        Some(held)
    }

    /// Inserts a lease that the store has granted, unless it is over already.
    fn hold(&mut self, key: &Bytes, held: Holding, now: Instant) -> Kept {
        if held.ends_at <= now {
            return Kept::RanOut;
        }
        self.leases.insert(key.clone(), State::Held(held));
        self.reschedule(key, None, Some(&held));
        Kept::Until(held.ends_at)
    }

    /// Changes the times of a lease that is held under this token.
    fn change(&mut self, key: &Bytes, new: Holding) {
        let held = self.leases.get_mut(key).and_then(State::held_mut);
        if let Some(held) = held.filter(|held| held.token == new.token) {
            let old = std::mem::replace(held, new);
            self.reschedule(key, Some(&old), Some(&new));
        }
    }

    /// Updates the schedules for a lease that has come, has changed or has gone. A time that stays
    /// keeps its place.
    fn reschedule(&mut self, key: &Bytes, old: Option<&Holding>, new: Option<&Holding>) {
        let schedules: [(_, TimeOf); 2] = [
            (&mut self.ends, Holding::ends_at),
            (&mut self.renewals, Holding::renew_at),
        ];
        for (schedule, time) in schedules {
            let (old, new) = (old.and_then(time), new.and_then(time));
            if old == new {
                continue;
            }
            if let Some(at) = old {
                schedule.leave(at, key, &self.leases, time);
            }
            if let Some(at) = new {
                schedule.join(at, key.clone());
            }
        }
    }
}

impl State {
    fn held(&self) -> Option<&Holding> {
        match self {
            Self::Asked => None,
            Self::Held(held) => Some(held),
        }
    }

    fn held_mut(&mut self) -> Option<&mut Holding> {
        match self {
            Self::Asked => None,
            Self::Held(held) => Some(held),
        }
    }
}

impl Schedule {
    fn first(&self) -> Option<Instant> {
        self.0.keys().next().copied()
    }

    fn join(&mut self, at: Instant, key: Bytes) {
        let group = self.0.entry(at).or_default();
        group.keys.push(key);
        group.live += 1;
    }

    /// Removes a lease. Its key may stay while others do.
    fn leave(&mut self, at: Instant, key: &Bytes, leases: &HashMap<Bytes, State>, time: TimeOf) {
        if let Some(group) = self.0.get_mut(&at) {
            // The usual case: leases are renewed in the opposite order each time.
            if group.keys.last() == Some(key) {
                group.keys.pop();
            } else if group.keys.len() > 2 * group.live + MOST_LEFT {
                let held = |key: &Bytes| leases.get(key).and_then(State::held);
                group
                    .keys
                    .retain(|key| held(key).and_then(time) == Some(at));
                // A lease that has left and come again in the same instant.
                group.keys.sort_unstable();
                group.keys.dedup();
            }
            self.left(at);
        }
    }

    /// Counts one lease fewer at this time.
    fn left(&mut self, at: Instant) {
        if let Some(group) = self.0.get_mut(&at) {
            group.live -= 1;
            if group.live == 0 {
                self.0.remove(&at);
            }
        }
    }

    /// Returns a key whose time has come by then. Its lease may have left; if not, it must leave.
    fn pop_until(&mut self, until: Instant) -> Option<(Instant, Bytes)> {
        let mut first = self.0.first_entry()?;
        let at = *first.key();
        if at > until {
            return None;
        }
        let key = first.get_mut().keys.pop();
        debug_assert!(key.is_some(), "a group has a key for each of its leases");
        Some((at, key?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn key(name: &'static str) -> Bytes {
        Bytes::from_static(name.as_bytes())
    }

    fn secs(secs: f64) -> Duration {
        Duration::from_secs_f64(secs)
    }

    /// Grants a lease by a call that is sent and answered now.
    fn grant(table: &mut Table, key: &Bytes, ttl: Duration, now: Instant) {
        assert!(table.ask(key));
        let _ = table.granted(key, Token(1), ttl, now, now);
    }

    /// Returns a table with one lease, granted by a call that was sent at that time.
    fn holding(sent: Instant) -> (Table, Bytes) {
        let (mut table, key) = (Table::new(), key("a"));
        assert!(table.ask(&key));
        let kept = table.granted(&key, Token(1), TTL, sent, sent + secs(1.0));
        assert_eq!(kept, Kept::Until(sent + secs(9.0)));
        (table, key)
    }

    #[test]
    fn a_key_is_asked_for_once() {
        let (mut table, a) = (Table::new(), key("a"));
        assert!(table.ask(&a));
        assert!(!table.ask(&a), "the store would grant it to the same owner");
        table.not_granted(&a);
        assert!(table.is_empty());
        let (mut table, a) = holding(Instant::now());
        assert!(!table.ask(&a));
        table.not_granted(&a);
        assert_eq!(table.len(), 1, "that was about an earlier call");
    }

    #[test]
    fn a_lease_is_renewed_after_a_third_of_its_time() {
        let sent = Instant::now();
        let (mut table, a) = holding(sent);
        let third = sent + TTL / 3;
        assert_eq!(table.next(), Some(third));
        assert_eq!(table.due(third - secs(0.1), 9), Due::default());
        let due = table.due(third, 9);
        assert_eq!(due.renew, [Claim::new(a.clone(), Token(1), TTL)]);
        assert_eq!(
            table.due(third + secs(1.0), 9),
            Due::default(),
            "it was sent"
        );
        let kept = table.renewed(&a, Token(1), true, third, third + secs(0.5));
        assert_eq!(kept, Kept::Until(third + secs(9.0)));
        assert_eq!(table.next(), Some(third + TTL / 3));
    }

    #[test]
    fn a_long_lease_is_renewed_later_but_never_with_less_than_ten_seconds_left() {
        let renewed_after = [
            (1.0, 0.333),
            (15.0, 5.0),
            (20.0, 8.0),
            (25.0, 12.5),
            (60.0, 30.0),
        ];
        for (ttl, after) in renewed_after {
            let (mut table, now) = (Table::new(), Instant::now());
            grant(&mut table, &key("a"), secs(ttl), now);
            let at = table.next().expect("it is to be renewed") - now;
            assert!(at.abs_diff(secs(after)) < secs(0.001), "{ttl}: {at:?}");
            let left = secs(ttl * 0.9) - at;
            assert!(left >= secs(ttl * 0.56).min(SPARE), "{ttl}: {left:?}");
        }
    }

    #[test]
    fn a_renewal_that_fails_is_tried_again_until_the_end() {
        let sent = Instant::now();
        let (mut table, a) = holding(sent);
        let (mut now, mut tries) = (sent + TTL / 3, 0);
        while now < sent + secs(9.0) {
            assert_eq!(table.due(now, 9).renew.len(), 1);
            tries += 1;
            table.not_renewed(&a, Token(1), now);
            now = table.next().unwrap();
        }
        assert!(tries > 10, "{tries}");
        let due = table.due(now, 9);
        assert_eq!(
            (now, due.ran_out),
            (sent + secs(9.0), vec![(a.clone(), Token(1))])
        );
        assert!(due.renew.is_empty() && table.is_empty() && table.next().is_none());
        assert_eq!(table.renewed(&a, Token(1), true, now, now), Kept::Gone);
    }

    #[test]
    fn a_renewal_that_was_sent_does_not_hold_off_the_end() {
        let sent = Instant::now();
        let (mut table, a) = holding(sent);
        let _ = table.due(sent + secs(4.0), 9);
        assert_eq!(table.next(), Some(sent + secs(9.0)));
        // The answer comes after the end that it would have put off.
        let kept = table.renewed(&a, Token(1), true, sent + secs(4.0), sent + secs(14.0));
        assert_eq!(kept, Kept::RanOut);
        assert!(table.is_empty() && table.next().is_none());
    }

    #[test]
    fn a_grant_that_comes_too_late_is_none() {
        let (mut table, a, sent) = (Table::new(), key("a"), Instant::now());
        assert!(table.ask(&a));
        let kept = table.granted(&a, Token(1), TTL, sent, sent + secs(9.0));
        assert_eq!(kept, Kept::RanOut);
        assert!(table.is_empty());
    }

    #[test]
    fn what_is_known_of_another_grant_changes_nothing() {
        let sent = Instant::now();
        let (mut table, a) = holding(sent);
        let now = sent + secs(2.0);
        assert_eq!(table.renewed(&a, Token(2), false, now, now), Kept::Gone);
        assert_eq!(table.release(&a, Token(2)), None);
        assert_eq!(table.held_until(&a), Some(sent + secs(9.0)));
        let kept = table.renewed(&a, Token(1), false, now, now);
        assert_eq!(kept, Kept::TakenOver);
        assert!(table.is_empty());
    }

    #[test]
    fn leases_that_are_due_soon_are_renewed_along() {
        let (mut table, sent) = (Table::new(), Instant::now());
        for (at, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
            assert!(table.ask(&key(name)));
            let sent = sent + secs(0.4) * at as u32;
            let _ = table.granted(&key(name), Token(1), TTL, sent, sent);
        }
        let due = table.due(sent + TTL / 3, 9).renew;
        let names = due.iter().map(|claim| claim.key.clone());
        assert_eq!(Vec::from_iter(names), ["a", "b", "c"].map(key));
        assert_eq!(table.due(sent + TTL / 3, 9), Due::default());
    }

    #[test]
    fn no_more_are_renewed_at_once_than_told() {
        let (mut table, now) = (Table::new(), Instant::now());
        for name in ["a", "b", "c"] {
            assert!(table.ask(&key(name)));
            let _ = table.granted(&key(name), Token(1), TTL, now, now);
        }
        let third = now + TTL / 3;
        let counts = [2, 2, 2].map(|most| table.due(third, most).renew.len());
        assert_eq!(counts, [2, 1, 0]);
    }

    impl Table {
        /// Returns how many there are in both schedules.
        fn keys(&self) -> usize {
            let groups = self.ends.0.values().chain(self.renewals.0.values());
            groups.map(|group| group.keys.len()).sum()
        }

        /// Checks that each lease has its times in the schedules, and that they contain no other.
        fn check(&self) {
            let held = || {
                self.leases
                    .iter()
                    .filter_map(|(key, state)| Some((key, state.held()?)))
            };
            let times = held().map(|(key, held)| (held.ends_at, key));
            self.ends.check(times.collect());
            let times = held().filter_map(|(key, held)| Some((held.renew_at?, key)));
            self.renewals.check(times.collect());
        }
    }

    impl Schedule {
        fn check(&self, times: Vec<(Instant, &Bytes)>) {
            let live: usize = self.0.values().map(|group| group.live).sum();
            assert_eq!(live, times.len());
            assert!(self.0.values().all(|group| group.live > 0));
            for (at, key) in times {
                assert!(self.0[&at].keys.contains(key));
            }
        }
    }

    #[test]
    fn the_first_to_end_are_those_that_are_held() {
        let (mut table, now) = (Table::new(), Instant::now());
        let second = Duration::from_secs(1);
        for (name, sent) in [
            ("late", 2 * second),
            ("first", Duration::ZERO),
            ("gone", second),
        ] {
            grant(&mut table, &key(name), TTL, now + sent);
        }
        assert!(table.release(&key("gone"), Token(1)).is_some());
        assert!(table.ask(&key("asked")));
        let first = table.first_to_end(9, now);
        let keys: Vec<&[u8]> = first.iter().map(|held| &*held.key).collect();
        assert_eq!(keys, [&b"first"[..], b"late"]);
        assert_eq!(
            (first[0].ttl, first[0].remaining),
            (TTL, ends_at(now, TTL) - now)
        );
        assert_eq!(first[1].remaining, first[0].remaining + 2 * second);
        assert_eq!(table.first_to_end(1, now).len(), 1);
    }

    #[test]
    fn keys_of_leases_that_have_left_do_not_gather() {
        let (mut table, now) = (Table::new(), Instant::now());
        let stays = key("stays");
        grant(&mut table, &stays, TTL, now);
        for number in 0..10 * MOST_LEFT {
            let key = Bytes::from(number.to_string());
            grant(&mut table, &key, TTL, now);
            assert!(table.release(&key, Token(1)).is_some());
        }
        assert!(table.keys() <= 2 * (3 + MOST_LEFT), "{}", table.keys());
        table.check();
    }

    #[test]
    fn one_lease_does_not_keep_the_keys_of_others() {
        let (mut table, now) = (Table::new(), Instant::now());
        let keys: Vec<_> = (0..1_000)
            .map(|key: u64| Bytes::from(key.to_string()))
            .collect();
        for key in &keys {
            grant(&mut table, key, TTL, now);
        }
        for key in &keys[1..] {
            assert!(table.release(key, Token(1)).is_some());
        }
        assert!(table.keys() <= 2 * (3 + MOST_LEFT), "{}", table.keys());
        table.check();
    }

    #[test]
    fn retries_gather_no_keys() {
        let (mut table, now) = (Table::new(), Instant::now());
        let day = Duration::from_secs(86_400);
        for name in ["a", "b"] {
            grant(&mut table, &key(name), day, now);
        }
        for _ in 0..1_000 {
            let now = table.next().unwrap();
            for claim in table.due(now, 9).renew {
                table.not_renewed(&claim.key, claim.token, now);
            }
            assert_eq!(table.keys(), 4);
        }
        table.check();
    }

    #[test]
    fn leases_that_come_again_at_once_gather_no_keys() {
        let (mut table, now) = (Table::new(), Instant::now());
        let keys: Vec<_> = (0..100)
            .map(|key: u64| Bytes::from(key.to_string()))
            .collect();
        for _ in 0..20 {
            for key in &keys {
                let _ = table.release(key, Token(1));
                grant(&mut table, key, TTL, now);
            }
        }
        assert!(
            table.keys() <= 2 * (2 * keys.len() + MOST_LEFT + 1),
            "{}",
            table.keys()
        );
        table.check();
    }

    /// A naive store: which owner holds each key until when, by its own clock.
    #[derive(Default)]
    struct Naive(HashMap<Bytes, (Token, Instant)>);

    #[derive(Clone, Debug)]
    enum Step {
        /// Asks for a key. The store grants it after the first delay, and the answer takes the
        /// second.
        Ask(usize, f64, f64),
        /// Renews the due leases. The answers arrive, or are lost.
        Renew(f64, f64, bool),
        Release(usize),
        Wait(f64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..4_usize, 0.0..6.0, 0.0..6.0).prop_map(|(key, a, b)| Step::Ask(key, a, b)),
            (0.0..6.0, 0.0..6.0, any::<bool>()).prop_map(|(a, b, ok)| Step::Renew(a, b, ok)),
            (0..4_usize).prop_map(Step::Release),
            (0.0..6.0).prop_map(Step::Wait),
        ]
    }

    proptest! {
        /// However long the calls take, and whichever answers are lost: while a lease is held here,
        /// the store gives it to no other owner.
        #[test]
        fn a_lease_ends_here_before_it_ends_at_the_store(
            steps in prop::collection::vec(step(), 1..60)
        ) {
            let (mut table, mut store) = (Table::new(), Naive::default());
            let keys = ["a", "b", "c", "d"].map(key);
            let (mut now, mut token) = (Instant::now(), 0);
            for step in steps {
                match step {
                    Step::Ask(key, there, back) => {
                        let key = &keys[key];
                        if table.ask(key) {
                            let sent = now;
                            token += 1;
                            store.0.insert(key.clone(), (Token(token), now + secs(there) + TTL));
                            now += secs(there) + secs(back);
                            let kept = table.granted(key, Token(token), TTL, sent, now);
                            prop_assert_eq!(kept == Kept::RanOut, sent + TTL * 9 / 10 <= now);
                        }
                    }
                    Step::Renew(there, back, arrives) => {
                        let due = table.due(now, 2);
                        let (sent, granted) = (now, now + secs(there));
                        now = granted + secs(back);
                        for claim in due.renew {
                            let (held, until) = store.0.get_mut(&claim.key).unwrap();
                            prop_assert_eq!(*held, claim.token);
                            *until = granted + TTL;
                            if arrives {
                                let _ = table.renewed(&claim.key, claim.token, true, sent, now);
                            } else {
                                table.not_renewed(&claim.key, claim.token, now);
                            }
                        }
                    }
                    Step::Release(key) => {
                        if let Some((held, _)) = store.0.get(&keys[key])
                            && table.release(&keys[key], *held).is_some()
                        {
                            store.0.remove(&keys[key]);
                        }
                    }
                    Step::Wait(time) => now += secs(time),
                }
                let next = table.next();
                for key in &keys {
                    let Some(until) = table.held_until(key) else { continue };
                    prop_assert!(until < store.0[key].1, "held here for longer");
                    prop_assert!(next.is_some_and(|next| next <= until), "its end is awaited");
                }
                table.check();
                let late = table.due(now, 0);
                for key in &keys {
                    prop_assert!(table.held_until(key).is_none_or(|until| until > now));
                }
                for (key, _) in late.ran_out {
                    prop_assert!(table.held_until(&key).is_none());
                }
            }
            for claim in table.release_all() {
                prop_assert_eq!(store.0[&claim.key].0, claim.token);
            }
            prop_assert!(table.is_empty() && table.next().is_none());
        }
    }
}
