//! Which keys hold a source back.

use std::time::Duration;

use keylane_rt::clock;

use super::control::Control;
use crate::engine::Engine;
use crate::lane::HoldingBack;
use crate::types::Spec;

/// How long the driver may take to answer. It may be in a call of its source.
const PATIENCE: Duration = Duration::from_millis(250);

/// Asks the driver of a source which messages hold it back, and finds their keys.
pub(super) async fn holding_back<T: Spec>(
    engine: &Engine<T>,
    control: &Control,
) -> Vec<HoldingBack<T::Key>> {
    let fronts = match control.place.get() {
        Some((id, source)) if *id == engine.id() => {
            let until = clock::now() + PATIENCE;
            engine.sources.fronts(*source, until).await
        }
        _ => None,
    };
    let holding = fronts.into_iter().flatten().filter_map(|front| {
        // Without a lane the message has just come, or has settled since.
        let key = engine.table.key_of(front.hash)?;
        let origin = front.origin;
        Some(HoldingBack { key, origin })
    });
    holding.collect()
}
