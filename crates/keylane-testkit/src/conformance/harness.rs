//! The interface between a connector and the suite.

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
    /// The site of one case.
    type Site: Site;

    /// Creates an empty site for one case: a new queue, topic or table.
    ///
    /// # Errors
    ///
    /// An error fails the case.
    async fn site(&self, case: &str) -> Result<Self::Site, BoxError>;

    /// Returns the faults that [`Site::inject`] supports. Cases that need another one are left out,
    /// and the [`Outcome`](super::Outcome) says so.
    fn faults(&self) -> Vec<Fault> {
        Vec::new()
    }

    /// Returns how long to wait for an expected event, such as the redelivery of a message; two
    /// minutes by default. It must be longer than the time after which the server gives up on a
    /// consumer.
    fn patience(&self) -> Duration {
        Duration::from_secs(120)
    }

    /// Runs a process that consumes messages, kills it (`SIGKILL`) at random points, starts it
    /// again until all messages are handled, and returns the history, with an
    /// [`Event::Crash`](crate::Event::Crash) for each kill. `None`: the harness cannot do this, and
    /// the case is left out.
    ///
    /// # Errors
    ///
    /// An error fails the case.
    async fn kill_process(&self) -> Result<Option<History>, BoxError> {
        Ok(None)
    }
}

/// A queue, topic or table of its own.
#[keylane::async_trait]
pub trait Site: Send + Sync {
    /// The source under test.
    type Source: Source<Message = RawMessage>;

    /// Returns a new source of this site. There may be others.
    ///
    /// # Errors
    ///
    /// An error fails the case.
    async fn source(&self) -> Result<Self::Source, BoxError>;

    /// Publishes messages in this order. They are durable when it returns.
    ///
    /// # Errors
    ///
    /// An error fails the case.
    async fn publish(&self, messages: Vec<RawMessage>) -> Result<(), BoxError>;

    /// Returns how many messages would still be handed over if all sources were gone now. A server
    /// that cannot know returns more than 0 until it is certain.
    ///
    /// # Errors
    ///
    /// An error fails the case.
    async fn left(&self) -> Result<usize, BoxError>;

    /// Returns the messages whose dead letters the source has kept. For sources with
    /// [`dead_letters`](keylane::source::Features::dead_letters).
    ///
    /// # Errors
    ///
    /// An error fails the case.
    async fn letters(&self) -> Result<Vec<RawMessage>, BoxError> {
        Ok(Vec::new())
    }

    /// Returns the message as this system can keep it. A system without tombstones, for example,
    /// returns it with an empty payload. By default the message as it is.
    fn sayable(&self, message: RawMessage) -> RawMessage {
        message
    }

    /// Sends the kept letters back to where their messages were. Returns `false` if the connector
    /// cannot do this.
    ///
    /// # Errors
    ///
    /// An error fails the case.
    async fn redrive(&self) -> Result<bool, BoxError> {
        Ok(false)
    }

    /// Ends the publication. For [finite](keylane::source::Features::finite) sources.
    ///
    /// # Errors
    ///
    /// An error fails the case.
    async fn end(&self) -> Result<(), BoxError> {
        Ok(())
    }

    /// Causes this fault. Called for the declared [faults](Harness::faults) only.
    ///
    /// # Errors
    ///
    /// An error fails the case.
    async fn inject(&self, fault: Fault) -> Result<(), BoxError> {
        Err(format!("the harness cannot inject {fault}").into())
    }
}

/// A fault that a harness may cause at its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The server ends in an orderly way, and runs again when the call returns.
    Restart,
    /// The server is killed, and runs again when the call returns.
    Kill,
    /// The open connections get neither answers nor errors any more. New ones do.
    Stall,
    /// The next ack does not arrive: the connection is cut before it.
    CutBeforeAck,
    /// The server asks all sources to release their partitions, and assigns them again.
    Revoke,
    /// The same without a request: the server takes them away as if the sources had been silent for
    /// too long.
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
