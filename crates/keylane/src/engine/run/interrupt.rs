//! A handler or a sink that was dropped before it was done.

use crate::engine::message::Envelope;
use crate::engine::outcome::Tally;
use crate::engine::{Engine, HandedBack, Stage};
use crate::rt::Arc;
use crate::types::Spec;

impl<T: Spec> Engine<T> {
    /// A handler or a sink was dropped in the middle: by an abort, or because the runtime goes away,
    /// which counts as one. The message goes back, and nothing of its key runs after it.
    pub(super) fn interrupted(
        self: &Arc<Self>,
        lane: Option<T::Key>,
        hash: u64,
        envelope: Envelope<T>,
        back: HandedBack<T::Key, T::Message>,
    ) {
        self.shutdown.interrupted();
        self.shutdown.advance(Stage::Aborting);
        let mut tally = Tally::default();
        self.hand_back(&mut tally, back, envelope);
        self.release_handing_back(&mut tally, lane, hash);
        self.flush(&mut tally);
    }
}
