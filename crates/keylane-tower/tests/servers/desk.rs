//! What stands behind and in front of the layer in every server: a script, and a record of the calls.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use ::http::{HeaderMap, Request};
use keylane_testkit::{Event, Evidence, Gate, History, Id, Key, Rule, Script};
use keylane_tower::{Error, KeyedLayer, KeyedService, Turnstile, TurnstileBuilder};
use tokio::time::Instant;
use tower::layer::layer_fn;
use tower::{Layer, Service};

use crate::front::until;

/// The lanes of a server, what its handlers do, and the history of both. Clones are the same.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) lanes: Turnstile<Key>,
    pub(crate) history: History,
    pub(crate) gate: Gate,
    script: Script,
    /// How many calls each key has had. Locked during a call: the order of the numbers is that of the calls.
    calls: Arc<Mutex<HashMap<Option<Key>, u64>>>,
}

type KeyOf<B> = fn(&Request<B>) -> Option<Key>;

/// A service in lanes, recorded.
pub(crate) type InLanes<S, B> = Recorded<KeyedService<S, KeyOf<B>, Key>>;

impl Desk {
    pub(crate) fn new(
        lanes: TurnstileBuilder<Key>,
        script: impl FnOnce(Script, &Gate) -> Script,
    ) -> Self {
        let (history, gate) = (History::new(), Gate::new());
        Self {
            lanes: lanes.build().expect("the limits are sound"),
            script: script(Script::new(&history), &gate),
            history,
            gate,
            calls: Arc::default(),
        }
    }

    /// The layer under test, and around it a record of which call came when.
    pub(crate) fn layer<S, B>(&self) -> impl Layer<S, Service = InLanes<S, B>> + Clone + use<S, B> {
        let key: KeyOf<B> = |request| number(request.headers(), "x-key");
        let keyed = KeyedLayer::with_turnstile(self.lanes.clone(), key);
        let desk = self.clone();
        layer_fn(move |inner| Recorded {
            inner: keyed.layer(inner),
            desk: desk.clone(),
        })
    }

    /// The handler.
    pub(crate) async fn handle(&self, headers: &HeaderMap) -> Id {
        let id = id(headers);
        let scripted = self.script.run(number(headers, "x-key"), id, 1);
        scripted.await.expect("the script has no errors");
        id
    }

    /// Judges what happened: nothing waits nor runs any more.
    pub(crate) async fn judge(&self, evidence: Evidence) {
        // A call that was dropped gives its turn on a moment before it is written down.
        until(|| self.unwritten() == 0).await;
        assert_eq!((self.lanes.places(), self.lanes.lanes()), (0, 0));
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

    /// Requests that were started and whose call is not over.
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

/// A service whose calls are written down, with what became of them.
#[derive(Clone)]
pub(crate) struct Recorded<S> {
    inner: S,
    desk: Desk,
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
        let mut calls = self.desk.calls.lock().unwrap();
        let seq = calls.entry(key).or_default();
        *seq += 1;
        // If it is dropped, what became of it is unknown, and that is what is written down.
        let sending = self.desk.history.sending(key, *seq, id);
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
