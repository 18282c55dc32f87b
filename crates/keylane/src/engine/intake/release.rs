//! Wakes runners when the rate of all jobs lets the next job start.

use std::task::Context;

use keylane_rt::Arc;
use keylane_rt::clock::Alarm;

use super::super::Engine;
use crate::types::Spec;

/// The router's alarm for jobs that the rate holds back.
///
/// A runner that is refused wakes the router. The router polls this alarm on each wake-up, so it is
/// armed whichever of the two comes first.
#[derive(Debug, Default)]
pub(super) struct Release(Option<Alarm>);

impl Release {
    /// Recruits runners for the jobs that may start now, or arms the alarm for the next one.
    #[inline]
    pub(super) fn poll<T: Spec>(&mut self, engine: &Arc<Engine<T>>, cx: &mut Context<'_>) {
        if engine.ready.is_first_come() {
            return;
        }
        let Some(at) = engine.ready.refused_until() else {
            self.0 = None;
            return;
        };
        let alarm = self.0.get_or_insert_with(|| Alarm::new(at));
        alarm.reset(at);
        if alarm.poll(cx).is_ready() {
            self.0 = None;
            engine.recruit(engine.ready.release());
        }
    }
}
