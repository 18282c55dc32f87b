//! What is sent, and what can be seen of it.

use keylane::{Dispatcher, Report};

use crate::plan::{Answer, Key, Kind};

pub(crate) type Id = u32;
pub(crate) type Orders = Dispatcher<Key, Message, Id, &'static str>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) id: Id,
    pub(crate) key: Option<Key>,
    pub(crate) kind: Kind,
}

/// What was seen, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Accepted(Id),
    Refused(Id, &'static str),
    Started(Id, u32),
    Answered(Id, Answer),
    /// A handler's future was dropped before it had answered.
    Dropped(Id),
    LetterStarted(Id, u32),
    LetterTaken(Id),
    LetterRefused(Id),
    /// The future of the sink was dropped.
    LetterDropped(Id),
    /// A receipt has resolved.
    Resolved(Id, &'static str),
    Reported(Report<Key, Message>),
    /// What no panic would tell, as it would be caught.
    Wrong(String),
}
