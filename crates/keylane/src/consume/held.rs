//! Which position is behind a slot. Pure.

use crate::source::Generation;

/// Whether the source may still be told what becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Its generation goes on.
    Live,
    /// Its generation ends, and the source waits for the last outcomes.
    Revoked,
    /// Its generation is over.
    Over,
}

/// One message that was handed over and has not settled.
#[derive(Debug)]
pub(super) struct Held<P> {
    pub(super) position: P,
    pub(super) generation: Generation,
    pub(super) standing: Standing,
    /// Whether the engine knows something of the slot that the next message in it must not inherit.
    pub(super) marked: bool,
}

/// All held messages of one source.
#[derive(Debug)]
pub(super) struct HeldTable<P> {
    slots: Vec<Option<Held<P>>>,
    free: Vec<u32>,
    len: usize,
}

impl<P> HeldTable<P> {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            len: 0,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Keeps a message, and returns its slot. `None`: there are 2^32 of them.
    #[inline]
    pub(super) fn insert(&mut self, position: P, generation: Generation) -> Option<u32> {
        let held = Some(Held {
            position,
            generation,
            standing: Standing::Live,
            marked: false,
        });
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = held;
                slot
            }
            None => {
                let slot = u32::try_from(self.slots.len()).ok()?;
                self.slots.push(held);
                slot
            }
        };
        self.len += 1;
        Some(slot)
    }

    pub(super) fn get(&self, slot: u32) -> Option<&Held<P>> {
        self.slots.get(slot as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Held<P>> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// Takes a message out. `None`: the slot is free.
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) -> Option<Held<P>> {
        let held = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        self.len -= 1;
        Some(held)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Held<P>)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(slot, held)| Some((slot as u32, held.as_ref()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Held<P>)> {
        let slots = self.slots.iter_mut().enumerate();
        slots.filter_map(|(slot, held)| Some((slot as u32, held.as_mut()?)))
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_free_again_once_its_message_is_out() {
        let mut held = HeldTable::new();
        let slots = ["a", "b", "c"].map(|position| held.insert(position, Generation(0)));
        assert_eq!(slots, [Some(0), Some(1), Some(2)]);
        let second = held.remove(1).expect("it is there");
        assert_eq!((second.position, held.len()), ("b", 2));
        assert!(held.remove(1).is_none() && held.remove(9).is_none());
        assert_eq!(held.insert("d", Generation(1)), Some(1));
        let positions: Vec<_> = held
            .iter()
            .map(|(slot, held)| (slot, held.position))
            .collect();
        assert_eq!(positions, [(0, "a"), (1, "d"), (2, "c")]);
    }
}
