//! Values behind small numbers. Pure.

/// Values, each in a slot of its own until it is taken out.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Slots<T> {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            len: 0,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Keeps a value, and returns its slot. `None`: there are 2^32 of them.
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> Option<u32> {
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

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// Takes a value out. `None`: the slot is free.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) -> Option<T> {
        let value = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        self.len -= 1;
        Some(value)
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = T> {
        self.slots.into_iter().flatten()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(slot, value)| Some((slot as u32, value.as_ref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
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
