//! The messages behind the head of a lane.

use keylane_rt::{Mutex, lock};

use super::super::item::Item;
use super::deque::Deque;
use super::effects::Effects;

/// Most bytes of emptied backlogs that are kept for reuse, over all lanes: about what the messages
/// of a full dispatcher take, if they are small and its capacity is the default.
const SPARE_BYTES: usize = 4 << 20;

/// The parked messages of a lane, the oldest first.
///
/// Boxed and absent in most lanes, which hold one message at a time: such a lane is made, moved and
/// dropped at the price of a few words.
#[derive(Debug)]
pub struct Backlog<T>(pub(super) Option<Box<Contents<T>>>);

#[derive(Debug)]
pub(super) struct Contents<T> {
    pub(super) messages: Deque<T>,
    /// When the timer of the first message that expires goes off, in nanoseconds since the epoch of
    /// the rules. It is here because only parked messages have such a timer.
    expiry: Option<u64>,
}

impl<T> Backlog<T> {
    #[inline]
    pub(super) const fn new() -> Self {
        Self(None)
    }

    /// Returns the number of messages.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |parked| parked.messages.len())
    }

    /// Returns whether there is no message.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0
            .as_ref()
            .is_none_or(|parked| parked.messages.is_empty())
    }

    /// Returns the messages, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|parked| parked.messages.iter())
    }

    /// Returns the messages, the oldest first, to be changed.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        let parked = self.0.iter_mut();
        parked.flat_map(|parked| parked.messages.iter_mut())
    }

    /// Returns the oldest message.
    #[inline]
    pub fn oldest(&self) -> Option<&T> {
        self.0.as_ref()?.messages.front()
    }

    #[inline]
    pub(super) fn newest(&self) -> Option<&T> {
        self.0.as_ref()?.messages.back()
    }

    /// Gives up the messages for which `keep` returns `false`.
    pub fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        if let Some(parked) = &mut self.0 {
            parked.messages.retain(keep);
        }
    }

    // Otherwise it depends on the program around it whether it is inlined.
    #[inline(always)]
    pub(super) fn push(&mut self, item: T, spares: &Spares<T>) {
        let parked = self.0.get_or_insert_with(|| spares.take());
        parked.messages.push_back(item);
    }

    /// Parks a message in front of all others. It was out and has not started, or has failed.
    #[inline]
    pub(super) fn push_front(&mut self, item: T, spares: &Spares<T>) {
        let parked = self.0.get_or_insert_with(|| spares.take());
        parked.messages.push_front(item);
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        self.0.as_mut()?.messages.pop_front()
    }

    #[inline]
    pub(super) fn pop_newest(&mut self) -> Option<T> {
        self.0.as_mut()?.messages.pop_back()
    }

    /// Takes out every message that is chosen, in order.
    pub(super) fn extract(&mut self, chosen: impl FnMut(&T) -> bool) -> Vec<T> {
        let parked = self.0.as_mut();
        parked.map_or_else(Vec::new, |parked| parked.messages.extract(chosen))
    }

    /// Takes the armed timer away, if it goes off at this time. Returns whether it does.
    pub(super) fn take_expiry(&mut self, at: u64) -> bool {
        let Some(parked) = &mut self.0 else {
            return false;
        };
        let is_armed = parked.expiry == Some(at);
        if is_armed {
            parked.expiry = None;
        }
        is_armed
    }

    /// Disarms a timer that was asked for and is not armed after all: there are too many.
    pub fn disarm_expiry(&mut self) {
        if let Some(parked) = &mut self.0 {
            parked.expiry = None;
        }
    }

    /// Gives the memory of an emptied backlog to the next one.
    #[inline]
    pub(super) fn recycle(self, spares: &Spares<T>) {
        if let Some(parked) = self.0 {
            spares.give(parked);
        }
    }
}

impl<T: Item> Backlog<T> {
    /// The class of the first message: the lane is as urgent as that.
    #[inline]
    pub(super) fn class(&self) -> u8 {
        self.oldest().map_or(0, Item::class)
    }

