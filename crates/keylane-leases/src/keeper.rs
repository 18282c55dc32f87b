//! The task that calls the store, for all leases, in batches.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::error::StoreError;
use crate::settings::Settings;
use crate::shared::{Asked, Released, Shared};
use crate::store::{Answer, Claim, LeaseStore, Wish};

/// The most calls that acquire at a time, and the most that release. Meanwhile other requests
/// gather, and share the next call. Each lease is in one renewal at most, which bounds the
/// renewals.
const AT_ONCE: usize = 4;

pub(crate) struct Keeper {
    shared: Arc<Shared>,
    store: Arc<dyn LeaseStore>,
    settings: Settings,
    calls: FuturesUnordered<BoxFuture<'static, Done>>,
    asking: usize,
    releasing: usize,
    /// Dropped when the task ends, for any reason.
    _ended: watch::Sender<()>,
}

/// A finished call, with the time at which it was sent, and its answer.
enum Done {
    Asked(Vec<Asked>, Instant, Result<Vec<Answer>, StoreError>),
    Renewed(Vec<Claim>, Instant, Result<Vec<bool>, StoreError>),
    Released(Vec<Released>, Result<(), StoreError>),
}

impl Keeper {
    /// Creates the task, and the receiver that closes when it has ended.
    pub(crate) fn new(
        shared: Arc<Shared>,
        store: Arc<dyn LeaseStore>,
        settings: Settings,
    ) -> (Self, watch::Receiver<()>) {
        let (ended, has_ended) = watch::channel(());
        let keeper = Self {
            shared,
            store,
            settings,
            calls: FuturesUnordered::new(),
            asking: 0,
            releasing: 0,
            _ended: ended,
        };
        (keeper, has_ended)
    }

    pub(crate) async fn run(mut self) {
        while !(self.calls.is_empty() && self.shared.is_over()) {
            self.begin_calls();
            let next = self.shared.next(self.releasing < AT_ONCE);
            let shared = Arc::clone(&self.shared);
            tokio::select! {
                Some(done) = self.calls.next() => self.apply(done),
                () = shared.wake.notified() => {}
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            }
        }
    }

    fn begin_calls(&mut self) {
        let most = self.settings.batch;
        loop {
            let claims = self.shared.take_due(Instant::now(), most);
            if claims.is_empty() {
                break;
            }
            self.begin_to_renew(claims);
        }
        while self.asking < AT_ONCE {
            let asked = self.shared.take_asked(most);
            if asked.is_empty() {
                break;
            }
            self.asking += 1;
            self.begin_to_ask(asked);
        }
        while self.releasing < AT_ONCE {
            let released = self.shared.take_released(most);
            if released.is_empty() {
                break;
            }
            self.releasing += 1;
            self.begin_to_release(released);
        }
    }

    fn begin_to_ask(&self, asked: Vec<Asked>) {
        let (store, shared) = (Arc::clone(&self.store), Arc::clone(&self.shared));
        let limit = self.settings.call_limit;
        let wishes: Vec<Wish> = asked.iter().map(|asked| asked.wish.clone()).collect();
        // Taken before the call is sent: a lease that it grants counts from here.
        let sent = Instant::now();
        self.calls.push(Box::pin(async move {
            let call = async { store.acquire(&shared.owner, &wishes).await };
            let answers = within(limit, call).await;
            Done::Asked(asked, sent, complete(answers, wishes.len()))
        }));
    }

    fn begin_to_renew(&self, claims: Vec<Claim>) {
        let (store, shared) = (Arc::clone(&self.store), Arc::clone(&self.shared));
        let shortest = claims.iter().map(|claim| claim.ttl).min();
        let third = shortest.unwrap_or_default() / 3;
        let limit = self.settings.call_limit.min(third);
        let sent = Instant::now();
        self.calls.push(Box::pin(async move {
            let call = async { store.renew(&shared.owner, &claims).await };
            let answers = within(limit, call).await;
            let answers = complete(answers, claims.len());
            Done::Renewed(claims, sent, answers)
        }));
    }

    fn begin_to_release(&self, released: Vec<Released>) {
        let (store, shared) = (Arc::clone(&self.store), Arc::clone(&self.shared));
        let limit = self.settings.call_limit;
        self.calls.push(Box::pin(async move {
            let claims: Vec<Claim> = released.iter().map(|one| one.claim.clone()).collect();
            let call = async { store.release(&shared.owner, &claims).await };
            let answer = within(limit, call).await;
            Done::Released(released, answer)
        }));
    }

    fn apply(&mut self, done: Done) {
        match done {
            Done::Asked(asked, sent, answers) => {
                self.asking -= 1;
                self.shared.answered(asked, answers, sent);
            }
            Done::Renewed(claims, sent, answers) => {
                if let Err(error) = &answers {
                    tracing::warn!(
                        %error, leases = claims.len(),
                        "leases were not renewed, will retry"
                    );
                }
                self.shared.renewed(&claims, answers, sent);
            }
            Done::Released(mut released, Ok(())) => {
                self.releasing -= 1;
                released.iter_mut().for_each(Released::tell);
            }
            Done::Released(released, Err(error)) => {
                self.releasing -= 1;
                if !released.iter().all(Released::is_again) {
                    tracing::warn!(
                        %error, leases = released.len(),
                        "leases were not released, will retry: each one ends when it runs out"
                    );
                }
                self.shared.not_released(released);
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // If the runtime ends first, leases end without a release.
        self.shared.close();
    }
}

/// Calls the store. A panic is a failure, and so is a call that takes too long.
pub(crate) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match timeout(limit, AssertUnwindSafe(call).catch_unwind()).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(StoreError::new("a call panicked")),
        Err(_) => Err(StoreError::new(format!("no answer within {limit:?}"))),
    }
}

/// Checks that there are as many answers as requests.
fn complete<T>(answers: Result<Vec<T>, StoreError>, count: usize) -> Result<Vec<T>, StoreError> {
    match answers {
        Ok(answers) if answers.len() != count => Err(StoreError::new(format!(
            "{} answers to {count} requests",
            answers.len()
        ))),
        answers => answers,
    }
}
