//! The queues.

mod awa;
mod graphile;
mod keylane;
mod skip_locked;

use async_trait::async_trait;
use serde::Serialize;

use crate::Error;
use crate::message::{Message, Traffic};
use crate::work::Work;

/// Handlers of one worker that run at the same time.
pub const CONCURRENCY: usize = 256;

/// Messages that are enqueued in one call.
const CHUNK: u64 = 5_000;

/// What a queue is opened for.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Workers, each with its own pool.
    pub workers: usize,
    /// Keys of the messages.
    pub keys: u64,
}

/// A queue in a database of its own.
#[async_trait]
pub trait Queue: Send + Sync {
    /// Stores messages, in one call of its bulk path.
    async fn enqueue(&self, messages: &[Message]) -> Result<(), Error>;

    /// Starts the workers.
    async fn begin(&mut self, work: &Work) -> Result<(), Error>;

    /// Whether the database says that all messages are handled.
    async fn is_confirmed(&self, messages: u64) -> Result<bool, Error>;

    /// Stops the workers.
    async fn end(&mut self);
}

/// Which queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Id {
    /// keylane-sql.
    Keylane,
    /// awa, a physical queue with one handler for each of its partitions.
    Awa,
    /// awa, one queue.
    AwaUnordered,
    /// Graphile Worker, with named queues.
    Graphile,
    /// Graphile Worker without named queues.
    GraphileUnordered,
    /// A table and `SKIP LOCKED`, written by hand.
    SkipLocked,
}

impl Id {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Keylane,
        Self::Awa,
        Self::Graphile,
        Self::SkipLocked,
        Self::AwaUnordered,
        Self::GraphileUnordered,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Keylane => "keylane",
            Self::Awa => "awa",
            Self::AwaUnordered => "awa-unordered",
            Self::Graphile => "graphile",
            Self::GraphileUnordered => "graphile-unordered",
            Self::SkipLocked => "skip-locked",
        }
    }

    /// Whether it claims to keep the order of each key.
    pub fn keeps_order(self) -> bool {
        matches!(self, Self::Keylane | Self::Awa | Self::Graphile)
    }

    /// Opens the queue in an empty database.
    pub async fn open(self, address: &str, setup: Setup) -> Result<Box<dyn Queue>, Error> {
        Ok(match self {
            Self::Keylane => Box::new(keylane::Keylane::open(address, setup).await?),
            Self::Awa => Box::new(awa::Awa::open(address, setup, true).await?),
            Self::AwaUnordered => Box::new(awa::Awa::open(address, setup, false).await?),
            Self::Graphile => Box::new(graphile::Graphile::open(address, setup, true).await?),
            Self::GraphileUnordered => {
                Box::new(graphile::Graphile::open(address, setup, false).await?)
            }
            Self::SkipLocked => Box::new(skip_locked::SkipLocked::open(address, setup).await?),
        })
    }
}

/// Stores all messages of a measurement, one call after the other.
pub async fn fill(queue: &dyn Queue, traffic: Traffic) -> Result<(), Error> {
    for chunk in traffic.chunks(CHUNK) {
        queue.enqueue(&chunk).await?;
    }
    Ok(())
}
