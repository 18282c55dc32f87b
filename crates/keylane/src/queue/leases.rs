//! What is leased, and until when. No lock, no clock.

use std::collections::BTreeMap;

use super::desk::MANY;
use crate::clock::Instant;

/// Every lease that has neither ended nor run out.
///
/// A slot per lease. Those that end in the order in which they were granted, which is all of them
/// unless somebody extends one, form a line through the slots, so none of the steps searches. A lease
/// that was extended beyond its place in the line stands apart, sorted by its end.
pub(super) struct Leases<T> {
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
    first: Option<usize>,
    last: Option<usize>,
    apart: BTreeMap<End, usize>,
    /// How many ends were set.
    ends: u64,
}

/// When a lease ends; those that end at the same time do so in the order in which that was set.
type End = (Instant, u64);

enum Slot<T> {
    Free,
    Held(Held<T>),
}

struct Held<T> {
    value: T,
    token: u64,
    end: End,
    place: Place,
}

#[derive(Clone, Copy)]
enum Place {
    Line {
        before: Option<usize>,
        behind: Option<usize>,
    },
    Apart,
}

impl<T> Leases<T> {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            first: None,
            last: None,
            apart: BTreeMap::new(),
            ends: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Adds a lease, and returns its slot.
    ///
    /// It ends no earlier than the last one in the line: two who grant at the same time may have
    /// read the clock in the other order.
    pub(super) fn grant(&mut self, value: T, token: u64, until: Instant) -> usize {
        let latest = self.last.and_then(|last| self.held(last));
        let until = latest.map_or(until, |last| last.end.0.max(until));
        let held = Slot::Held(Held {
            value,
            token,
            end: self.end(until),
            place: Place::Apart,
        });
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot] = held;
                slot
            }
            None => {
                self.slots.push(held);
                self.slots.len() - 1
            }
        };
        self.append(slot);
        slot
    }

    /// The end of a lease, while there is one with this token.
    pub(super) fn until(&self, slot: usize, token: u64) -> Option<Instant> {
        let held = self.held(slot)?;
        #[cfg(not(keylane_mutant = "queue-token"))]
        if held.token != token {
            return None;
        }
        #[cfg(keylane_mutant = "queue-token")]
        let _ = token;
        Some(held.end.0)
    }

    /// Ends a lease, if there is one with this token.
    pub(super) fn take(&mut self, slot: usize, token: u64) -> Option<T> {
        self.until(slot, token)?;
        self.unlink(slot);
        match std::mem::replace(&mut self.slots[slot], Slot::Free) {
            Slot::Held(held) => {
                self.free.push(slot);
                if self.len() == 0 && self.slots.len() > MANY {
                    *self = Self::new();
                }
                Some(held.value)
            }
            Slot::Free => None,
        }
    }

    /// Moves the end of a lease to a later time. `horizon` is when a lease would end that is granted
    /// now: up to there the place in the line can be kept sorted.
    pub(super) fn extend(&mut self, slot: usize, token: u64, until: Instant, horizon: Instant) {
        let Some(old) = self.until(slot, token) else {
            return;
        };
        if until <= old {
            return;
        }
        self.unlink(slot);
        let latest = self.last.and_then(|last| self.held(last));
        let fits = until <= horizon && latest.is_none_or(|last| last.end.0 <= until);
        let end = self.end(until);
        if let Slot::Held(held) = &mut self.slots[slot] {
            held.end = end;
            held.place = Place::Apart;
        }
        if fits {
            self.append(slot);
        } else {
            self.apart.insert(end, slot);
        }
    }

    /// When the next lease ends.
    pub(super) fn earliest(&self) -> Option<Instant> {
        Some(self.next()?.0.0)
    }

    /// Takes a lease that has run out, the earliest first.
    pub(super) fn run_out(&mut self, now: Instant) -> Option<T> {
        let (_, slot) = self.next().filter(|((until, _), _)| *until <= now)?;
        let token = self.held(slot)?.token;
        self.take(slot, token)
    }

    /// The lease that ends next: the first in the line, or the first of those apart.
    fn next(&self) -> Option<(End, usize)> {
        let line = self
            .first
            .and_then(|slot| Some((self.held(slot)?.end, slot)));
        let apart = self
            .apart
            .first_key_value()
            .map(|(end, slot)| (*end, *slot));
        line.into_iter().chain(apart).min()
    }

    fn end(&mut self, until: Instant) -> End {
        self.ends += 1;
        (until, self.ends)
    }

    fn held(&self, slot: usize) -> Option<&Held<T>> {
        match self.slots.get(slot)? {
            Slot::Held(held) => Some(held),
            Slot::Free => None,
        }
    }

    /// Puts a lease at the end of the line.
    fn append(&mut self, slot: usize) {
        let before = self.last.replace(slot);
        self.set_place(
            slot,
            Place::Line {
                before,
                behind: None,
            },
        );
        match before {
            Some(before) => self.set_behind(before, Some(slot)),
            None => self.first = Some(slot),
        }
    }

    /// Takes a lease out of the line, or from those apart.
    fn unlink(&mut self, slot: usize) {
        let Some(held) = self.held(slot) else { return };
        match held.place {
            Place::Apart => {
                let end = held.end;
                self.apart.remove(&end);
            }
            Place::Line { before, behind } => {
                match before {
                    Some(before) => self.set_behind(before, behind),
                    None => self.first = behind,
                }
                match behind {
                    Some(behind) => self.set_before(behind, before),
                    None => self.last = before,
                }
            }
        }
    }

    fn set_place(&mut self, slot: usize, place: Place) {
        if let Slot::Held(held) = &mut self.slots[slot] {
            held.place = place;
        }
    }

    fn set_behind(&mut self, slot: usize, to: Option<usize>) {
        if let Slot::Held(Held {
            place: Place::Line { behind, .. },
            ..
        }) = &mut self.slots[slot]
        {
            *behind = to;
        }
    }

    fn set_before(&mut self, slot: usize, to: Option<usize>) {
        if let Slot::Held(Held {
            place: Place::Line { before, .. },
            ..
        }) = &mut self.slots[slot]
        {
            *before = to;
        }
    }
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Grant,
        Take(usize),
        Extend(usize, u64),
        Pass(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => Just(Step::Grant),
            2 => any::<usize>().prop_map(Step::Take),
            2 => (any::<usize>(), 0..30_u64).prop_map(|(which, ms)| Step::Extend(which, ms)),
            1 => (0..12_u64).prop_map(Step::Pass),
        ];
        proptest::collection::vec(step, 0..80)
    }

    const LENGTH: Duration = Duration::from_millis(10);

    #[test]
    fn many_leases_leave_nothing_behind() {
        let now = Instant::now();
        let mut leases = Leases::new();
        let slots: Vec<_> = (0..5_000).map(|n| leases.grant(n, n, now)).collect();
        for (token, slot) in slots.into_iter().enumerate().rev() {
            assert!(leases.take(slot, token as u64).is_some());
        }
        assert_eq!(leases.slots.capacity() + leases.free.capacity(), 0);
        // Whoever still has a slot of those days is told that its lease is over.
        assert_eq!(leases.until(4_999, 4_999), None);
        let slot = leases.grant(1, 5_001, now);
        assert_eq!(leases.run_out(now), Some(1));
        assert_eq!(leases.take(slot, 5_001), None);
    }

    proptest! {
        /// A list that is searched for everything.
        #[test]
        fn the_line_is_a_list_sorted_by_time(steps in steps()) {
            let origin = Instant::now();
            let (mut now, mut token) = (origin, 0);
            let mut leases = Leases::new();
            let mut naive: Vec<(usize, u64, Instant)> = Vec::new();
            for step in steps {
                match step {
                    Step::Grant => {
                        token += 1;
                        let slot = leases.grant(token, token, now + LENGTH);
                        naive.push((slot, token, now + LENGTH));
                    }
                    Step::Take(which) if !naive.is_empty() => {
                        let (slot, token, _) = naive.remove(which % naive.len());
                        prop_assert_eq!(leases.take(slot, token), Some(token));
                        prop_assert_eq!(leases.take(slot, token), None);
                    }
                    Step::Extend(which, ms) if !naive.is_empty() => {
                        let at = which % naive.len();
                        let (slot, token, until) = naive[at];
                        let wanted = now + Duration::from_millis(ms);
                        leases.extend(slot, token, wanted, now + LENGTH);
                        naive[at].2 = until.max(wanted);
                    }
                    Step::Take(_) | Step::Extend(..) => {}
                    Step::Pass(ms) => {
                        now += Duration::from_millis(ms);
                        let mut out: Vec<u64> = Vec::new();
                        let mut before = None;
                        while let Some(token) = leases.run_out(now) {
                            let (_, _, until) = naive.iter().find(|held| held.1 == token).unwrap();
                            prop_assert!(before.is_none_or(|before| before <= *until));
                            before = Some(*until);
                            out.push(token);
                        }
                        naive.retain(|(_, token, until)| {
                            let gone = *until <= now;
                            assert_eq!(gone, out.contains(token));
                            !gone
                        });
                    }
                }
                prop_assert_eq!(leases.len(), naive.len());
                prop_assert_eq!(leases.earliest(), naive.iter().map(|held| held.2).min());
                for (slot, token, until) in &naive {
                    prop_assert_eq!(leases.until(*slot, *token), Some(*until));
                    prop_assert_eq!(leases.until(*slot, *token + 1), None);
                }
            }
        }
    }
}
