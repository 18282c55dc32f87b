//! The charge of a message: its room, its attempts, its class.

use std::cell::Cell;

/// What a message takes up until it settles. Without a word in it, so that it fits beside the tag
/// of its obligation.
#[derive(Debug)]
pub(crate) struct Charge {
    weight: [u8; 4],
    pub(crate) standing: RoomState,
    /// Attempts that are over and done with, because an operator resumed it or its batch failed; no
    /// more than 255 are counted.
    pub(crate) earlier: u8,
    /// How urgent it is; 0 is the most urgent.
    pub(crate) class: u8,
}

/// Where the room of a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoomState {
    /// It counts against the capacity.
    Counted,
    /// It is counted among the stalled.
    Stalled,
    /// The message has its outcome, and its room was given back.
    Settled,
}

thread_local! {
    /// Messages that were lost on this thread while a panic unwound.
    static LOST: Cell<u64> = const { Cell::new(0) };
}

/// Takes the number of messages that a panic of the key's own `Eq`, `Clone` or `Drop` lost on this
/// thread. The code that catches the panic counts them.
pub(in super::super) fn take_lost() -> u64 {
    LOST.try_with(Cell::take).unwrap_or(0)
}

impl Charge {
    /// The charge of a message that has just been accepted.
    #[inline]
    pub(super) fn new(weight: u32) -> Self {
        Self {
            weight: weight.to_ne_bytes(),
            standing: RoomState::Counted,
            earlier: 0,
            class: 0,
        }
    }

    /// The charge of nothing.
    #[inline]
    fn settled() -> Self {
        Self {
            weight: [0; 4],
            standing: RoomState::Settled,
            earlier: 0,
            class: 0,
        }
    }

    /// Moves it out; what stays is the charge of nothing.
    #[inline]
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::settled())
    }

    /// Size against the capacity in bytes.
    #[inline]
    pub(crate) fn weight(&self) -> u32 {
        u32::from_ne_bytes(self.weight)
    }

    pub(crate) fn set_weight(&mut self, weight: u32) {
        self.weight = weight.to_ne_bytes();
    }
}

impl Drop for Charge {
    #[inline]
    fn drop(&mut self) {
        // Without a panic this happens only when the runtime shuts down.
        if self.standing != RoomState::Settled && std::thread::panicking() {
            let _ = LOST.try_with(|lost| lost.set(lost.get() + 1));
        }
    }
}
