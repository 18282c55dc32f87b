//! Where a message may go instead of into the lane of its key, and the lease that it may take
//! along. A dispatcher that delays nothing, and whose lanes are neither leased nor resharded, has
//! none.

use keylane_rt::Arc;

use super::super::Engine;
use super::super::leases::{HeldLease, LaneLeaseTable, Moment};
use super::super::message::{Accepted, Queued};
use super::super::reshard::{Placed, Resharding};
use super::burst::Burst;
use crate::types::Spec;

/// What is looked at for each message of a burst besides the lane of its key.
pub(super) struct Detours<'a, T: Spec> {
    /// Whether a message may go elsewhere than into the lane of its key now.
    pub(super) any: bool,
    resharding: Option<&'a mut Resharding<T>>,
    /// The leases, and the moment at which they are looked up, where lanes are leased.
    leases: Option<(&'a LaneLeaseTable<T::Key>, Moment)>,
}

impl<'a, T: Spec> Detours<'a, T> {
    pub(super) fn new(
        engine: &'a Arc<Engine<T>>,
        resharding: Option<&'a mut Resharding<T>>,
    ) -> Self {
        let leases = engine.table.leases.as_deref();
        Self {
            any: resharding.is_some() || engine.slow_path.may_be_untimely(),
            resharding,
            leases: leases.map(|leases| (leases, leases.moment())),
        }
    }

    /// The lease of a key that has a lane from now on, if it is held.
    ///
    /// A runner would look it up otherwise, and a lock that one task alone takes costs less than
    /// one that wanders from processor to processor.
    #[inline]
    pub(super) fn lease(&self, hash: u64, key: &T::Key) -> Option<HeldLease> {
        let (leases, moment) = self.leases?;
        leases.held(moment, hash, key)
    }

    /// Keeps a message that is delayed, or whose old lane has not drained. Returns all others, to
    /// be placed.
    #[cold]
    pub(super) fn find_lane(
        &mut self,
        burst: &mut Burst<'_, T>,
        accepted: Accepted<T>,
        accepted_at: u64,
    ) -> Option<Accepted<T>> {
        let engine = burst.engine;
        let accepted = engine
            .decisions
            .set_aside(accepted, accepted_at, burst.now)?;
        let Some(resharding) = self.resharding.as_deref_mut() else {
            return Some(accepted);
        };
        let letter = match resharding.place(engine, accepted, accepted_at) {
            Placed::Lane(placed) => return Some(placed),
            Placed::Kept => None,
            Placed::Displaced(old) => engine.decisions.turn_away(&mut burst.tally, old, true),
            Placed::Refused(new) => engine.decisions.turn_away(&mut burst.tally, new, false),
        };
        burst.jobs.extend(letter.map(Queued::Job));
        None
    }
}
