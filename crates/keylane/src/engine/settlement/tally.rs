//! Settlements that are not counted yet.

/// Settlements whose room has not been returned yet.
///
/// A runner that settles many messages in a row returns their room together, and always before it
/// waits.
///
/// Small and without alignment, because each handler in flight has one.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(super) done: u8,
    pub(super) room: u8,
    bytes: [u8; 4],
}

impl Tally {
    /// Most settlements before a flush. Each may wake a sender that waits for room, which costs as
    /// much as several messages.
    pub(crate) const MOST: u32 = 128;

    /// Adds the bytes of one message. False: a flush is needed first.
    #[inline]
    pub(super) fn add_bytes(&mut self, bytes: u32) -> bool {
        let sum = u32::from_ne_bytes(self.bytes).checked_add(bytes);
        if let Some(sum) = sum {
            self.bytes = sum.to_ne_bytes();
        }
        sum.is_some()
    }

    /// Takes the messages and bytes to return.
    #[inline]
    pub(super) fn take_room(&mut self) -> (usize, usize) {
        let bytes = u32::from_ne_bytes(std::mem::take(&mut self.bytes));
        (std::mem::take(&mut self.room).into(), bytes as usize)
    }

    /// Whether there is nothing to return.
    pub(crate) fn is_empty(&self) -> bool {
        self.done == 0 && self.room == 0 && self.bytes == [0; 4]
    }
}
