//! Leased values, and the order in which their leases expire. No lock, no clock.

use std::collections::BTreeMap;
use std::time::Duration;

use keylane_rt::clock::Instant;

/// A collection that is empty again gives its memory back if it has held more than this.
pub(super) const SHRINK_ABOVE: usize = 1_024;

/// Names one lease. The slot of a lease that has ended is used again; its token is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaseId {
    slot: usize,
    pub(super) token: u64,
}

/// Every lease that has neither ended nor expired, with the value that it leases.
///
/// Each lease has a slot. Leases that expire in the order in which they were granted are a linked
/// list through the slots; those are all of them unless one is extended. So no step searches. A
/// lease whose extension does not fit at the end of that list is kept in a sorted map instead.
pub(super) struct ExpiryQueue<T> {
    slots: Vec<Option<Entry<T>>>,
    /// The slots that hold nothing.
    free: Vec<usize>,
    /// The ends of the list.
    first: Option<usize>,
    last: Option<usize>,
    sorted: BTreeMap<Expiry, usize>,
    /// How many times an expiry was set.
    sequence: u64,
}

/// When a lease expires. Leases of the same instant expire in the order in which it was set.
type Expiry = (Instant, u64);

struct Entry<T> {
    value: T,
    token: u64,
    expiry: Expiry,
    position: Link,
}

#[derive(Clone, Copy)]
enum Link {
    Listed {
        previous: Option<usize>,
        next: Option<usize>,
    },
    Sorted,
}

