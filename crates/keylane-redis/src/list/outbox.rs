//! The state between a source and the task that talks to the server.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::RedisError;

/// Identifies one hand-out of an element: each token is higher than all earlier ones of the list.
pub(super) type Token = u64;

/// The place of an element at a worker: the token of its first hand-out there.
pub(super) type Place = u64;

/// The numbers of a worker's calls, unique as long as it lives. The server keeps the number of the
/// last call that it has done. So the server detects a call that comes late or twice, and the
/// worker detects a server that has gone back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Calls {
    /// The last call that was sent.
    pub(super) sent: u64,
    /// The last call that is known to be done.
    pub(super) heard: u64,
}

/// The changes to send to the server.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// Elements that are done, each with its key.
    pub(super) done: Vec<(Place, Option<Bytes>)>,
    /// Elements that are given up, each with its key. They leave a cyclic list too.
    pub(super) gone: Vec<(Place, Option<Bytes>)>,
    /// Attempts to note.
    pub(super) notes: Vec<(Place, u32)>,
    /// Elements that were returned, and come again.
    pub(super) again: Vec<Place>,
}

impl Outgoing {
    pub(super) fn is_empty(&self) -> bool {
        self.done.is_empty()
            && self.gone.is_empty()
            && self.notes.is_empty()
            && self.again.is_empty()
    }

    /// Whether elements are not settled at the server. A returned element counts too: the server
    /// stores its attempts.
    fn is_unsettled(&self) -> bool {
        !(self.done.is_empty() && self.gone.is_empty() && self.notes.is_empty())
    }

    /// Whether this element has settled, and the server only has to be told.
    pub(super) fn settles(&self, place: Place) -> bool {
        let mut all = self.done.iter().chain(&self.gone);
        all.any(|settled| settled.0 == place)
    }

    fn append(&mut self, after: &mut Self) {
        self.done.append(&mut after.done);
        self.gone.append(&mut after.gone);
        self.notes.append(&mut after.notes);
        self.again.append(&mut after.again);
    }

    fn clear(&mut self) {
        self.done.clear();
        self.gone.clear();
        self.notes.clear();
        self.again.clear();
    }
}

/// An element that was handed out.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) place: Place,
    pub(super) token: Token,
    /// The token as the server writes it.
    pub(super) text: Bytes,
    pub(super) element: Bytes,
}

/// The end of a session.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// The server does not know the worker any more: other workers have its elements.
    Lost,
    /// The server has handed out an element that this worker has not received, or does not have an
    /// element that the worker holds.
    Missed,
    /// The server does not know changes that it has confirmed: it has an earlier state, or lost
    /// all.
    Forgotten,
    Failed(RedisError),
}

impl From<RedisError> for End {
    fn from(error: RedisError) -> Self {
        Self::Failed(error)
    }
}

#[derive(Debug)]
pub(super) struct ListOutbox {
    state: Mutex<State>,
    /// This one wakes the session, and `to_source` the source.
    pub(super) to_session: Notify,
    pub(super) to_source: Notify,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) said: Outgoing,
    /// The changes in the current request. The server may have applied them.
    pub(super) telling: Outgoing,
    /// How many more elements the source has room for, beyond those that are here or requested.
    pub(super) wanted: usize,
    /// How many elements the current request asks for.
    asked: usize,
    pub(super) taken: VecDeque<Taken>,
    /// The source waits for an answer of the server.
    pub(super) is_asked: bool,
    /// How often the server has answered.
    pub(super) answers: u64,
    pub(super) end: Option<End>,
    /// The state of the wait for elements, refused or working again, if it is not reported yet.
    pub(super) wait: Option<Result<(), String>>,
    /// When the lease of the worker ends, by this clock.
    pub(super) until: Instant,
    pub(super) calls: Calls,
}

