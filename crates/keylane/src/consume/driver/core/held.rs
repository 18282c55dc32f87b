//! Messages that a source has handed over, and whose outcomes it must learn.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use keylane_source::Generation;

use keylane_rt::Slots;

/// Whether the source may still be told what becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum GenerationState {
    /// Its generation goes on.
    Live,
    /// Its generation ends, and the source waits for the last outcomes.
    Revoked,
    /// Its generation is over.
    Over,
}

/// One message that was handed over and has not settled.
#[derive(Debug)]
pub(super) struct HeldDelivery<P> {
    pub(super) position: P,
    pub(super) generation: Generation,
    /// Later ones have greater numbers.
    number: u64,
    /// The hash of its key. `None`: its lane may change, or it has none.
    hash: Option<NonZeroU64>,
    /// The producer's id, for the log.
    pub(super) id: Option<Box<str>>,
    pub(super) standing: GenerationState,
    /// Bytes of it that are here: none while it is deferred.
    bytes: u32,
    /// Whether the engine knows something of the slot that the next message in it must not inherit.
    pub(super) marked: bool,
    /// Whether the source wants it back, if it has not started.
    pub(super) recalled: bool,
}

/// All of them, by the slots that the engine knows.
#[derive(Debug)]
pub(super) struct Held<P> {
    slots: Slots<HeldDelivery<P>>,
    bytes: usize,
    /// How many there were.
    inserted: u64,
    /// How many of them the source has recalled.
    recalled: usize,
}

impl<P> Held<P> {
    pub(super) fn new() -> Self {
        Self {
            slots: Slots::new(),
            bytes: 0,
            inserted: 0,
            recalled: 0,
        }
    }

    /// A message was just handed over. Returns its slot.
    #[inline]
    pub(super) fn insert(
        &mut self,
        position: P,
        generation: Generation,
        id: Option<Box<str>>,
        bytes: u32,
        marked: bool,
    ) -> Option<u32> {
        self.inserted += 1;
        let slot = self.slots.insert(HeldDelivery {
            position,
            generation,
            number: self.inserted,
            hash: None,
            id,
            standing: GenerationState::Live,
            bytes,
            marked,
            recalled: false,
        })?;
        self.bytes += bytes as usize;
        Some(slot)
    }

    /// A message settles. `None`: it has done so before.
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) -> Option<HeldDelivery<P>> {
        let held = self.slots.remove(slot)?;
        self.bytes -= held.bytes as usize;
        self.recalled -= usize::from(held.recalled);
        Some(held)
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> Option<&HeldDelivery<P>> {
        self.slots.get(slot)
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn recalled(&self) -> usize {
        self.recalled
    }

    /// So many bytes of a message are here from now on.
    pub(super) fn set_bytes(&mut self, slot: u32, bytes: u32) {
        if let Some(held) = self.slots.get_mut(slot) {
            self.bytes -= std::mem::replace(&mut held.bytes, bytes) as usize;
            self.bytes += bytes as usize;
        }
    }

    /// The hash of the key of a message is known.
    #[inline]
    pub(super) fn set_hash(&mut self, slot: u32, hash: u64) {
        if let Some(held) = self.slots.get_mut(slot) {
            held.hash = NonZeroU64::new(hash);
        }
    }

    /// Of each generation that is not over the message that was handed over first, and the hash of
    /// its key. Looks at all that is held.
    pub(super) fn fronts(&self) -> Vec<(&P, u64)> {
        let mut fronts = BTreeMap::<Generation, &HeldDelivery<P>>::new();
        for (_, held) in self.slots.iter() {
            if held.standing == GenerationState::Over {
                continue;
            }
            let front = fronts.entry(held.generation).or_insert(held);
            if held.number < front.number {
                *front = held;
            }
        }
        let fronts = fronts.into_values();
        let known = fronts.filter_map(|held| Some((&held.position, held.hash?.get())));
        known.collect()
    }

    /// The engine knows something of these slots.
    pub(super) fn mark(&mut self, slots: &[u32]) {
        for slot in slots {
            if let Some(held) = self.slots.get_mut(*slot) {
                held.marked = true;
            }
        }
    }

    /// The source wants these back.
    pub(super) fn recall(&mut self, slots: &[u32]) {
        for slot in slots {
            if let Some(held) = self.slots.get_mut(*slot) {
                self.recalled += usize::from(!std::mem::replace(&mut held.recalled, true));
            }
        }
    }

    /// The generations of what is chosen end or are over. What is over stays so.
    pub(super) fn end(&mut self, to: GenerationState, chosen: impl Fn(&HeldDelivery<P>) -> bool) {
        for (_, held) in self.slots.iter_mut() {
            if chosen(held) {
                held.standing = held.standing.max(to);
            }
        }
    }

    /// The slots of what is chosen.
    pub(super) fn slots(&self, chosen: impl Fn(&HeldDelivery<P>) -> bool) -> Vec<u32> {
        let chosen = self.slots.iter().filter(|(_, held)| chosen(held));
        chosen.map(|(slot, _)| slot).collect()
    }
}

impl<P: Clone> Held<P> {
    /// The slots and positions of what is chosen.
    pub(super) fn positions(&self, chosen: impl Fn(&HeldDelivery<P>) -> bool) -> Vec<(u32, P)> {
        let chosen = self.slots.iter().filter(|(_, held)| chosen(held));
        let chosen = chosen.map(|(slot, held)| (slot, held.position.clone()));
        chosen.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_generation_that_goes_on_holds_it_back() {
        let mut held = Held::new();
        let mut slots = Vec::new();
        for (position, generation) in [(1, 7), (5, 8), (2, 7), (6, 8), (9, 9), (10, 9)] {
            let slot = held.insert(position, Generation(generation), None, 0, false);
            held.set_hash(slot.unwrap(), position);
            slots.push(slot.unwrap());
        }
        assert_eq!(held.fronts(), [(&1, 1), (&5, 5), (&9, 9)]);
        held.remove(slots[0]);
        // The slot is used again, and what is in it now came last.
        let again = held.insert(3, Generation(7), None, 0, false);
        assert_eq!(again, Some(slots[0]));
        assert_eq!(held.fronts(), [(&2, 2), (&5, 5), (&9, 9)]);
        // Whose key is not known: the one behind it is not taken for the first.
        held.set_hash(slots[1], 0);
        held.end(GenerationState::Over, |held| {
            held.generation == Generation(9)
        });
        assert_eq!(held.fronts(), [(&2, 2)]);
    }
}
