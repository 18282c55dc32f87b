//! Messages that a source has handed over, and whose outcomes it must learn.

use keylane_source::Generation;

/// Whether the source may still be told what becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    pub(super) standing: GenerationState,
    /// Bytes of it that are here: none while it is deferred.
    pub(super) bytes: u32,
    /// Whether the engine knows something of the slot that the next message in it must not inherit.
    pub(super) marked: bool,
    /// Whether the source wants it back, if it has not started.
    pub(super) recalled: bool,
}

impl<P> HeldDelivery<P> {
    /// A message that was just handed over.
    #[inline]
    pub(super) fn new(position: P, generation: Generation, bytes: u32) -> Self {
        Self {
            position,
            generation,
            standing: GenerationState::Live,
            bytes,
            marked: false,
            recalled: false,
        }
    }
}
