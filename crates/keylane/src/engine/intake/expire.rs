//! Settles messages that expire while they wait for a runner.

use std::task::{Context, Poll};

use keylane_lanes::{TICK, later};
use keylane_rt::Arc;
use keylane_rt::clock::{self, Alarm, Instant};

use super::super::Engine;
use super::super::message::Queued;
use super::super::settlement::Tally;
use crate::types::Spec;

/// After a scan of the ready queue the router waits a tick, and one more for each so many entries.
const LOOKS: usize = 4_096;

/// The router's alarm for messages that expire in the ready queue.
#[derive(Debug, Default)]
pub(super) struct ExpiryAlarm {
    alarm: Option<Alarm>,
    /// The next scan starts no earlier.
    not_before: Option<Instant>,
}

impl ExpiryAlarm {
    /// Whether to call [`settle`](Self::settle) now.
    #[inline]
    pub(super) fn poll<T: Spec>(
        &mut self,
        engine: &Arc<Engine<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if !engine.table.rules.expires {
            return Poll::Pending;
        }
        let Some(at) = engine.ready.expires_at() else {
            self.alarm = None;
            return Poll::Pending;
        };
        let at = engine.table.rules.moment(at, engine.clocks.epoch);
        let at = self.not_before.map_or(at, |not_before| at.max(not_before));
        let alarm = self.alarm.get_or_insert_with(|| Alarm::new(at));
        alarm.reset(at);
        alarm.poll(cx)
    }

    /// Settles what has expired. What its lanes let out goes into `jobs`.
    pub(super) fn settle<T: Spec>(
        &mut self,
        engine: &Arc<Engine<T>>,
        tally: &mut Tally,
        jobs: &mut Vec<Queued<T>>,
    ) {
        self.alarm = None;
        let now = clock::now();
        let (expired, left) = engine.ready.take_expired(engine.table.rules.stamp(now));
        let ticks = 1 + left / LOOKS;
        self.not_before = Some(later(now, TICK * u32::try_from(ticks).unwrap_or(u32::MAX)));
        for queued in expired {
            let Queued::Job(job) = queued else {
                unreachable!("a lane does not expire")
            };
            jobs.extend(engine.decisions.settle_expired(tally, job));
        }
    }
}
