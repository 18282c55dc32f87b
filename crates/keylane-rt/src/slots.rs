//! Values behind small numbers. Pure.

/// Values, each in a slot of its own until it is taken out.
#[derive(Debug)]
pub struct Slots<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slots<T> {
    /// Returns an empty collection.
    pub fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            len: 0,
        }
    }

    /// Returns whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of values.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Keeps a value, and returns its slot. `None`: there are 2^32 of them.
    #[inline]
    pub fn insert(&mut self, value: T) -> Option<u32> {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(value);
                slot
            }
            None => {
                let slot = u32::try_from(self.slots.len()).ok()?;
                self.slots.push(Some(value));
                slot
            }
        };
        self.len += 1;
        Some(slot)
    }

    /// Returns the value of a slot.
    #[inline]
    pub fn get(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// Returns the value of a slot, to be changed.
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// Takes a value out. `None`: the slot is free.
    #[inline]
    pub fn remove(&mut self, slot: u32) -> Option<T> {
        let value = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        self.len -= 1;
        Some(value)
    }

    /// Returns all values, by their slots.
    pub fn into_values(self) -> impl Iterator<Item = T> {
        self.slots.into_iter().flatten()
    }

    /// Returns all values with their slots.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(slot, value)| Some((slot as u32, value.as_ref()?)))
    }

    /// Returns all values with their slots, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let slots = self.slots.iter_mut().enumerate();
        slots.filter_map(|(slot, value)| Some((slot as u32, value.as_mut()?)))
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_free_again_once_its_value_is_out() {
        let mut slots = Slots::new();
        let three = ["a", "b", "c"].map(|value| slots.insert(value));
        assert_eq!(three, [Some(0), Some(1), Some(2)]);
        assert_eq!((slots.remove(1), slots.len()), (Some("b"), 2));
        assert!(slots.remove(1).is_none() && slots.remove(9).is_none());
        assert_eq!(slots.insert("d"), Some(1));
        let values: Vec<_> = slots.iter().map(|(slot, value)| (slot, *value)).collect();
        assert_eq!(values, [(0, "a"), (1, "d"), (2, "c")]);
    }
}