impl ListOutbox {
    pub(super) fn new(until: Instant, calls: Calls) -> Self {
        Self {
            state: Mutex::new(State {
                said: Outgoing::default(),
                telling: Outgoing::default(),
                wanted: 0,
                asked: 0,
                taken: VecDeque::new(),
                is_asked: false,
                answers: 0,
                end: None,
                wait: None,
                until,
                calls,
            }),
            to_session: Notify::new(),
            to_source: Notify::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a change for the server.
    pub(super) fn say(&self, what: impl FnOnce(&mut Outgoing)) {
        what(&mut self.lock().said);
        self.to_session.notify_one();
    }
}

impl State {
    /// Sets that the source has room for this many more elements.
    pub(super) fn want(&mut self, room: usize) -> bool {
        let wanted = room.saturating_sub(self.taken.len() + self.asked);
        let is_more = wanted > self.wanted;
        self.wanted = wanted;
        is_more
    }

    /// Begins a round trip, which sends `telling`. Returns how many elements it asks for.
    pub(super) fn begin(&mut self, most: usize) -> usize {
        debug_assert!(self.telling.is_empty(), "one at a time");
        self.calls.sent += 1;
        self.asked = self.wanted.min(most);
        self.wanted -= self.asked;
        std::mem::swap(&mut self.said, &mut self.telling);
        self.asked
    }

    /// Applies a successful answer. The first `came` of the returned elements have come again.
    pub(super) fn answered(&mut self, taken: Vec<Taken>, came: usize, until: Instant) {
        // Elements that were requested and did not come are still wanted.
        self.wanted += self.asked.saturating_sub(taken.len());
        self.asked = 0;
        self.is_asked = false;
        self.answers += 1;
        self.calls.heard = self.calls.sent;
        let left = self
            .telling
            .again
            .split_off(came.min(self.telling.again.len()));
        self.said.again.splice(..0, left);
        self.telling.clear();
        self.until = until;
        self.taken.extend(taken);
    }

    /// Undoes a round trip that failed or has an unknown result: all its changes are sent again,
    /// and first.
    pub(super) fn not_answered(&mut self) {
        self.wanted += self.asked;
        self.asked = 0;
        let mut later = std::mem::take(&mut self.said);
        self.said = std::mem::take(&mut self.telling);
        self.said.append(&mut later);
    }

    /// Whether the server knows all settlements.
    pub(super) fn is_confirmed(&self) -> bool {
        !self.telling.is_unsettled() && !self.said.is_unsettled()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(token: Token) -> Taken {
        Taken {
            place: token,
            token,
            text: Bytes::new(),
            element: Bytes::new(),
        }
    }

    #[test]
    fn what_is_on_its_way_is_not_asked_for_twice() {
        let mailbox = ListOutbox::new(Instant::now(), Calls::default());
        let mut state = mailbox.lock();
        assert!(state.want(10));
        assert_eq!(state.begin(4), 4);
        assert!(!state.want(10), "four of ten are on their way");
        assert_eq!(state.wanted, 6);
        state.answered(vec![taken(1)], 0, Instant::now());
        assert_eq!(state.wanted, 9, "three have not come");
        assert!(!state.want(10), "one is here");
        assert_eq!(state.begin(100), 9);
    }

    #[test]
    fn what_was_not_answered_is_told_again_and_first() {
        let mailbox = ListOutbox::new(Instant::now(), Calls::default());
        mailbox.say(|said| said.done.push((1, None)));
        let mut state = mailbox.lock();
        state.begin(0);
        assert!(!state.is_confirmed());
        state.said.done.push((2, None));
        state.not_answered();
        state.begin(0);
        assert_eq!(state.telling.done, [(1, None), (2, None)]);
        assert!(state.telling.settles(1) && !state.telling.settles(3));
        state.answered(Vec::new(), 0, Instant::now());
        assert!(state.is_confirmed());
        assert_eq!(state.calls, Calls { sent: 2, heard: 2 });
    }

    /// The size of an answer is limited.
    #[test]
    fn what_has_not_come_again_is_asked_for_again_and_first() {
        let mailbox = ListOutbox::new(Instant::now(), Calls::default());
        mailbox.say(|said| said.again.extend([1, 2, 3]));
        let mut state = mailbox.lock();
        state.begin(0);
        state.said.again.push(4);
        state.answered(vec![taken(9)], 1, Instant::now());
        assert_eq!(state.said.again, [2, 3, 4]);
        assert!(state.telling.is_empty());
    }
}
