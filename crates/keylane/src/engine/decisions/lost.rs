//! Logs messages that are lost by the rules of the user: to the limit of a lane, or to their time.

use keylane_rt::{clock, lock};
use tracing::Level;

use super::Decisions;
use crate::engine::message::Envelope;
use crate::observe::message_line::{Lost, What, is_logged};
use crate::types::Spec;

impl<T: Spec> Decisions<T> {
    /// Logs that this message is lost; rarely, because a dispatcher that has more than it can do
    /// loses them by the thousand. Called before it settles.
    #[cold]
    pub(crate) fn log_lost(
        &self,
        key: Option<&T::Key>,
        hash: u64,
        envelope: &Envelope<T>,
        lost: Lost,
    ) {
        if !is_logged(Level::WARN) {
            return;
        }
        let reports = match lost {
            Lost::ToTheLimit => &self.lost_to_limits,
            Lost::Expired => &self.expired,
        };
        let admitted = lock(reports).admit(clock::now());
        if let Some(suppressed) = admitted {
            let key = self.probe.shown(key, hash);
            let source = envelope.obligation.source();
            let what = || What::Lost { lost, suppressed };
            self.sources.log(Level::WARN, key, source, what);
        }
    }
}
