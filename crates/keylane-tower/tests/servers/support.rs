//! What all servers share: the layer with a record of its calls, and a scripted handler behind it.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use ::http::{HeaderMap, Request};
use keylane_testkit::scenario::until;
use keylane_testkit::{Event, Evidence, Gate, History, Id, Key, Rule, Script};
use keylane_tower::{Error, KeyedLayer, KeyedSemaphore, KeyedSemaphoreBuilder, KeyedService};
use tokio::time::Instant;
use tower::layer::layer_fn;
use tower::{Layer, Service};

/// The semaphore of a server, the script of its handlers, and the history of both. Clones share all
/// of it.
#[derive(Clone)]
pub(crate) struct Support {
    pub(crate) semaphore: KeyedSemaphore<Key>,
    pub(crate) history: History,
    pub(crate) gate: Gate,
    script: Script,
    /// How many calls each key has had. Locked during a call, so that the numbers are in the order
    /// of the calls.
    calls: Arc<Mutex<HashMap<Option<Key>, u64>>>,
}

type KeyOf<B> = fn(&Request<B>) -> Option<Key>;

/// A service behind the layer, recorded.
pub(crate) type InOrder<S, B> = Recorded<KeyedService<S, KeyOf<B>, Key>>;

impl Support {
    pub(crate) fn new(
        semaphore: KeyedSemaphoreBuilder<Key>,
        script: impl FnOnce(Script, &Gate) -> Script,
    ) -> Self {
        let (history, gate) = (History::new(), Gate::new());
        Self {
            semaphore: semaphore.build().expect("the limits are sound"),
            script: script(Script::new(&history), &gate),
            history,
            gate,
            calls: Arc::default(),
        }
    }

    /// The layer under test, and around it a layer that records the order of the calls.
    pub(crate) fn layer<S, B>(&self) -> impl Layer<S, Service = InOrder<S, B>> + Clone + use<S, B> {
        let key: KeyOf<B> = |request| number(request.headers(), "x-key");
        let keyed = KeyedLayer::with_semaphore(self.semaphore.clone(), key);
        let support = self.clone();
        layer_fn(move |inner| Recorded {
            inner: keyed.layer(inner),
            support: support.clone(),
        })
    }

    /// The handler.
    pub(crate) async fn handle(&self, headers: &HeaderMap) -> Id {
        let id = id(headers);
        let scripted = self.script.run(number(headers, "x-key"), id, 1);
        scripted.await.expect("the script has no errors");
        id
    }

    /// Checks the history against the rules. Nothing may wait or run any more.
    pub(crate) async fn judge(&self, evidence: Evidence) {
        // A call that was dropped gives its permit back just before it is recorded.
        until(|| self.unwritten() == 0).await;
        assert_eq!((self.semaphore.len(), self.semaphore.lanes()), (0, 0));
        let evidence = evidence.quiescent(Instant::now()).lanes(0).max_attempts(1);
        match self.history.check(&evidence) {
            Ok(verdict) => verdict.assert_judged(&[
                Rule::NoLoss,
                Rule::NoInvention,
                Rule::Exclusion,
                Rule::Order,
                Rule::Duplicates,
            ]),
            Err(violations) => panic!("{violations:?}"),
        }
    }

    /// The requests in the order in which they were started.
    pub(crate) fn starts(&self) -> Vec<Id> {
        let start = |event| match event {
            Event::Start { id, .. } => Some(id),
            _ => None,
        };
        let records = self.history.records();
        records
            .iter()
            .filter_map(|record| start(record.event))
            .collect()
    }

    /// Requests that were started and whose call has not ended.
    fn unwritten(&self) -> usize {
        let records = self.history.records();
        let sent: HashSet<_> = records
            .iter()
            .filter(|record| matches!(record.event, Event::Sent { .. }))
            .filter_map(|record| record.event.id())
            .collect();
        let mut starts = self.starts();
        starts.retain(|id| !sent.contains(id));
        starts.len()
    }
}

fn id(headers: &HeaderMap) -> Id {
    number(headers, "x-id").expect("each request has its number")
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

/// A service whose calls are recorded, with their results.
#[derive(Clone)]
pub(crate) struct Recorded<S> {
    inner: S,
    support: Support,
}

impl<S, B> Service<Request<B>> for Recorded<S>
where
    S: Service<Request<B>, Error = Error<Infallible>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (key, id) = (number(request.headers(), "x-key"), id(request.headers()));
        let mut calls = self.support.calls.lock().unwrap();
        let seq = calls.entry(key).or_default();
        *seq += 1;
        // If it is dropped, its result is unknown, and is recorded as unknown.
        let sending = self.support.history.sending(key, *seq, id);
        let answer = self.inner.call(request);
        drop(calls);
        Box::pin(async move {
            let answer = answer.await;
            match &answer {
                Ok(_) => sending.ok(),
                Err(_) => sending.fail(),
            }
            answer
        })
    }
}
