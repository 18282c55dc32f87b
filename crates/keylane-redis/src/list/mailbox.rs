//! What is between a source and the task that speaks with the server.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::RedisError;

/// What names one hand-out of an element: each is higher than all before it in the list.
pub(super) type Token = u64;

/// What is to be said to the server.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// These are done, each with its key.
    pub(super) done: Vec<(Token, Option<Bytes>)>,
    /// These are given up, and leave also a list that is cyclic.
    pub(super) gone: Vec<(Token, Option<Bytes>)>,
    /// Attempts to be noted.
    pub(super) notes: Vec<(Token, u32)>,
    /// These were given back, and come again.
    pub(super) again: Vec<Token>,
}

impl Said {
    pub(super) fn is_empty(&self) -> bool {
        self.done.is_empty()
            && self.gone.is_empty()
            && self.notes.is_empty()
            && self.again.is_empty()
    }

    /// Also of what is returned the server is told something: how often it was tried.
    fn is_unsettled(&self) -> bool {
        !(self.done.is_empty() && self.gone.is_empty() && self.notes.is_empty())
    }

    /// Whether this element has settled, and is only to be told.
    pub(super) fn settles(&self, token: Token) -> bool {
        let mut all = self.done.iter().chain(&self.gone);
        all.any(|settled| settled.0 == token)
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
    pub(super) token: Token,
    /// The token as the server writes it.
    pub(super) text: Bytes,
    pub(super) element: Bytes,
}

/// Why a session has ended.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// The server does not know the worker any more: others have what it had.
    Lost,
    /// The server has handed something out of which this worker has not heard.
    Missed,
    Failed(RedisError),
}

impl From<RedisError> for End {
    fn from(error: RedisError) -> Self {
        Self::Failed(error)
    }
}

#[derive(Debug)]
pub(super) struct Mailbox {
    state: Mutex<State>,
    /// Wakes the session, and the source.
    pub(super) to_session: Notify,
    pub(super) to_source: Notify,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) said: Said,
    /// What the server is being told, and may have been told.
    pub(super) telling: Said,
    /// How many elements the source has room for beyond those that are here and asked for.
    pub(super) wanted: usize,
    /// How many the server is being asked for.
    asked: usize,
    pub(super) taken: VecDeque<Taken>,
    /// The source wants to hear from the server.
    pub(super) is_asked: bool,
    /// How often it has.
    pub(super) answers: u64,
    pub(super) end: Option<End>,
    /// When the lease of the worker ends, by this clock.
    pub(super) until: Instant,
}

impl Mailbox {
    pub(super) fn new(first: VecDeque<Taken>, until: Instant) -> Self {
        Self {
            state: Mutex::new(State {
                said: Said::default(),
                telling: Said::default(),
                wanted: 0,
                asked: 0,
                taken: first,
                is_asked: false,
                answers: 0,
                end: None,
                until,
            }),
            to_session: Notify::new(),
            to_source: Notify::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has something said to the server.
    pub(super) fn say(&self, what: impl FnOnce(&mut Said)) {
        what(&mut self.lock().said);
        self.to_session.notify_one();
    }
}

impl State {
    /// The source has room for so many more.
    pub(super) fn want(&mut self, room: usize) -> bool {
        let wanted = room.saturating_sub(self.taken.len() + self.asked);
        let is_more = wanted > self.wanted;
        self.wanted = wanted;
        is_more
    }

    /// A round trip begins. It tells what is in `telling`, and asks for so many elements.
    pub(super) fn begin(&mut self, most: usize) -> usize {
        debug_assert!(self.telling.is_empty(), "one at a time");
        self.asked = self.wanted.min(most);
        self.wanted -= self.asked;
        std::mem::swap(&mut self.said, &mut self.telling);
        self.asked
    }

    /// It has gone well.
    pub(super) fn answered(&mut self, taken: impl ExactSizeIterator<Item = Taken>, until: Instant) {
        // What was asked for and did not come is still wanted.
        self.wanted += self.asked.saturating_sub(taken.len());
        self.asked = 0;
        self.is_asked = false;
        self.answers += 1;
        self.telling.clear();
        self.until = until;
        self.taken.extend(taken);
    }

    /// It has not, or nothing is known of it: all of it is to be told again, and first.
    pub(super) fn not_answered(&mut self) {
        self.wanted += self.asked;
        self.asked = 0;
        let mut later = std::mem::take(&mut self.said);
        self.said = std::mem::take(&mut self.telling);
        self.said.append(&mut later);
    }

    /// Whether the server has been told of all that has settled.
    pub(super) fn is_confirmed(&self) -> bool {
        !self.telling.is_unsettled() && !self.said.is_unsettled()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(token: Token) -> Taken {
        Taken {
            token,
            text: Bytes::new(),
            element: Bytes::new(),
        }
    }

    #[test]
    fn what_is_on_its_way_is_not_asked_for_twice() {
        let mailbox = Mailbox::new(VecDeque::new(), Instant::now());
        let mut state = mailbox.lock();
        assert!(state.want(10));
        assert_eq!(state.begin(4), 4);
        assert!(!state.want(10), "four of ten are on their way");
        assert_eq!(state.wanted, 6);
        state.answered([taken(1)].into_iter(), Instant::now());
        assert_eq!(state.wanted, 9, "three have not come");
        assert!(!state.want(10), "one is here");
        assert_eq!(state.begin(100), 9);
    }

    #[test]
    fn what_was_not_answered_is_told_again_and_first() {
        let mailbox = Mailbox::new(VecDeque::new(), Instant::now());
        mailbox.say(|said| said.done.push((1, None)));
        let mut state = mailbox.lock();
        state.begin(0);
        assert!(!state.is_confirmed());
        state.said.done.push((2, None));
        state.not_answered();
        state.begin(0);
        assert_eq!(state.telling.done, [(1, None), (2, None)]);
        assert!(state.telling.settles(1) && !state.telling.settles(3));
        state.answered(Vec::new().into_iter(), Instant::now());
        assert!(state.is_confirmed());
    }
}
