//! Starting an engine and its tasks.
//!
//! No type of a handler, of a key function or of a hasher is known here, so this and all behind it
//! is compiled once for the four types of a dispatcher.

use keylane_rt::clock::Ticker;
use keylane_rt::{Arc, mpsc};

use super::intake::{Router, serve_store};
use super::leases::{LaneLeaseTable, serve_leases};
use super::message::Accepted;
use super::reshard::Resharding;
use super::shared::{Engine, Parts};
use crate::types::Spec;

/// Makes the engine and starts its tasks on the runtime. Returns it with the channel of accepted
/// messages.
pub(crate) fn launch<T: Spec>(
    parts: Parts<T>,
) -> (Arc<Engine<T>>, mpsc::UnboundedSender<Accepted<T>>) {
    let runtime = parts.runtime.clone();
    let resharding = parts.places.clone().map(Resharding::new);
    let store = parts.settings.discipline.store();
    let (store_requests, store) = store
        .map(|store| {
            let (store_requests, requests) = mpsc::unbounded_channel();
            (store_requests, (store, requests))
        })
        .unzip();
    let leases = parts.settings.leases.clone();
    let (table, leases) = leases
        .map(|leases| {
            let (lease_requests, requests) = mpsc::unbounded_channel();
            let ticker = Ticker::new(&runtime);
            let table = LaneLeaseTable::new(Arc::clone(&leases), lease_requests, ticker);
            (table, (leases, requests))
        })
        .unzip();
    let engine = Arc::new(Engine::new(parts, store_requests, table));

    if let Some((store, requests)) = store {
        let serves = serve_store(Arc::clone(&engine), store, requests);
        runtime.spawn(aborting(Arc::clone(&engine), serves));
    }
    if let Some((leases, requests)) = leases {
        let serves = serve_leases(Arc::clone(&engine), leases, requests);
        runtime.spawn(aborting(Arc::clone(&engine), serves));
    }
    let (channel, ingress) = mpsc::unbounded_channel();
    runtime.spawn(Router::new(Arc::clone(&engine), ingress, resharding).run());
    (engine, channel)
}

/// Runs a task that messages wait for. If it panics, for example in a subscriber of logs, that is
/// an abort: they would wait for ever.
async fn aborting<T: Spec>(engine: Arc<Engine<T>>, task: impl Future<Output = ()>) {
    let _abort = AbortOnPanic(engine);
    task.await;
}

struct AbortOnPanic<T: Spec>(Arc<Engine<T>>);

impl<T: Spec> Drop for AbortOnPanic<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.settlement.count_lost_messages();
        }
    }
}