    /// Returns the number of messages that were merged into those that are parked.
    pub(super) fn merged_len(&self) -> usize {
        self.iter().map(Item::merged_len).sum()
    }

    /// Parks a message that was out in front of all others, and has its expiry watched.
    pub(super) fn take_back<H, G>(
        &mut self,
        item: T,
        spares: &Spares<T>,
        effects: &mut Effects<T, H, G>,
    ) {
        let expires_at = item.expires_at();
        self.push_front(item, spares);
        self.arm_expiry(expires_at, effects);
    }

    /// Arms the timer of a message that expires then, if no timer is armed that goes off before.
    #[inline]
    pub(super) fn arm_expiry<H, G>(&mut self, at: Option<u64>, effects: &mut Effects<T, H, G>) {
        if let (Some(at), Some(parked)) = (at, &mut self.0)
            && parked.expiry.is_none_or(|armed| armed > at)
        {
            parked.expiry = Some(at);
            effects.expires_at = Some(at);
        }
    }
}

impl<T> Contents<T> {
    fn new() -> Self {
        Self {
            messages: Deque::new(),
            expiry: None,
        }
    }

    /// What it takes in memory, once it is empty.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.messages.bytes()
    }
}

/// Emptied backlogs, so that lanes which come and go do not come and go to the allocator: also
/// where there are thousands at a time, and each holds a few messages.
///
/// Its lock is taken under a shard's lock and is the innermost one.
#[derive(Debug)]
pub struct Spares<T>(Mutex<Kept<T>>);

#[derive(Debug)]
#[allow(
    clippy::vec_box,
    reason = "boxed as lanes hold them, so that taking one is a move of a pointer"
)]
struct Kept<T> {
    backlogs: Vec<Box<Contents<T>>>,
    /// What they take, together.
    bytes: usize,
}

impl<T> Spares<T> {
    pub fn new() -> Self {
        Self(Mutex::new(Kept {
            backlogs: Vec::new(),
            bytes: 0,
        }))
    }

    pub(super) fn take(&self) -> Box<Contents<T>> {
        let mut kept = lock(&self.0);
        let Some(backlog) = kept.backlogs.pop() else {
            return Box::new(Contents::new());
        };
        kept.bytes -= backlog.bytes();
        backlog
    }

    fn give(&self, mut backlog: Box<Contents<T>>) {
        debug_assert!(backlog.messages.is_empty(), "a spare backlog holds nothing");
        // The next lane may be a short one, and there are many of these.
        backlog.messages.shrink();
        backlog.expiry = None;
        let bytes = backlog.bytes();
        let mut kept = lock(&self.0);
        if kept.bytes + bytes <= SPARE_BYTES {
            kept.bytes += bytes;
            kept.backlogs.push(backlog);
        }
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;

    /// An emptied backlog that has held this many messages.
    fn emptied(messages: u32) -> Box<Contents<u32>> {
        let mut backlog = Box::new(Contents::new());
        (0..messages).for_each(|message| backlog.messages.push_back(message));
        while backlog.messages.pop_front().is_some() {}
        backlog
    }

    #[test]
    fn emptied_backlogs_are_used_again() {
        let spares = Spares::new();
        let long = 256;
        let backlog = emptied(long);
        let before = backlog.messages.bytes();
        spares.give(backlog);
        let taken = spares.take().messages.bytes();
        assert!(taken > 0 && taken < before, "most chunks are given up");
        assert_eq!(spares.take().messages.bytes(), 0, "there was one");
        let most = SPARE_BYTES / (taken + size_of::<Contents<u32>>());
        for _ in 0..most + 9 {
            spares.give(emptied(long));
        }
        assert_eq!(lock(&spares.0).backlogs.len(), most);
        (0..most + 9).for_each(|_| drop(spares.take()));
        assert_eq!(lock(&spares.0).bytes, 0);
    }
}
