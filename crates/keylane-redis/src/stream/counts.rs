//! The counters of a source.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use keylane_connector::{Repeats, lock};
use tokio::time::Instant;

/// The counters of a source, over all its streams.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// Streams that it owns now.
    pub owned: u64,
    /// How often it took a stream over.
    pub gained: u64,
    /// How often a stream left it, by a rebalance or a loss. Streams that leave because of a
    /// connection error, or at the end, do not count.
    pub gone: u64,
    /// Pending entries that were deleted or trimmed before they were handled, and are lost. The
    /// source acks them. Entries that were cut off before they were read are not among them: the
    /// server does not know them any more.
    pub bodiless: u64,
    /// How often a stream was lost because it, its group or the consumer in it was removed or
    /// created again, or because its server has another history: a replica was promoted, or a node
    /// was restarted.
    pub changed: u64,
    /// Acks without effect: another process owned the stream already, the stream had changed, or
    /// the server refused them. Their messages may come again.
    pub refused: u64,
    /// Entries that were trimmed because all groups had acked them.
    pub trimmed: u64,
    /// How often a former owner had read entries after the take-over.
    pub strays: u64,
}

/// A handle: its clones share the counters.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    counts: Arc<Mutex<StreamCounts>>,
    gone: Arc<Mutex<Gone>>,
}

/// Entries that were gone and were not logged yet, by the number of their stream.
#[derive(Debug, Default)]
struct Gone {
    unsaid: BTreeMap<u32, u64>,
    repeats: Repeats<u32>,
}

impl Counters {
    pub(super) fn add(&self, add: impl FnOnce(&mut StreamCounts)) {
        add(&mut lock(&self.counts));
    }

    /// Counts pending entries of a stream that were gone.
    pub(super) fn add_gone(&self, stream: u32, entries: u64) {
        if entries > 0 {
            self.add(|counts| counts.bodiless += entries);
            *lock(&self.gone).unsaid.entry(stream).or_default() += entries;
        }
    }

    /// Returns how many entries of a stream were gone, if that is to be logged now.
    pub(super) fn gone_to_say(&self, stream: u32) -> Option<u64> {
        let Gone { unsaid, repeats } = &mut *lock(&self.gone);
        let entries = *unsaid.get(&stream)?;
        repeats.hear(stream, Instant::now())?;
        unsaid.remove(&stream);
        Some(entries)
    }

    pub(super) fn get(&self) -> StreamCounts {
        *lock(&self.counts)
    }
}
