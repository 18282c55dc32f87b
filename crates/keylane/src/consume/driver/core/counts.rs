//! What has become of the messages that were handed over.

use keylane_source::Outcome;

use super::super::super::report::IntakeStats;

#[derive(Debug, Default)]
pub(super) struct Counts {
    received: u64,
    pub(super) acked: u64,
    dead_lettered: u64,
    nacked: u64,
    given_back: u64,
    stale: u64,
    restarts: u64,
}

impl Counts {
    pub(super) fn receive(&mut self) {
        self.received += 1;
    }

    /// Messages whose dead letters were durable when the source handed them over.
    pub(super) fn receive_dead_lettered(&mut self, count: u64) {
        self.received += count;
        self.dead_lettered += count;
    }

    /// Messages that the source was told to forget before they run.
    pub(super) fn receive_acked(&mut self, count: u64) {
        self.received += count;
        self.acked += count;
    }

    /// Messages that were never taken in.
    pub(super) fn receive_given_back(&mut self, count: u64) {
        self.received += count;
        self.given_back += count;
    }

    /// A message settles. `is_over`: its generation is, and the source is not told. `ends`: the
    /// generation ends, or the intake.
    #[inline]
    pub(super) fn settle(&mut self, outcome: Outcome, is_over: bool, ends: bool) {
        match outcome {
            _ if is_over => {
                self.given_back += 1;
                self.stale += u64::from(outcome.is_ack());
            }
            Outcome::Done | Outcome::Discarded => self.acked += 1,
            Outcome::DeadLettered => self.dead_lettered += 1,
            Outcome::Returned { .. } if ends => self.given_back += 1,
            Outcome::Returned { .. } => self.nacked += 1,
        }
    }

    /// The source is opened again, and has not confirmed so many acks: they may come again.
    pub(super) fn restart(&mut self, unconfirmed: u64) {
        self.acked -= unconfirmed;
        self.given_back += unconfirmed;
        self.restarts += 1;
    }

    pub(super) fn show(&self, stats: &mut IntakeStats) {
        stats.received = self.received;
        stats.acked = self.acked;
        stats.dead_lettered = self.dead_lettered;
        stats.nacked = self.nacked;
        stats.given_back = self.given_back;
        stats.stale = self.stale;
        stats.restarts = self.restarts;
    }
}
