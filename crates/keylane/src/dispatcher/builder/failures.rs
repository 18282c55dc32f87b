//! What happens to a message that fails.

use std::time::Duration;

use keylane_rt::Arc;

use super::settings::Builder;
use crate::letter::{DeadLetterSink, OnExhausted};
use crate::retry::{Retry, RetryBudget};

impl<K, M, E, F, S> Builder<K, M, E, F, S> {
    /// Limits the time of an attempt. A longer attempt is dropped, and fails with
    /// [`Failure::TimedOut`](crate::error::Failure::TimedOut).
    ///
    /// A handler that blocks its thread cannot be dropped before it returns.
    pub fn attempt_timeout(mut self, limit: Duration) -> Self {
        self.config.settings.attempt_timeout = Some(limit);
        self
    }

    /// Tries failed messages again. Each attempt gets a clone of the message.
    pub fn retry(mut self, retry: Retry<E>) -> Self
    where
        M: Clone,
    {
        self.config.settings.retry = Some(retry);
        self.config.settings.keep = Some(M::clone);
        self
    }

    /// Limits the retries of all lanes together.
    pub fn retry_budget(mut self, budget: RetryBudget) -> Self {
        self.config.settings.retry_budget = Some(budget);
        self
    }

    /// Sets what happens after the last attempt. The message must outlive the attempt for that, so
    /// each attempt gets a clone.
    pub fn on_exhausted(mut self, exhausted: OnExhausted<K, M, E>) -> Self
    where
        M: Clone,
    {
        self.config.settings.on_exhausted = exhausted;
        self.config.settings.names_exhausted = true;
        self.config.settings.keep = Some(M::clone);
        self
    }

    /// Sets the sink of the messages that [`Overflow::DeadLetter`](crate::Overflow::DeadLetter) and
    /// [`OnGap::DeadLetter`](crate::discipline::OnGap::DeadLetter) turn away.
    ///
    /// It is used if the dispatcher has no sink of [`OnExhausted::DeadLetter`]. Failed messages do
    /// not go there: see [`on_exhausted`](Self::on_exhausted).
    pub fn overflow_sink(mut self, sink: impl DeadLetterSink<K, M, E> + 'static) -> Self {
        self.config.settings.sink = Some(Arc::new(sink));
        self
    }
}
