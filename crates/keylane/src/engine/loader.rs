//! The task that asks the version store where keys stand.

use std::fmt;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::Engine;
use super::caught::caught;
use super::settle::Tally;
use crate::clock::{self, Alarm};
use crate::discipline::VersionStore;
use crate::rt::{Arc, mpsc};

/// Most questions to the store at once.
const AT_ONCE: usize = 64;

/// The first wait after an error of the store; it doubles up to `LONGEST_WAIT`.
const WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// A key of which nothing is remembered.
#[derive(Debug)]
pub(crate) struct Load<K> {
    key: K,
    hash: u64,
}

/// Answers until the dispatcher has ended. There are no more questions than lanes.
pub(crate) async fn load<K, M, O, E>(
    engine: Arc<Engine<K, M, O, E>>,
    store: Arc<dyn VersionStore<K>>,
    mut loads: mpsc::UnboundedReceiver<Load<K>>,
) where
    K: Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    let mut asked = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            () = engine.shutdown.ended() => return,
            Some((load, last)) = asked.next(), if !asked.is_empty() => engine.loaded(load, last),
            Some(load) = loads.recv(), if asked.len() < AT_ONCE => {
                asked.push(ask(Arc::clone(&store), load));
            }
        }
    }
}

async fn ask<K>(store: Arc<dyn VersionStore<K>>, load: Load<K>) -> (Load<K>, Option<u64>)
where
    K: Send + Sync + 'static,
{
    let mut wait = WAIT;
    loop {
        match last(&*store, &load.key).await {
            Ok(last) => return (load, last),
            Err(error) => {
                tracing::error!(
                    target: "keylane",
                    key = format_args!("#{:016x}", load.hash),
                    %error,
                    "a version store does not answer; the key waits for it"
                );
            }
        }
        let mut alarm = clock::now().checked_add(wait).map(Alarm::new);
        std::future::poll_fn(|cx| match &mut alarm {
            Some(alarm) => alarm.poll(cx),
            None => std::task::Poll::Ready(()),
        })
        .await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// One question. A panic of the store is an error.
async fn last<K>(store: &dyn VersionStore<K>, key: &K) -> Result<Option<u64>, String> {
    let mut asked = caught(|| store.last(key))?;
    std::future::poll_fn(|cx| match caught(|| asked.as_mut().poll(cx)) {
        Ok(polled) => polled.map_err(|error| error.to_string()),
        Err(text) => std::task::Poll::Ready(Err(text)),
    })
    .await
}

impl<K, M, O, E> Engine<K, M, O, E>
where
    K: Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    /// Has the store asked about a key.
    pub(super) fn load(&self, key: K, hash: u64) {
        if let Some(loads) = &self.loads {
            // Without the task the dispatcher's runtime is gone.
            let _ = loads.send(Load { key, hash });
        }
    }

    fn loaded(self: &Arc<Self>, load: Load<K>, last: Option<u64>) {
        let Load { key, hash } = load;
        let mut tally = Tally::default();
        for queued in self.learn(&mut tally, key, hash, last, clock::now()) {
            self.enqueue(queued);
        }
        self.flush(&mut tally);
    }
}