impl<T> ExpiryQueue<T> {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            first: None,
            last: None,
            sorted: BTreeMap::new(),
            sequence: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Adds a lease at the end of the list.
    ///
    /// It expires no earlier than the lease before it: two threads that read the clock one after
    /// the other may come here in the other order.
    pub(super) fn insert(&mut self, value: T, token: u64, expires_at: Instant) -> LeaseId {
        let latest = self.latest().map_or(expires_at, |at| at.max(expires_at));
        let entry = Some(Entry {
            value,
            token,
            expiry: self.expiry(latest),
            position: Link::Sorted,
        });
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot] = entry;
                slot
            }
            None => {
                self.slots.push(entry);
                self.slots.len() - 1
            }
        };
        self.append(slot);
        LeaseId { slot, token }
    }

    /// When a lease expires, or `None` if it has ended.
    pub(super) fn expires_at(&self, id: LeaseId) -> Option<Instant> {
        let entry = self.entry(id.slot)?;
        if entry.token != id.token {
            return None;
        }
        Some(entry.expiry.0)
    }

    /// Ends a lease, if it has not ended before.
    pub(super) fn remove(&mut self, id: LeaseId) -> Option<T> {
        self.expires_at(id)?;
        self.unlink(id.slot);
        let entry = self.slots[id.slot].take()?;
        self.free.push(id.slot);
        if self.len() == 0 && self.slots.len() > SHRINK_ABOVE {
            *self = Self::new();
        }
        Some(entry.value)
    }

    /// Lets a lease expire in `time` from now, unless it would expire later than that anyway.
    ///
    /// An expiry behind that of a lease granted now, for `lease_time`, must not go into the list:
    /// leases granted later would wait for it.
    pub(super) fn extend(
        &mut self,
        id: LeaseId,
        now: Instant,
        time: Duration,
        lease_time: Duration,
    ) {
        let expires_at = now + time;
        if self.expires_at(id).is_none_or(|old| expires_at <= old) {
            return;
        }
        self.unlink(id.slot);
        let is_last = self.latest().is_none_or(|latest| latest <= expires_at);
        let expiry = self.expiry(expires_at);
        if let Some(entry) = &mut self.slots[id.slot] {
            entry.expiry = expiry;
            entry.position = Link::Sorted;
        }
        if is_last && time <= lease_time {
            self.append(id.slot);
        } else {
            self.sorted.insert(expiry, id.slot);
        }
    }

    /// When the next lease expires.
    pub(super) fn earliest(&self) -> Option<Instant> {
        let ((expires_at, _), _) = self.next()?;
        Some(expires_at)
    }

    /// Ends the lease that expired first, if one has expired.
    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<T> {
        let (_, slot) = self.next().filter(|((at, _), _)| *at <= now)?;
        let token = self.entry(slot)?.token;
        self.remove(LeaseId { slot, token })
    }

    /// The lease that expires next: the first of the list, or the first of the sorted ones.
    fn next(&self) -> Option<(Expiry, usize)> {
        let listed = self
            .first
            .and_then(|slot| Some((self.entry(slot)?.expiry, slot)));
        let sorted = self
            .sorted
            .first_key_value()
            .map(|(expiry, slot)| (*expiry, *slot));
        match (listed, sorted) {
            (Some(listed), Some(sorted)) => Some(listed.min(sorted)),
            (listed, sorted) => listed.or(sorted),
        }
    }

    /// When the last lease of the list expires.
    fn latest(&self) -> Option<Instant> {
        let last = self.entry(self.last?)?;
        Some(last.expiry.0)
    }

    fn expiry(&mut self, at: Instant) -> Expiry {
        self.sequence += 1;
        (at, self.sequence)
    }

    fn entry(&self, slot: usize) -> Option<&Entry<T>> {
        self.slots.get(slot)?.as_ref()
    }

    fn append(&mut self, slot: usize) {
        let previous = self.last.replace(slot);
        if let Some(entry) = &mut self.slots[slot] {
            entry.position = Link::Listed {
                previous,
                next: None,
            };
        }
        match previous {
            Some(previous) => self.set_next(previous, Some(slot)),
            None => self.first = Some(slot),
        }
    }

    /// Takes a lease out of the list or out of the sorted map. Its entry stays.
    fn unlink(&mut self, slot: usize) {
        let Some(entry) = self.entry(slot) else {
            return;
        };
        match entry.position {
            Link::Sorted => {
                let expiry = entry.expiry;
                self.sorted.remove(&expiry);
            }
            Link::Listed { previous, next } => {
                match previous {
                    Some(previous) => self.set_next(previous, next),
                    None => self.first = next,
                }
                match next {
                    Some(next) => self.set_previous(next, previous),
                    None => self.last = previous,
                }
            }
        }
    }

    fn set_next(&mut self, slot: usize, to: Option<usize>) {
        if let Some(Entry {
            position: Link::Listed { next, .. },
            ..
        }) = &mut self.slots[slot]
        {
            *next = to;
        }
    }

    fn set_previous(&mut self, slot: usize, to: Option<usize>) {
        if let Some(Entry {
            position: Link::Listed { previous, .. },
            ..
        }) = &mut self.slots[slot]
        {
            *previous = to;
        }
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIME: Duration = Duration::from_millis(10);
    const MS: Duration = Duration::from_millis(1);

    /// Takes out every lease, the one that expires first at first.
    fn drain(queue: &mut ExpiryQueue<u64>) -> Vec<u64> {
        let far = Instant::now() + Duration::from_secs(3_600);
        std::iter::from_fn(|| queue.pop_expired(far)).collect()
    }

    #[test]
    fn a_lease_expires_at_its_time_and_not_before() {
        let start = Instant::now();
        let mut queue = ExpiryQueue::new();
        assert_eq!(queue.earliest(), None);
        let id = queue.insert("value", 7, start + TIME);
        assert_eq!((queue.len(), id.token), (1, 7));
        assert_eq!(queue.earliest(), Some(start + TIME));
        assert_eq!(queue.expires_at(id), Some(start + TIME));
        assert_eq!(queue.pop_expired(start + TIME - MS), None);
        assert_eq!(queue.pop_expired(start + TIME), Some("value"));
        assert_eq!((queue.len(), queue.earliest()), (0, None));
        assert_eq!((queue.expires_at(id), queue.remove(id)), (None, None));
    }

    #[test]
    fn a_slot_that_is_used_again_does_not_answer_to_its_old_token() {
        let start = Instant::now();
        let mut queue = ExpiryQueue::new();
        let old = queue.insert(1, 1, start + TIME);
        assert_eq!(queue.remove(old), Some(1));
        let new = queue.insert(2, 2, start + TIME);
        assert_eq!(old.slot, new.slot);
        assert_eq!((queue.expires_at(old), queue.remove(old)), (None, None));
        queue.extend(old, start, 2 * TIME, 2 * TIME);
        assert_eq!(queue.expires_at(new), Some(start + TIME));
        assert_eq!(queue.remove(new), Some(2));
        assert_eq!(queue.slots.len(), 1);
    }

    #[test]
    fn leases_are_taken_out_at_every_position() {
        let start = Instant::now();
        for removed in 0..3 {
            let mut queue = ExpiryQueue::new();
            let ids: Vec<_> = (0..3).map(|n| queue.insert(n, n, start + TIME)).collect();
            assert_eq!(queue.remove(ids[removed]), Some(removed as u64));
            let id = queue.insert(9, 9, start + TIME);
            assert_eq!(id.slot, removed);
            let mut expected = vec![0, 1, 2, 9];
            expected.remove(removed);
            assert_eq!(drain(&mut queue), expected);
            assert_eq!((queue.first, queue.last), (None, None));
        }
    }

    #[test]
    fn a_clock_that_was_read_earlier_does_not_disturb_the_order() {
        let start = Instant::now();
        let mut queue = ExpiryQueue::new();
        queue.insert(1, 1, start + TIME);
        let id = queue.insert(2, 2, start + TIME - MS);
        assert_eq!(queue.expires_at(id), Some(start + TIME));
        assert_eq!(drain(&mut queue), [1, 2]);
    }

    #[test]
    fn an_extension_is_never_shorter() {
        let start = Instant::now();
        let mut queue = ExpiryQueue::new();
        let id = queue.insert(1, 1, start + TIME);
        queue.insert(2, 2, start + TIME);
        // Not even its turn among those of the same instant changes.
        for time in [TIME, TIME - MS] {
            queue.extend(id, start, time, 2 * TIME);
            assert_eq!(queue.expires_at(id), Some(start + TIME));
        }
        assert_eq!(drain(&mut queue), [1, 2]);
    }

    #[test]
    fn an_extension_at_the_end_of_the_list_stays_in_the_list() {
        let start = Instant::now();
        let mut queue = ExpiryQueue::new();
        let first = queue.insert(1, 1, start + TIME);
        let second = queue.insert(2, 2, start + 2 * TIME);
        // As late as the last one, and as one that is granted now: the earliest that fits.
        queue.extend(first, start + TIME, TIME, TIME);
        assert!(queue.sorted.is_empty());
        // The last one itself, and the only one.
        queue.extend(first, start + 2 * TIME, TIME, TIME);
        assert_eq!(queue.remove(second), Some(2));
        queue.extend(first, start + 3 * TIME, TIME, TIME);
        assert!(queue.sorted.is_empty());
        assert_eq!(queue.expires_at(first), Some(start + 4 * TIME));
        assert_eq!(drain(&mut queue), [1]);
    }

    #[test]
    fn an_extension_that_is_not_the_latest_is_sorted() {
        let start = Instant::now();
        let mut queue = ExpiryQueue::new();
        let first = queue.insert(1, 1, start + TIME);
        queue.insert(2, 2, start + 3 * TIME);
        queue.extend(first, start, 2 * TIME, 3 * TIME);
        assert_eq!(queue.sorted.len(), 1);
        assert_eq!(queue.earliest(), Some(start + 2 * TIME));
        assert_eq!(drain(&mut queue), [1, 2]);
    }

    #[test]
    fn an_extension_beyond_the_lease_time_holds_up_no_later_lease() {
        let start = Instant::now();
        let mut queue = ExpiryQueue::new();
        let first = queue.insert(1, 1, start + TIME);
        queue.extend(first, start, 3 * TIME, TIME);
        assert_eq!(queue.sorted.len(), 1);
        let second = queue.insert(2, 2, start + TIME);
        assert_eq!(queue.expires_at(second), Some(start + TIME));
        // Extended again it leaves no trace of the expiry before; ended, no trace at all.
        queue.extend(first, start, 4 * TIME, TIME);
        assert_eq!((queue.sorted.len(), queue.len()), (1, 2));
        assert_eq!(queue.pop_expired(start + 3 * TIME), Some(2));
        assert_eq!(queue.pop_expired(start + 3 * TIME), None);
        assert_eq!(queue.remove(first), Some(1));
        assert!(queue.sorted.is_empty() && queue.earliest().is_none());
    }

    #[test]
    fn many_leases_leave_nothing_behind() {
        let now = Instant::now();
        for (many, is_kept) in [(SHRINK_ABOVE, true), (SHRINK_ABOVE + 1, false)] {
            let mut queue = ExpiryQueue::new();
            let ids: Vec<_> = (0..many as u64).map(|n| queue.insert(n, n, now)).collect();
            for (n, id) in ids.iter().enumerate().rev() {
                assert_eq!((queue.len(), queue.slots.len()), (n + 1, many));
                assert_eq!(queue.remove(*id), Some(n as u64));
            }
            assert_eq!(queue.slots.capacity() + queue.free.capacity() > 0, is_kept);
            assert_eq!(queue.len(), 0);
            // An old id names a slot that may not exist any more.
            assert_eq!(queue.expires_at(ids[many - 1]), None);
            queue.extend(ids[many - 1], now, TIME, TIME);
            queue.insert(1, 9_999, now);
            assert_eq!(drain(&mut queue), [1]);
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert,
        Remove(usize),
        Extend(usize, u64),
        Pass(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => Just(Step::Insert),
            2 => any::<usize>().prop_map(Step::Remove),
            2 => (any::<usize>(), 0..30_u64).prop_map(|(which, ms)| Step::Extend(which, ms)),
            1 => (0..12_u64).prop_map(Step::Pass),
        ];
        proptest::collection::vec(step, 0..80)
    }

    /// One lease of the naive model, and when its expiry was set among all that were.
    struct Naive {
        id: LeaseId,
        expires_at: Instant,
        set: usize,
    }

    proptest! {
        #![proptest_config(testkit_cases::cases(256))]

        /// The model is a list that is searched for everything.
        #[test]
        fn the_queue_is_a_list_sorted_by_expiry(steps in steps()) {
            let (mut now, mut token) = (Instant::now(), 0);
            let mut queue = ExpiryQueue::new();
            let mut naive: Vec<Naive> = Vec::new();
            for (set, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Insert => {
                        token += 1;
                        let expires_at = now + TIME;
                        let id = queue.insert(token, token, expires_at);
                        naive.push(Naive { id, expires_at, set });
                    }
                    Step::Remove(which) if !naive.is_empty() => {
                        let Naive { id, .. } = naive.remove(which % naive.len());
                        prop_assert_eq!(queue.remove(id), Some(id.token));
                        prop_assert_eq!(queue.remove(id), None);
                    }
                    Step::Extend(which, ms) if !naive.is_empty() => {
                        let which = which % naive.len();
                        let time = Duration::from_millis(ms);
                        let expires_at = now + time;
                        queue.extend(naive[which].id, now, time, TIME);
                        if naive[which].expires_at < expires_at {
                            (naive[which].expires_at, naive[which].set) = (expires_at, set);
                        }
                    }
                    Step::Remove(_) | Step::Extend(..) => {}
                    Step::Pass(ms) => {
                        now += Duration::from_millis(ms);
                        let expired = std::iter::from_fn(|| queue.pop_expired(now));
                        let expired: Vec<u64> = expired.collect();
                        let mut expected: Vec<Naive> =
                            naive.extract_if(.., |lease| lease.expires_at <= now).collect();
                        expected.sort_by_key(|lease| (lease.expires_at, lease.set));
                        let expected: Vec<u64> =
                            expected.iter().map(|lease| lease.id.token).collect();
                        prop_assert_eq!(expired, expected);
                    }
                }
                prop_assert_eq!(queue.len(), naive.len());
                let earliest = naive.iter().map(|lease| lease.expires_at).min();
                prop_assert_eq!(queue.earliest(), earliest);
                for Naive { id, expires_at, .. } in &naive {
                    prop_assert_eq!(queue.expires_at(*id), Some(*expires_at));
                    let other = LeaseId { token: id.token + 1_000, ..*id };
                    prop_assert_eq!(queue.expires_at(other), None);
                }
            }
        }
    }
}
