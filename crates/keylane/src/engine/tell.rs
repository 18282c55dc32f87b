//! What the engine tells those who watch it. Without a subscriber: one relaxed load.

use std::time::Duration;

use super::events::{Event, Events};
use super::message::{GivenUp, Held};
use super::{Engine, Stage};
use crate::clock;
use crate::error::Failure;
use crate::types::Spec;
use crate::unwind::{caught, dropped, shielded};

impl<T: Spec> Engine<T> {
    pub(crate) fn events(&self) -> Events<T::Key> {
        self.feed.events()
    }

    /// Tells an event. Never under a lock: making it clones the user's key and formats errors.
    fn tell(&self, event: impl FnOnce(tokio::time::Instant) -> Event<T::Key>) {
        if self.feed.is_watched() {
            self.tell_watched(event);
        }
    }

    #[cold]
    fn tell_watched(&self, event: impl FnOnce(tokio::time::Instant) -> Event<T::Key>) {
        let event = caught(|| event(clock::now().into())).ok();
        let told = self.feed.tell(event);
        for waker in told.wakers {
            shielded(|| waker.wake());
        }
        for event in told.lost {
            if dropped(event) {
                self.counters.panics.add(1);
            }
        }
    }

    /// The report stands, and nothing will happen any more.
    pub(super) fn advance_to_end(&self) {
        for waker in self.feed.end() {
            shielded(|| waker.wake());
        }
        self.shutdown.advance(Stage::Ended);
    }
}

impl<T: Spec> Engine<T> {
    /// A sink has accepted a letter.
    #[inline]
    pub(super) fn tell_dead_lettered(&self, key: Option<&T::Key>, given_up: &GivenUp<T>) {
        self.tell(|at| Event::DeadLettered {
            key: key.or(given_up.beside.as_ref()).cloned(),
            attempts: given_up.attempts,
            why: self.why(&given_up.failure).into(),
            at,
        });
    }

    /// A message is given up on, and nobody keeps it.
    #[inline]
    pub(super) fn tell_discarded(
        &self,
        key: Option<&T::Key>,
        attempts: u32,
        failure: &Failure<T::Error>,
    ) {
        self.tell(|at| Event::Discarded {
            key: key.cloned(),
            attempts,
            why: self.why(failure).into(),
            at,
        });
    }

    /// Whether anybody hears what is told.
    pub(super) fn is_watched(&self) -> bool {
        self.feed.is_watched()
    }

    /// What is to be told of a lane that will stop with this head.
    #[inline]
    pub(super) fn halting(&self, held: &Held<T>) -> Option<(u32, String)> {
        let told = || (held.work.attempts(), held.why.to_string());
        self.feed.is_watched().then(told)
    }

    /// A lane has stopped. After it has, because whoever hears it may want to act on the lane.
    #[inline]
    pub(super) fn tell_halted(&self, key: &T::Key, halting: Option<(u32, String)>) {
        if let Some((attempts, why)) = halting {
            self.tell(|at| Event::Halted {
                key: key.clone(),
                attempts,
                why,
                at,
            });
        }
    }

    /// Versions `first..=last` of a key are missing.
    #[inline]
    pub(crate) fn tell_gap(&self, key: &T::Key, first: u64, last: u64) {
        self.tell(|at| Event::Gap {
            key: key.clone(),
            first,
            last,
            at,
        });
    }

    /// A lane is at its limit, and its policy has come into force.
    #[inline]
    pub(super) fn tell_overflowed(&self, key: &T::Key) {
        self.tell(|at| Event::Overflowed {
            key: key.clone(),
            policy: self.settings.overflow,
            at,
        });
    }

    /// A handler blocks its thread.
    pub(super) fn tell_stuck(&self, hash: u64, lasted: Duration) {
        self.tell(|at| Event::Stuck {
            key: self.lanes.key_of(hash),
            lasted,
            at,
        });
    }
}
