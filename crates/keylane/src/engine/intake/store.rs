//! The task that asks the version store for the last version of a key.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{StreamExt, TryFutureExt};
use keylane_lanes::Effects;
use keylane_rt::clock::{self, Alarm};
use keylane_rt::unwind::{caught, dropped};
use keylane_rt::{Arc, mpsc};
use keylane_source::VersionStore;

use super::super::Engine;
use super::super::message::StoreRequest;
use super::super::reports::Reports;
use super::super::settlement::Tally;
use crate::types::Spec;

/// Most concurrent queries to the store.
const AT_ONCE: usize = 64;

/// The longest backoff after an error of the store. It doubles up to this.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Serves requests until the dispatcher has ended. There are never more requests than lanes.
pub(crate) async fn serve_store<T: Spec>(
    engine: Arc<Engine<T>>,
    store: Arc<dyn VersionStore<T::Key>>,
    mut requests: mpsc::UnboundedReceiver<StoreRequest<T::Key>>,
) {
    let mut asked = FuturesUnordered::new();
    // Keys in backoff do not delay keys that were not queried yet.
    let mut waiting = FuturesUnordered::new();
    let mut reports = Reports::default();
    loop {
        let has_room = asked.len() < AT_ONCE;
        tokio::select! {
            biased;
            () = engine.shutdown.ended() => return,
            Some((request, answer)) = asked.next(), if !asked.is_empty() => match answer {
                Ok(last) => engine.loaded(request, last),
                Err(error) => {
                    if let Some(suppressed) = reports.admit(clock::now()) {
                        tracing::error!(
                            target: "keylane",
                            key = %engine.probe.shown(Some(&request.key), request.hash),
                            %error, suppressed,
                            "the version store failed, will retry; the messages of the key wait"
                        );
                    }
                    waiting.push(wait(request));
                }
            },
            Some(request) = waiting.next(), if has_room && !waiting.is_empty() => {
                asked.push(ask(Arc::clone(&store), request));
            }
            Some(request) = requests.recv(), if has_room => {
                asked.push(ask(Arc::clone(&store), request));
            }
        }
    }
}

/// One query. A panic of the store counts as an error.
async fn ask<K>(
    store: Arc<dyn VersionStore<K>>,
    request: StoreRequest<K>,
) -> (StoreRequest<K>, Result<Option<u64>, String>)
where
    K: Send + Sync + 'static,
{
    let question = || match request.record {
        None => store.last(&request.key),
        Some(version) => {
            let recorded = store.record(&request.key, version);
            Box::pin(recorded.map_ok(move |()| Some(version)))
        }
    };
    let answer = match caught(question) {
        Err(text) => Err(text),
        Ok(question) => {
            let mut question = Some(question);
            poll_fn(|cx| {
                let polled = caught(|| {
                    let question = question.as_mut();
                    let question = question.expect("a question is polled until it is answered");
                    question.as_mut().poll(cx)
                });
                let answer = match polled {
                    Ok(Poll::Pending) => return Poll::Pending,
                    Ok(Poll::Ready(answer)) => answer.map_err(|error| error.to_string()),
                    Err(text) => Err(text),
                };
                // Dropping the error runs user code as well.
                dropped(question.take());
                Poll::Ready(answer)
            })
            .await
        }
    };
    (request, answer)
}

/// The backoff after an error.
async fn wait<K>(mut request: StoreRequest<K>) -> StoreRequest<K> {
    let mut alarm = clock::now().checked_add(request.wait).map(Alarm::new);
    poll_fn(|cx| match &mut alarm {
        Some(alarm) => alarm.poll(cx),
        None => Poll::Ready(()),
    })
    .await;
    request.wait = (request.wait * 2).min(LONGEST_WAIT);
    request
}

impl<T: Spec> Engine<T> {
    /// Gives the store's answer to the lane.
    fn loaded(self: &Arc<Self>, request: StoreRequest<T::Key>, last: Option<u64>) {
        let StoreRequest {
            key, hash, record, ..
        } = request;
        // A panic of the key's own `Eq` or `Clone` must not end the task: other keys wait for it.
        let learned = caught(|| {
            let now = clock::now();
            let mut effects = Effects::new();
            let found = self.table.step(
                &key,
                hash,
                now,
                &mut effects,
                |lane, effects| match record {
                    Some(version) => lane.recorded(version, effects),
                    None => lane.learn(
                        last,
                        now,
                        &self.table.rules,
                        self.table.lanes.spares(),
                        effects,
                    ),
                },
            );
            if !found {
                return self.probe.drop_quietly(key);
            }
            let mut tally = Tally::default();
            self.apply_and_enqueue(&mut tally, key, hash, &mut effects);
            self.flush(&mut tally);
        });
        if learned.is_err() {
            self.settlement.count_lost_messages();
        }
    }
}
