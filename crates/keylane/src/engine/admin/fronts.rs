//! Which keys hold a source back.

use std::time::Duration;

use keylane_rt::clock;

use super::super::Engine;
use crate::lane::HoldingBack;
use crate::types::Spec;

/// How long the driver may take to answer. It may be in a call of its source.
const PATIENCE: Duration = Duration::from_millis(250);

impl<T: Spec> Engine<T> {
    /// Asks the driver of a source which messages hold it back, and finds their keys.
    pub(crate) async fn holding_back(&self, source: u32) -> Vec<HoldingBack<T::Key>> {
        let until = clock::now() + PATIENCE;
        let fronts = self.sources.fronts(source, until).await;
        let fronts = fronts.into_iter().flatten();
        let holding = fronts.filter_map(|front| {
            // Without a lane the message has just come, or has settled since.
            let key = self.table.key_of(front.hash)?;
            let origin = front.origin;
            Some(HoldingBack { key, origin })
        });
        holding.collect()
    }
}
