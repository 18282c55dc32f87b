//! The final report of a spool.

use std::fmt;

use super::core::{Counts, Left};
use super::journal::DiskError;
use super::message::Spooled;

/// The outcomes of all messages.
///
/// `accepted + recovered = delivered + dead_lettered + dropped + skipped + left_on_disk +
/// left_in_memory`.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpoolReport {
    /// Messages accepted since the spool was opened.
    pub accepted: u64,
    /// Messages found in the directory when it was opened.
    pub recovered: u64,
    /// Messages that the sink has confirmed.
    pub delivered: u64,
    /// Messages that the sink refused and the dead letters have accepted.
    pub dead_lettered: u64,
    /// Messages dropped under [`AtLimit::DropOldest`](super::AtLimit::DropOldest).
    pub dropped: u64,
    /// Messages removed with [`Spool::skip`](super::Spool::skip).
    pub skipped: u64,
    /// Messages that the next [`open`](super::SpoolBuilder::open) of the directory delivers. Some of
    /// them may have reached the sink without being confirmed. If it is
    /// [`displaced`](Self::displaced), the next `open` finds none of them.
    pub left_on_disk: u64,
    /// Messages that were neither delivered nor stored: there is no directory, it could not be
    /// written, or it is [`displaced`](Self::displaced). The failed commit may have come through;
    /// then the next [`open`](super::SpoolBuilder::open) delivers them, with the same ids.
    pub left_in_memory: u64,
    /// The messages of `left_in_memory`, in their order, in the first report.
    pub returned: Vec<Spooled>,
    /// The reason why the next [`open`](super::SpoolBuilder::open) does not find the messages on the
    /// disk: the file was removed, moved, replaced or overwritten while the spool was open. Checked
    /// before the spool ends.
    pub displaced: Option<DiskError>,
}

impl SpoolReport {
    pub(super) fn new(counts: Counts, left: Left) -> Self {
        Self {
            accepted: counts.accepted,
            recovered: counts.recovered,
            delivered: counts.delivered,
            dead_lettered: counts.dead_lettered,
            dropped: counts.dropped,
            skipped: counts.skipped,
            left_on_disk: left.on_disk,
            left_in_memory: left.in_memory,
            returned: left.returned,
            displaced: left.displaced,
        }
    }
}

impl fmt::Display for SpoolReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} accepted + {} recovered = {} delivered",
            self.accepted, self.recovered, self.delivered
        )?;
        for (count, what) in [
            (self.dead_lettered, "dead-lettered"),
            (self.dropped, "dropped"),
            (self.skipped, "skipped"),
            (self.left_on_disk, "left on disk"),
            (self.left_in_memory, "left in memory"),
        ] {
            if count > 0 {
                write!(f, " + {count} {what}")?;
            }
        }
        if let Some(displaced) = &self.displaced {
            write!(f, "; {displaced}")?;
        }
        Ok(())
    }
}
