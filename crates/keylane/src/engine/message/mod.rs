//! The forms a message takes on its way through the engine.
//!
//! ```text
//!  accepted ──► parked ──► job ──► unsettled ──► held ──► job again
//! ```

mod obligation;
pub(crate) use obligation::{Accepted, Envelope, Obligation, Parked, Reply, Returning};

mod charge;
pub(super) use charge::take_lost;
pub(crate) use charge::{Charge, RoomState};

mod job;
pub(crate) use job::{GivenUp, Held, Job, JobEnvelope, Queued, Unsettled, Work};

mod batch;
pub(crate) use batch::{BatchMember, UnsettledBatch};

mod why;
pub(crate) use why::{LONGEST_WHY, why};

mod due;
pub(crate) use due::{RetryDue, StoreRequest, WakeUp};

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use super::*;
    use crate::types::Of;

    type Plain<M> = Of<u64, M, (), std::convert::Infallible>;

    #[test]
    fn a_parked_message_takes_24_bytes_more_than_itself() {
        assert_eq!(size_of::<Parked<Plain<[u64; 3]>>>(), 24 + 24);
        assert_eq!(size_of::<Parked<Plain<[u64; 30]>>>(), 240 + 24);
        assert_eq!(size_of::<Obligation<Plain<u64>>>(), 16);
        assert_eq!(size_of::<Work<Plain<u64>>>(), 16, "with a lease");
    }

    #[test]
    fn a_scheduled_lane_makes_an_entry_no_larger() {
        assert_eq!(
            size_of::<Queued<Plain<u64>>>(),
            size_of::<Job<Plain<u64>>>()
        );
    }
}
