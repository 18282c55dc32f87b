//! The state between a source and the task that talks to its system.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use keylane_source::SourceError;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::changes::Changes;
use crate::lock::lock;
use crate::outbox::Outbox;
use crate::system::{End, Handed, Reply, System};

/// The session of a system.
pub(crate) type SessionOf<S> = Session<<S as System>::Id, <S as System>::Error>;

pub(crate) struct Session<I, E> {
    state: Mutex<State<I, E>>,
    /// This one wakes the task, and `to_source` the source.
    pub(crate) to_task: Notify,
    pub(crate) to_source: Notify,
}

impl<I, E> fmt::Debug for Session<I, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

pub(crate) struct State<I, E> {
    pub(crate) outbox: Outbox<I>,
    /// How many more messages the source has room for, beyond those that are here or requested.
    pub(crate) wanted: usize,
    /// How many messages the current request asks for.
    requested: usize,
    pub(crate) messages: VecDeque<Handed<I>>,
    /// The source waits for an answer of the system.
    pub(crate) is_probed: bool,
    /// How often the system has answered.
    pub(crate) answers: u64,
    pub(crate) end: Option<End<E>>,
    /// Whether the task is gone, with or without an `end`.
    pub(crate) is_over: bool,
    /// Whether the waits for messages work, if that has changed and is not reported yet.
    pub(crate) waits: Option<Result<(), String>>,
    /// When the lease of the worker ends, by this clock.
    pub(crate) until: Instant,
}

impl<I: Clone + PartialEq, E> Session<I, E> {
    pub(crate) fn new(until: Instant) -> Self {
        Self {
            state: Mutex::new(State {
                outbox: Outbox::default(),
                wanted: 0,
                requested: 0,
                messages: VecDeque::new(),
                is_probed: false,
                answers: 0,
                end: None,
                is_over: false,
                waits: None,
                until,
            }),
            to_task: Notify::new(),
            to_source: Notify::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State<I, E>> {
        lock(&self.state)
    }

    /// Adds changes for the system.
    pub(crate) fn report(&self, add: impl FnOnce(&mut Changes<I>)) {
        add(self.lock().outbox.waiting());
        self.to_task.notify_one();
    }

    pub(crate) fn end(&self, end: End<E>) {
        let mut state = self.lock();
        if matches!(end, End::Lost | End::Forgotten) {
            // Other workers may have the messages before this one can enter again.
            state.until = Instant::now();
        }
        state.end.get_or_insert(end);
        drop(state);
        self.to_source.notify_one();
    }

    /// Records that the task is gone.
    pub(crate) fn is_over(&self) {
        self.lock().is_over = true;
        self.to_source.notify_one();
    }

    pub(crate) fn is_leased(&self) -> bool {
        self.lock().until > Instant::now()
    }
}

impl<I: Clone + PartialEq, E> State<I, E> {
    /// Sets that the source has room for this many more messages. Returns whether that is more than
    /// before.
    pub(crate) fn want(&mut self, room: usize) -> bool {
        let wanted = room.saturating_sub(self.messages.len() + self.requested);
        let is_more = wanted > self.wanted;
        self.wanted = wanted;
        is_more
    }

    /// Begins a request. Returns the changes to send, and how many messages to ask for.
    pub(crate) fn send(&mut self, most: usize) -> (Arc<Changes<I>>, usize) {
        self.requested = self.wanted.min(most);
        self.wanted -= self.requested;
        (self.outbox.send(), self.requested)
    }

    /// Returns why the session is over, if it is.
    pub(crate) fn over(&self) -> Result<(), SourceError>
    where
        End<E>: std::error::Error + Clone + Send + Sync + 'static,
    {
        match &self.end {
            Some(end) => Err(SourceError::failed(end.clone())),
            None if self.is_over => Err(SourceError::failed("a call of the system panicked")),
            None if self.until <= Instant::now() => {
                Err(SourceError::failed("the lease of this worker has run out"))
            }
            None => Ok(()),
        }
    }

    /// Returns whether a new session may follow unseen, if the source holds no message: this one
    /// has worked, its connection or its lease has ended, and the system knows all settlements. A
    /// new worker could not bring them.
    pub(crate) fn may_begin_again(&self) -> bool {
        let has_ended = match &self.end {
            Some(end) => matches!(end, End::Failed(_) | End::Lost),
            None => !self.is_over && self.until <= Instant::now(),
        };
        has_ended && self.answers > 0 && self.outbox.is_confirmed()
    }

    /// Applies the answer to the request.
    pub(crate) fn confirm(&mut self, reply: Reply<I>, until: Instant) {
        // Messages that were requested and did not come are still wanted.
        self.wanted += self.requested.saturating_sub(reply.messages.len());
        self.requested = 0;
        self.is_probed = false;
        self.answers += 1;
        self.outbox.confirm(reply.came);
        self.until = until;
        self.messages.extend(reply.messages);
    }

    /// Undoes a request that failed or has an unknown result.
    pub(crate) fn take_back(&mut self) {
        self.wanted += self.requested;
        self.requested = 0;
        self.outbox.take_back();
    }
}

#[cfg(test)]
mod tests {
    use keylane_source::RawMessage;

    use super::*;
    use crate::system::Rest;

    fn reply(count: u64) -> Reply<u64> {
        let message = |id| Handed {
            id,
            message: RawMessage::new(""),
            attempts: 0,
            noted: 1,
        };
        Reply {
            messages: (0..count).map(message).collect(),
            came: 0,
            rest: Rest::More,
        }
    }

    #[test]
    fn messages_that_were_requested_are_not_asked_for_twice() {
        let session = Session::<u64, ()>::new(Instant::now());
        let mut state = session.lock();
        assert!(state.want(10));
        assert_eq!(state.send(4).1, 4);
        assert!(!state.want(10), "four of ten were requested");
        assert_eq!(state.wanted, 6);
        state.confirm(reply(1), Instant::now());
        assert_eq!(state.wanted, 9, "three have not come");
        assert!(!state.want(10), "one is here");
        assert_eq!(state.send(100).1, 9);
        state.take_back();
        assert_eq!(state.wanted, 9);
    }
}
