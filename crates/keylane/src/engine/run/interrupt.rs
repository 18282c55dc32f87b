//! A handler or a sink that was dropped before it returned.

use keylane_rt::Arc;

use crate::engine::message::Envelope;
use crate::engine::settlement::Tally;
use crate::engine::{Engine, HandedBack, Stage};
use crate::types::Spec;

impl<T: Spec> Engine<T> {
    /// Handles a handler or a sink that was dropped while it ran: by an abort, or because the
    /// runtime ends, which counts as an abort. The message is handed back, and no later job of its
    /// key starts.
    pub(super) fn interrupted(
        self: &Arc<Self>,
        lane: Option<T::Key>,
        hash: u64,
        envelope: Envelope<T>,
        back: HandedBack<T::Key, T::Message>,
        ended: u32,
    ) {
        self.shutdown.count_interrupted();
        self.shutdown.enter(Stage::Aborting);
        let mut tally = Tally::default();
        self.settlement
            .hand_back_after(&mut tally, back, ended, envelope);
        self.table.release_handing_back(&mut tally, lane, hash);
        self.settlement.flush(&mut tally);
    }
}
