//! The four designs. Three of them are the same engine with another key function.

use std::num::NonZeroUsize;
use std::sync::Arc;

use keylane::routing::hash_lane;

use crate::crowd::Crowd;
use crate::handler::Handler;
use crate::outcome::Outcome;
use crate::traffic::{Message, Traffic, User};

mod engine;
mod per_key;

use engine::Engine;
use per_key::PerKey;

/// A design that is running.
pub(crate) trait Design {
    /// Gives the message to a handler, now or later.
    async fn send(&mut self, message: Message) -> Result<(), DesignError>;

    /// Queues that exist now.
    fn queues(&self) -> usize;

    /// Returns when nothing of the design is left.
    async fn finish(self) -> Result<(), DesignError>;
}

/// Why a design cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DesignError {
    #[error("a worker is gone")]
    WorkerGone,
    #[error("a worker panicked: {0}")]
    Panicked(#[from] tokio::task::JoinError),
    #[error("the dispatcher cannot be built: {0}")]
    NotBuilt(#[from] keylane::error::BuildError),
}

/// Static lanes for many users. Their number makes no difference there.
const LANES: NonZeroUsize = NonZeroUsize::new(64).expect("it is not zero");

/// A design by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    Single,
    PerKey,
    Static,
    Dynamic,
}

impl Choice {
    pub(crate) const ALL: [Self; 4] = [Self::Single, Self::PerKey, Self::Static, Self::Dynamic];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Single => "one worker",
            Self::PerKey => "a task and a queue per user",
            Self::Static => "static lanes",
            Self::Dynamic => "keylane by user",
        }
    }

    /// The key function, or what stands in its place.
    pub(crate) fn key(self, traffic: &Traffic) -> String {
        match self {
            Self::Single => "key: ()".to_owned(),
            Self::PerKey => "plain Tokio".to_owned(),
            Self::Static => format!("key: hash_lane({}, user)", traffic.lanes),
            Self::Dynamic => "key: user".to_owned(),
        }
    }

    /// Lets so many users come and be silent. The engine's designs have room for so many messages.
    pub(crate) async fn crowd(self, users: User, room: usize) -> Result<Crowd, DesignError> {
        let handler = Arc::new(Handler::counting());
        match self {
            Self::Single => {
                let start = |handler| Engine::start(|_| (), handler, room);
                Crowd::measure(self, users, &handler, start).await
            }
            Self::PerKey => {
                let start = |handler| Ok(PerKey::start(handler));
                Crowd::measure(self, users, &handler, start).await
            }
            Self::Static => {
                let key = |message: &Message| hash_lane(LANES, &message.user);
                let start = |handler| Engine::start(key, handler, room);
                Crowd::measure(self, users, &handler, start).await
            }
            Self::Dynamic => {
                let key = |message: &Message| message.user;
                let start = |handler| Engine::start(key, handler, room);
                Crowd::measure(self, users, &handler, start).await
            }
        }
    }

    /// Runs the whole load.
    pub(crate) async fn run(self, traffic: &Traffic) -> Result<Outcome, DesignError> {
        let handler = Arc::new(Handler::new(traffic.users));
        let (lanes, room) = (traffic.lanes, traffic.messages.len());
        let shared = Arc::clone(&handler);
        // The one place where the designs differ.
        match self {
            Self::Single => {
                let start = || Engine::start(|_| (), shared, room);
                Outcome::measure(self, traffic, &handler, start).await
            }
            Self::PerKey => {
                let start = || Ok(PerKey::start(shared));
                Outcome::measure(self, traffic, &handler, start).await
            }
            Self::Static => {
                let key = move |message: &Message| hash_lane(lanes, &message.user);
                let start = || Engine::start(key, shared, room);
                Outcome::measure(self, traffic, &handler, start).await
            }
            Self::Dynamic => {
                let start = || Engine::start(|message: &Message| message.user, shared, room);
                Outcome::measure(self, traffic, &handler, start).await
            }
        }
    }
}
