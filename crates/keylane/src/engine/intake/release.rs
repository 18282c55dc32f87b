//! When the rate lets the next job go.

use std::task::Context;

use super::super::Engine;
use crate::clock::Alarm;
use crate::rt::Arc;
use crate::types::Spec;

/// The router's alarm for jobs that the rate holds up.
///
/// A runner that is refused nudges the router, which asks here each time it listens; so the alarm is
/// armed however the two race.
#[derive(Debug, Default)]
pub(super) struct Release(Option<Alarm>);

impl Release {
    /// Recruits for what may go by now, or sees to it that the router is woken when it may.
    #[inline]
    pub(super) fn poll<T: Spec>(&mut self, engine: &Arc<Engine<T>>, cx: &mut Context<'_>) {
        if engine.ready.is_plain() {
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
