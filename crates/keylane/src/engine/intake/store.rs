//! The task that asks the version store where keys stand.

use std::fmt;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{StreamExt, TryFutureExt};

use super::super::Engine;
use super::super::outcome::Tally;
use crate::clock::{self, Alarm};
use crate::discipline::VersionStore;
use crate::rt::{Arc, mpsc};
use crate::types::Spec;
use crate::unwind::{caught, dropped};

/// Most questions to the store at once.
const AT_ONCE: usize = 64;

/// The first wait after an error of the store; it doubles up to `LONGEST_WAIT`.
const WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// A key of which nothing is remembered, or whose last version is to be recorded.
#[derive(Debug)]
pub(crate) struct StoreRequest<K> {
    key: K,
    hash: u64,
    record: Option<u64>,
    /// How long to wait if the store does not answer.
    wait: Duration,
}

/// Answers until the dispatcher has ended. There are no more questions than lanes.
pub(crate) async fn load<T: Spec>(
    engine: Arc<Engine<T>>,
    store: Arc<dyn VersionStore<T::Key>>,
    mut loads: mpsc::UnboundedReceiver<StoreRequest<T::Key>>,
) where
    T::Key: Eq + Clone + Send + Sync + 'static,
    T::Message: Send + Sync + 'static,
    T::Output: Send + 'static,
    T::Error: fmt::Debug + Send + Sync + 'static,
{
    let mut asked = FuturesUnordered::new();
    // Keys that wait after an error are not in the way of those that were not asked about yet.
    let mut waiting = FuturesUnordered::new();
    loop {
        let has_room = asked.len() < AT_ONCE;
        tokio::select! {
            biased;
            () = engine.shutdown.ended() => return,
            Some((load, answer)) = asked.next(), if !asked.is_empty() => match answer {
                Ok(last) => engine.loaded(load, last),
                Err(error) => {
                    tracing::error!(
                        target: "keylane",
                        key = format_args!("#{:016x}", load.hash),
                        %error,
                        "a version store does not answer; the key waits for it"
                    );
                    waiting.push(wait(load));
                }
            },
            Some(load) = waiting.next(), if has_room && !waiting.is_empty() => {
                asked.push(ask(Arc::clone(&store), load));
            }
            Some(load) = loads.recv(), if has_room => {
                asked.push(ask(Arc::clone(&store), load));
            }
        }
    }
}

/// One question. A panic of the store is an error.
async fn ask<K>(
    store: Arc<dyn VersionStore<K>>,
    load: StoreRequest<K>,
) -> (StoreRequest<K>, Result<Option<u64>, String>)
where
    K: Send + Sync + 'static,
{
    let question = || match load.record {
        None => store.last(&load.key),
        Some(version) => {
            let recorded = store.record(&load.key, version);
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
                // Its drop is the user's too.
                dropped(question.take());
                Poll::Ready(answer)
            })
            .await
        }
    };
    (load, answer)
}

/// The wait after an error.
async fn wait<K>(mut load: StoreRequest<K>) -> StoreRequest<K> {
    let mut alarm = clock::now().checked_add(load.wait).map(Alarm::new);
    poll_fn(|cx| match &mut alarm {
        Some(alarm) => alarm.poll(cx),
        None => Poll::Ready(()),
    })
    .await;
    load.wait = (load.wait * 2).min(LONGEST_WAIT);
    load
}

impl<T: Spec> Engine<T> {
    /// The store knows this version, by the attempt that handled it.
    pub(in super::super) fn note_recorded(&self, key: Option<&T::Key>, hash: u64, version: u64) {
        let Some(key) = key else { return };
        self.lanes
            .with(hash, key, |lane| lane.note_recorded(version));
    }

    /// Has the store asked about a key, or told of a version.
    pub(in super::super) fn ask_store(&self, key: T::Key, hash: u64, record: Option<u64>) {
        if let Some(loads) = &self.loads {
            // Without the task the dispatcher's runtime is gone.
            let _ = loads.send(StoreRequest {
                key,
                hash,
                record,
                wait: WAIT,
            });
        }
    }

    /// The store has answered.
    fn loaded(self: &Arc<Self>, load: StoreRequest<T::Key>, last: Option<u64>) {
        let StoreRequest {
            key, hash, record, ..
        } = load;
        // The task must outlive a key's own `Eq` or `Clone` that panics: other keys wait for it.
        let learned = caught(|| {
            let now = clock::now();
            let step = self.step(&key, hash, now, |lane| match record {
                Some(version) => lane.recorded(version),
                None => lane.learn(last, now, &self.rules, self.lanes.spares()),
            });
            let Some(step) = step else {
                return self.drop_quietly(key);
            };
            let mut tally = Tally::default();
            self.apply_and_enqueue(&mut tally, key, hash, step);
            self.flush(&mut tally);
        });
        if learned.is_err() {
            self.count_lost();
        }
    }
}
