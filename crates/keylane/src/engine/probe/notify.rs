//! The events of the engine.

use std::fmt;
use std::time::Duration;

use keylane_rt::cut;

use super::Probe;
use crate::engine::events::{Event, Events, SourceEvent};
use crate::engine::message::{GivenUp, Held, why};
use crate::error::Failure;
use crate::types::Spec;

/// Most characters kept of the error of a store of leases.
const LONGEST_WHY: usize = 256;

impl<K: Clone> Probe<K> {
    pub(crate) fn events(&self) -> Events<K> {
        self.feed.events()
    }

    /// A sink has accepted a letter.
    #[inline]
    pub(crate) fn notify_dead_lettered<T: Spec<Key = K>>(
        &self,
        key: Option<&K>,
        given_up: &GivenUp<T>,
    ) {
        self.notify(|at| Event::DeadLettered {
            key: key.or(given_up.beside.as_ref()).cloned(),
            attempts: given_up.attempts,
            why: why(&given_up.failure).into(),
            at,
        });
    }

    /// A message is given up on, and not kept.
    #[inline]
    pub(crate) fn notify_discarded<E: fmt::Debug>(
        &self,
        key: Option<&K>,
        attempts: u32,
        failure: &Failure<E>,
    ) {
        self.notify(|at| Event::Discarded {
            key: key.cloned(),
            attempts,
            why: why(failure).into(),
            at,
        });
    }

    /// Whether events have a subscriber.
    pub(crate) fn is_watched(&self) -> bool {
        self.feed.has_subscribers()
    }

    /// What the event of a lane that will halt with this head is to say. Taken before it halts,
    /// because afterwards the head is the lane's.
    #[inline]
    pub(crate) fn halting<T: Spec<Key = K>>(&self, held: &Held<T>) -> Option<(u32, String)> {
        let said = || (held.work.attempts(), held.why.to_string());
        self.is_watched().then(said)
    }

    /// A lane has halted. Called after it has, because the subscriber may act on the lane.
    #[inline]
    pub(crate) fn notify_halted(&self, key: &K, halting: Option<(u32, String)>) {
        if let Some((attempts, why)) = halting {
            self.notify(|at| Event::Halted {
                key: key.clone(),
                attempts,
                why,
                at,
            });
        }
    }

    /// Versions `first..=last` of a key are missing.
    #[inline]
    pub(crate) fn notify_gap(&self, key: &K, first: u64, last: u64) {
        self.notify(|at| Event::Gap {
            key: key.clone(),
            first,
            last,
            at,
        });
    }

    /// A lane is at its capacity, and its policy has come into force.
    #[inline]
    pub(crate) fn notify_overflowed(&self, key: &K) {
        self.notify(|at| Event::Overflowed {
            key: key.clone(),
            policy: self.overflow,
            at,
        });
    }

    /// Leases cannot be acquired.
    pub(crate) fn notify_unleased(&self, why: &str) {
        self.notify(|at| Event::Unleased {
            why: cut(why.to_owned(), LONGEST_WHY),
            at,
        });
    }

    /// Something happened to a source.
    pub(crate) fn notify_source(&self, source: &str, what: SourceEvent) {
        self.notify(|at| Event::Source {
            source: source.to_owned(),
            what,
            at,
        });
    }

    /// A handler blocks its thread.
    pub(crate) fn notify_stuck(&self, key: impl FnOnce() -> Option<K>, lasted: Duration) {
        self.notify(|at| Event::Stuck {
            key: key(),
            lasted,
            at,
        });
    }
}
