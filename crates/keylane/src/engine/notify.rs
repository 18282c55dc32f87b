//! The events of the engine, and the end of them.

use std::time::Duration;

use keylane_rt::cut;
use keylane_rt::unwind::shielded;

use super::events::{Event, Events, SourceEvent};
use super::message::{GivenUp, Held};
use super::{Engine, Stage};
use crate::error::Failure;
use crate::types::Spec;

/// Most characters kept of the error of a store of leases.
const LONGEST_WHY: usize = 256;

impl<T: Spec> Engine<T> {
    pub(crate) fn events(&self) -> Events<T::Key> {
        self.probe.feed.events()
    }

    /// The report stands, and nothing will happen any more.
    pub(super) fn advance_to_end(&self) {
        // The last figures stand before the report does. A recorder is the user's code.
        shielded(|| self.probe.facade.publish(|| self.stats()));
        if let Some(leases) = &self.leases {
            // Their release, and the keys' own drop.
            shielded(|| leases.end());
        }
        self.probe.end_events();
        self.shutdown.enter(Stage::Ended);
    }

    /// A sink has accepted a letter.
    #[inline]
    pub(super) fn notify_dead_lettered(&self, key: Option<&T::Key>, given_up: &GivenUp<T>) {
        self.probe.notify(|at| Event::DeadLettered {
            key: key.or(given_up.beside.as_ref()).cloned(),
            attempts: given_up.attempts,
            why: self.why(&given_up.failure).into(),
            at,
        });
    }

    /// A message is given up on, and not kept.
    #[inline]
    pub(super) fn notify_discarded(
        &self,
        key: Option<&T::Key>,
        attempts: u32,
        failure: &Failure<T::Error>,
    ) {
        self.probe.notify(|at| Event::Discarded {
            key: key.cloned(),
            attempts,
            why: self.why(failure).into(),
            at,
        });
    }

    /// Whether events have a subscriber.
    pub(super) fn is_watched(&self) -> bool {
        self.probe.feed.has_subscribers()
    }

    /// What the event of a lane that will halt with this head is to say. Taken before it halts,
    /// because afterwards the head is the lane's.
    #[inline]
    pub(super) fn halting(&self, held: &Held<T>) -> Option<(u32, String)> {
        let said = || (held.work.attempts(), held.why.to_string());
        self.is_watched().then(said)
    }

    /// A lane has halted. Called after it has, because the subscriber may act on the lane.
    #[inline]
    pub(super) fn notify_halted(&self, key: &T::Key, halting: Option<(u32, String)>) {
        if let Some((attempts, why)) = halting {
            self.probe.notify(|at| Event::Halted {
                key: key.clone(),
                attempts,
                why,
                at,
            });
        }
    }

    /// Versions `first..=last` of a key are missing.
    #[inline]
    pub(crate) fn notify_gap(&self, key: &T::Key, first: u64, last: u64) {
        self.probe.notify(|at| Event::Gap {
            key: key.clone(),
            first,
            last,
            at,
        });
    }

    /// A lane is at its capacity, and its policy has come into force.
    #[inline]
    pub(super) fn notify_overflowed(&self, key: &T::Key) {
        self.probe.notify(|at| Event::Overflowed {
            key: key.clone(),
            policy: self.settings.overflow,
            at,
        });
    }

    /// Leases cannot be acquired.
    pub(super) fn notify_unleased(&self, why: &str) {
        self.probe.notify(|at| Event::Unleased {
            why: cut(why.to_owned(), LONGEST_WHY),
            at,
        });
    }

    /// Something happened to a source.
    pub(crate) fn notify_source(&self, source: &str, what: SourceEvent) {
        self.probe.notify(|at| Event::Source {
            source: source.to_owned(),
            what,
            at,
        });
    }

    /// A handler blocks its thread.
    pub(super) fn notify_stuck(&self, hash: u64, lasted: Duration) {
        self.probe.notify(|at| Event::Stuck {
            key: self.lanes.key_of(hash),
            lasted,
            at,
        });
    }
}
