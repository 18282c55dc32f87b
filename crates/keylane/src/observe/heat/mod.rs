//! Which keys are hot: bounded tables of candidates, known by their hashes alone.
//!
//! Nothing here walks the lanes, clones a key or runs any code of the user's. A query looks each
//! candidate up in its lane, so what it shows is exact; what can be wrong is who is a candidate.
//!
//! | table | who comes in | who goes when it is full |
//! | --- | --- | --- |
//! | [`Deep`] | a lane that grew to 2, 4, 8, .. messages, or by 64 | the one last seen least deep |
//! | [`Stalled`] | a head that comes to wait for a retry, a sink or a decision | the youngest head |
//! | [`Waits`] | every handler that waits, until it is ready | nobody: there is room for all |
//! | [`Busy`] | a key whose handlers have waited, by the time they did | the least, as in space-saving |

use crate::rt::Mutex;
use crate::rt::atomic::AtomicUsize;

mod ranking;
use ranking::Ranking;

mod deep;
pub(crate) use deep::{Deep, Grown};

mod stalled;
pub(crate) use stalled::{Stalled, Still};

mod waits;
pub(crate) use waits::{Wait, Waits};

mod busy;
pub(crate) use busy::Busy;

/// The tables of one dispatcher. Their locks are innermost, and never held together.
#[derive(Debug)]
pub(crate) struct Heat {
    pub(crate) deep: Mutex<Deep>,
    /// Grows when a query has changed `deep`. Partner: `Grown::begin`.
    pub(crate) queries: AtomicUsize,
    pub(crate) stalled: Mutex<Stalled>,
    pub(crate) waits: Waits,
    pub(crate) busy: Mutex<Busy>,
}

impl Heat {
    pub(crate) fn new(runners: usize) -> Self {
        Self {
            deep: Mutex::default(),
            queries: AtomicUsize::new(0),
            stalled: Mutex::default(),
            waits: Waits::new(runners),
            busy: Mutex::default(),
        }
    }
}
