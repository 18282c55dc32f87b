//! The adaptive concurrency limit: runners measure attempts, and the limit follows.

use keylane_rt::{Arc, clock};

use crate::adaptive::{Decided, Ended, Started};
use crate::engine::Engine;
use crate::error::Failure;
use crate::types::Spec;

impl<T: Spec> Engine<T> {
    /// Measures an attempt that has ended. Its future has been dropped.
    ///
    /// Cold: without the option no measurement was started.
    #[cold]
    pub(super) fn measure<A>(
        self: &Arc<Self>,
        started: &Started,
        answer: &Result<A, Box<Failure<T::Error>>>,
    ) {
        let Some(meter) = &self.probe.meter else {
            return;
        };
        let ended = match answer.as_ref().map_err(AsRef::as_ref) {
            Ok(_) => Ended::Answered,
            Err(Failure::TimedOut(_)) => Ended::TimedOut,
            Err(_) => Ended::Failed,
        };
        if let Some(decided) = meter.end(started, clock::now(), ended) {
            self.set_concurrency(decided);
        }
    }

    /// Sets another limit, and recruits the runners that may start under it.
    pub(crate) fn set_concurrency(self: &Arc<Self>, decided: Decided) {
        let Decided { limit, number } = decided;
        let recruit = self.ready.set_concurrency(limit, number);
        self.recruit(recruit);
    }
}
