//! The task that looks for handlers which block, and publishes the gauges.

use std::time::Duration;

use super::Engine;
use crate::clock;
use crate::observe::Watch;
use crate::rt::Arc;
use crate::types::Spec;

/// Looks four times in each `stuck_after`, until the dispatcher has ended.
pub(crate) async fn watch<T: Spec>(engine: Arc<Engine<T>>) {
    let limit = engine.settings.stuck_after;
    let pause = (limit / 4).max(Duration::from_millis(1));
    let mut watch = Watch::default();
    loop {
        tokio::select! {
            biased;
            () = engine.shutdown.ended() => break,
            () = tokio::time::sleep(pause) => {}
        }
        for stuck in watch.look(engine.id(), clock::now(), limit) {
            engine.counters.stuck.add(1);
            engine.tell_stuck(stuck.hash, stuck.lasted);
            tracing::warn!(
                target: "keylane",
                key = %engine.shown_by_hash(stuck.hash),
                lasted = ?stuck.lasted,
                "a handler blocks its thread; move blocking work to `spawn_blocking`"
            );
        }
        engine.sample_waits();
        engine.facade.publish(&engine.stats());
        // A router that yields comes back when its worker has nothing else to do. If that worker is
        // blocked by a handler, this gets the router back on another one.
        engine.shutdown.nudge();
    }
    engine.facade.publish(&engine.stats());
}

impl<T: Spec> Engine<T> {
    /// Tells engines apart; the address serves, because an engine outlives its marks.
    pub(super) fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
