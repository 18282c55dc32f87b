//! Where the messages of a key come from.

use std::collections::BTreeMap;
use std::time::Duration;

use keylane_rt::clock;

use super::super::Engine;
use crate::engine::sources::SourceSlot;
use crate::engine::table::Listed;
use crate::lane::MessageView;
use crate::types::Spec;

/// How long the drivers may take to answer. They may be in a call of their source.
const PATIENCE: Duration = Duration::from_secs(1);

impl<T: Spec> Engine<T> {
    /// Asks the drivers of their sources where these messages come from, one after the other.
    pub(crate) async fn with_origins(&self, listed: Vec<Listed>) -> Vec<MessageView> {
        let asked = by_source(listed.iter().map(|(_, slot)| *slot));
        let mut views: Vec<_> = listed.into_iter().map(|(view, _)| view).collect();
        // All of them together have this time: a source that does not answer is not waited for
        // again.
        let until = clock::now() + PATIENCE;
        for (source, of) in asked {
            let slots = of.iter().map(|(_, slot)| *slot).collect();
            let Some(origins) = self.sources.origins(source, slots, until).await else {
                continue;
            };
            for ((place, _), origin) in of.into_iter().zip(origins) {
                views[place].origin = origin;
            }
        }
        views
    }
}

/// The messages of one source, by their places in a list.
fn by_source(slots: impl Iterator<Item = Option<SourceSlot>>) -> BTreeMap<u32, Vec<(usize, u32)>> {
    let mut sources = BTreeMap::<u32, Vec<_>>::new();
    for (place, slot) in slots.enumerate() {
        if let Some(SourceSlot { source, slot }) = slot {
            sources.entry(source).or_default().push((place, slot));
        }
    }
    sources
}
