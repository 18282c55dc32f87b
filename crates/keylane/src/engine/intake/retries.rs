//! Retries whose backoff is over, let out as fast as the retry budget allows.

use std::collections::VecDeque;
use std::task::Context;

use keylane_rt::atomic::Ordering;
use keylane_rt::clock::{self, Alarm};

use super::super::Engine;
use super::super::message::{Queued, RetryDue};
use crate::retry::{Bucket, RetryBudget};
use crate::types::Spec;

/// Due retries. The budget is for all lanes together.
pub(super) struct DueRetries<K> {
    due: Vec<RetryDue<K>>,
    /// Those that wait for the budget, first come first served.
    postponed: VecDeque<RetryDue<K>>,
    budget: Option<Bucket>,
    /// When the budget allows the first of them.
    refill: Option<Alarm>,
}

impl<K> DueRetries<K> {
    pub(super) fn new(budget: Option<RetryBudget>) -> Self {
        Self {
            due: Vec::new(),
            postponed: VecDeque::new(),
            budget: budget.map(|budget| Bucket::new(budget, clock::now())),
            refill: None,
        }
    }

    pub(super) fn none_due(&self) -> bool {
        self.due.is_empty()
    }

    pub(super) fn none_postponed(&self) -> bool {
        self.postponed.is_empty()
    }

    /// Takes the due timers. True: there are some.
    pub(super) fn poll<T: Spec<Key = K>>(
        &mut self,
        engine: &Engine<T>,
        cx: &mut Context<'_>,
    ) -> bool {
        engine.clocks.retries.poll_due(cx, &mut self.due).is_ready()
    }

    /// Whether the budget may allow more, since the last time.
    pub(super) fn poll_refill(&mut self, cx: &mut Context<'_>) -> bool {
        let refill = self.refill.as_mut();
        let refilled = refill.is_some_and(|alarm| alarm.poll(cx).is_ready());
        if refilled {
            self.refill = None;
        }
        refilled
    }

    /// Lets out the jobs whose backoff is over.
    pub(super) fn start<T: Spec<Key = K>>(
        &mut self,
        engine: &Engine<T>,
        jobs: &mut Vec<Queued<T>>,
    ) {
        if self.due.is_empty() && self.postponed.is_empty() {
            return;
        }
        let now = clock::now();
        let before = self.postponed.len();
        for due in self.due.drain(..) {
            if !engine.decisions.is_retry(&due) {
                jobs.extend(engine.decisions.retry_due(due, now));
            } else if self.budget.is_some() {
                self.postponed.push_back(due);
            } else {
                engine.probe.counters.retries.add(1);
                jobs.extend(engine.decisions.retry_due(due, now));
            }
        }
        let Some(budget) = self.budget.as_mut().filter(|_| !self.postponed.is_empty()) else {
            return;
        };
        let counters = &engine.probe.counters;
        let arrived = self.postponed.len() - before;
        while let Some(due) = self.postponed.front() {
            if engine.decisions.is_retry(due) {
                if let Err(wait) = budget.withdraw(now, counters.settled()) {
                    self.refill = now.checked_add(wait).map(Alarm::new);
                    break;
                }
                counters.retries.add(1);
            }
            let due = self.postponed.pop_front();
            jobs.extend(due.and_then(|due| engine.decisions.retry_due(due, now)));
        }
        let waiting = self.postponed.len();
        counters.postponed.add(arrived.min(waiting) as u64);
        engine.clocks.postponed.store(waiting, Ordering::Relaxed);
    }

    /// Forgets all of them: the jobs have been handed back.
    pub(super) fn clear<T: Spec<Key = K>>(&mut self, engine: &Engine<T>) {
        self.due.clear();
        self.postponed.clear();
        self.refill = None;
        engine.clocks.postponed.store(0, Ordering::Relaxed);
    }
}
