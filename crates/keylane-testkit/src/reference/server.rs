//! The handle of the reference server.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keylane::source::{Features, RawMessage};
use tokio::sync::Notify;

use super::entry::{Counts, Entry, KeptLetter, MessageState};
use super::plan::Plan;
use super::state::State;
use crate::scenario::within;

/// A server in memory, which holds messages until they are acked.
///
/// A handle: clones are the same server. See the [module](super) for an example.
#[derive(Clone)]
pub struct ReferenceServer {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    state: Mutex<State>,
    /// Notified after each change that a source or a test may wait for.
    pub(super) changed: Notify,
}

impl ReferenceServer {
    /// Creates a server without messages, with one partition. It supports these features, and
    /// refuses the others.
    pub fn new(features: Features) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State::new(features, 1)),
                changed: Notify::new(),
            }),
        }
    }

    /// Sets the number of partitions. A key is in one of them; each open source owns some.
    ///
    /// # Panics
    ///
    /// Panics if it is 0, or if there are messages already.
    #[must_use]
    pub fn partitions(self, count: usize) -> Self {
        let mut state = self.lock();
        let is_empty = state
            .partitions
            .iter()
            .all(|partition| partition.log.is_empty());
        assert!(
            count > 0 && is_empty,
            "partitions are set first, and not to 0"
        );
        let features = state.features;
        *state = State::new(features, count);
        drop(state);
        self
    }

    /// Returns its features.
    pub fn features(&self) -> Features {
        self.lock().features
    }

    /// Adds messages, in this order.
    pub fn publish(&self, messages: impl IntoIterator<Item = RawMessage>) {
        self.change(|state| {
            for message in messages {
                state.publish(message);
            }
        });
    }

    /// Ends the publication. A [finite](Features::finite) server reports its end once every message
    /// was handed over.
    pub fn end(&self) {
        self.change(|state| state.is_ended = true);
    }

    /// Returns all messages, partition by partition.
    pub fn entries(&self) -> Vec<Entry> {
        let state = self.lock();
        let partitions = state.partitions.iter().enumerate();
        let entries = partitions.flat_map(|(number, partition)| {
            let log = partition.log.iter().enumerate();
            log.map(move |(offset, kept)| Entry {
                partition: number as u32,
                offset: offset as u64,
                message: kept.message.clone(),
                standing: kept.standing,
                attempts: kept.attempts,
                deliveries: kept.deliveries,
            })
        });
        entries.collect()
    }

    /// Returns how many messages are in such a state.
    pub fn count(&self, stands: impl Fn(MessageState) -> bool) -> usize {
        let state = self.lock();
        let logs = state.partitions.iter().flat_map(|partition| &partition.log);
        logs.filter(|kept| stands(kept.standing)).count()
    }

    /// Returns how many messages are not settled for ever.
    pub fn left(&self) -> usize {
        self.count(|standing| !matches!(standing, MessageState::Confirmed(_)))
    }

    /// Returns how many deliveries are held.
    pub fn held(&self) -> usize {
        self.lock().held.len()
    }

    /// Returns the dead letters that it keeps, in the order of their messages.
    pub fn letters(&self) -> Vec<KeptLetter> {
        self.lock().letters.values().cloned().collect()
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Asks for all partitions back. After a session has released one, the session that owns the
    /// fewest gets it.
    pub fn revoke(&self) {
        self.revoke_partitions(&self.all());
    }

    /// Asks for these partitions back.
    pub fn revoke_partitions(&self, partitions: &[u32]) {
        self.change(|state| state.revoke(partitions));
    }

    /// Takes all partitions away, as if their owners had been silent for too long, and gives them
    /// to the sessions that own the fewest.
    pub fn lose(&self) {
        let all = self.all();
        self.change(|state| state.take(&all));
    }

    /// Asks for the chosen held messages back, unless they have started.
    pub fn recall(&self, chosen: impl Fn(&RawMessage) -> bool) {
        self.change(|state| state.recall(chosen));
    }

    /// Makes all current sessions hang. A session that is opened afterwards works.
    pub fn stall(&self) {
        self.change(|state| {
            for session in state.sessions.values_mut() {
                session.is_stalled = true;
            }
        });
    }

    /// Kills the server: all sessions are over, and unconfirmed settlements are forgotten. Every
    /// call fails until the server is [started](Self::start). Without
    /// [`survives_restart`](Features::survives_restart) all messages are gone.
    pub fn kill(&self) {
        self.change(|state| {
            state.is_down = true;
            state.end_all(true);
        });
    }

    /// Stops the server in an orderly way. It remembers everything. Every call fails until it is
    /// [started](Self::start).
    pub fn shut_down(&self) {
        self.change(|state| {
            state.is_down = true;
            state.end_all(false);
        });
    }

    /// Starts the server again.
    pub fn start(&self) {
        self.change(|state| state.is_down = false);
    }

    /// Cuts all connections: the sessions are over, and the server goes on.
    pub fn cut(&self) {
        self.change(|state| {
            let sessions: Vec<_> = state.sessions.keys().copied().collect();
            for session in sessions {
                state.end_session(session);
            }
        });
    }

    /// Waits until `holds` returns true, for two minutes at most.
    ///
    /// # Panics
    ///
    /// Panics if it does not by then.
    pub async fn until(&self, holds: impl Fn(&Self) -> bool) {
        within(async {
            loop {
                let changed = self.shared.changed.notified();
                let mut changed = std::pin::pin!(changed);
                changed.as_mut().enable();
                if holds(self) {
                    return;
                }
                changed.await;
            }
        })
        .await;
    }

    pub(super) fn plan<R>(&self, change: impl FnOnce(&mut Plan) -> R) {
        change(&mut self.lock().plan);
    }

    /// Changes the state, and wakes all waiting tasks.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let changed = change(&mut self.lock());
        self.shared.changed.notify_waiters();
        changed
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> Vec<u32> {
        (0..self.lock().partitions.len() as u32).collect()
    }
}

impl fmt::Debug for ReferenceServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("ReferenceServer")
            .field("features", &state.features)
            .field("owners", &state.owners())
            .field("sessions", &state.sessions)
            .field("held", &state.held.len())
            .finish_non_exhaustive()
    }
}
