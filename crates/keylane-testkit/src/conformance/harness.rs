//! What a connector brings for the suite.

use std::fmt;
use std::time::Duration;

use keylane::error::BoxError;
use keylane::source::{RawMessage, Source};

use crate::history::History;

/// The server of a connector, as the suite uses it.
///
/// See the [module](super) for an example.
#[keylane::async_trait]
pub trait Harness: Send + Sync {
    /// Where one case runs.
    type Site: Site;

    /// Makes an empty site for one case: a new queue, topic or table.
    ///
    /// # Errors
    ///
    /// The case fails with it.
    async fn site(&self, case: &str) -> Result<Self::Site, BoxError>;

    /// What [`Site::inject`] can do. Cases that need something else are left out, and the
    /// [`Outcome`](super::Outcome) says so.
    fn faults(&self) -> Vec<Fault> {
        Vec::new()
    }

    /// How long to wait for what should happen, such as the redelivery of a message; 30 seconds by
    /// default. More than the time after which the server gives up on a consumer.
    fn patience(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// Runs a process that consumes messages, kills it (`SIGKILL`) at random points, starts it
    /// again until all is handled, and returns what happened, with an
    /// [`Event::Crash`](crate::Event::Crash) for each kill. `None`: it cannot, and the case is left
    /// out.
    ///
    /// # Errors
    ///
    /// The case fails with it.
    async fn kill_process(&self) -> Result<Option<History>, BoxError> {
        Ok(None)
    }
}

/// A queue, topic or table of its own.
#[keylane::async_trait]
pub trait Site: Send + Sync {
    /// What is tested.
    type Source: Source<Message = RawMessage>;

    /// A new source of this site. There may be others.
    ///
    /// # Errors
    ///
    /// The case fails with it.
    async fn source(&self) -> Result<Self::Source, BoxError>;

    /// Publishes messages in this order. They are durable when it returns.
    ///
    /// # Errors
    ///
    /// The case fails with it.
    async fn publish(&self, messages: Vec<RawMessage>) -> Result<(), BoxError>;

    /// How many messages would still be handed over if all sources were gone now. For a server that
    /// cannot tell: more than 0 until it is certain.
    ///
    /// # Errors
    ///
    /// The case fails with it.
    async fn left(&self) -> Result<usize, BoxError>;

    /// The messages whose dead letters the source has kept. For sources with
    /// [`dead_letters`](keylane::source::Features::dead_letters).
    ///
    /// # Errors
    ///
    /// The case fails with it.
    async fn letters(&self) -> Result<Vec<RawMessage>, BoxError> {
        Ok(Vec::new())
    }

    /// Nothing more is published. For [finite](keylane::source::Features::finite) sources.
    ///
    /// # Errors
    ///
    /// The case fails with it.
    async fn end(&self) -> Result<(), BoxError> {
        Ok(())
    }

    /// Makes this happen. Called for the declared [faults](Harness::faults) only.
    ///
    /// # Errors
    ///
    /// The case fails with it.
    async fn inject(&self, fault: Fault) -> Result<(), BoxError> {
        Err(format!("the harness cannot inject {fault}").into())
    }
}

/// What a harness may be able to do to its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The server ends in an orderly way, and runs again when the call returns.
    Restart,
    /// The server is killed, and runs again when the call returns.
    Kill,
    /// The open connections get no answer any more, and no error. New ones do.
    Stall,
    /// The next ack does not arrive: the connection is cut before it.
    CutBeforeAck,
    /// The server asks all sources for what they own, and gives it to them again.
    Revoke,
    /// The same without asking: it takes it away as if they had been silent for too long.
    Lose,
    /// From now on each message is handed over two to five times: late, out of order, after its
    /// ack.
    Storm,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Restart => "a restart of the server",
            Self::Kill => "the death of the server",
            Self::Stall => "a stall without an error",
            Self::CutBeforeAck => "a cut before an ack",
            Self::Revoke => "a revoke",
            Self::Lose => "a loss of ownership",
            Self::Storm => "a storm of redeliveries",
        })
    }
}
