//! The ways to consume Redis.

mod apalis;
mod keylane_list;
mod keylane_stream;
mod naive_list;
mod xreadgroup;

use async_trait::async_trait;
use serde::Serialize;

use crate::Error;
use crate::message::Message;
use crate::work::Work;

/// Handlers of one worker that run at the same time.
pub const CONCURRENCY: usize = 256;

/// Messages that are stored in one call.
pub const CHUNK: u64 = 1_000;

/// Messages of a list that another worker holds meanwhile.
pub const HELD: usize = 10_000;

/// What a contender is opened for.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The server, which is empty.
    pub url: String,
    /// Workers, each with connections of its own.
    pub workers: usize,
}

/// A way to consume Redis.
#[async_trait]
pub trait Contender: Send {
    /// Stores messages.
    async fn store(&mut self, messages: &[Message]) -> Result<(), Error>;

    /// All are stored: does what is left to do before the clock starts.
    async fn prepare(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Starts the workers.
    async fn begin(&mut self, work: &Work) -> Result<(), Error>;

    /// Whether the server says that all messages are handled.
    async fn is_confirmed(&mut self, messages: u64) -> Result<bool, Error>;

    /// Stops the workers.
    async fn end(&mut self);
}

/// Which contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Id {
    /// A loop over `XREADGROUP`, with an `XACK` for each batch.
    Xreadgroup,
    /// keylane-redis on a stream.
    KeylaneStream,
    /// A loop with an `LMOVE` and an `LREM` for each message.
    NaiveList,
    /// The same, whose `LREM` looks from the other end.
    NaiveListTail,
    /// As many of these loops as others have handlers, on one connection.
    NaiveListMany,
    /// apalis-redis with its defaults.
    Apalis,
    /// apalis-redis in large batches, without locks and events.
    ApalisTuned,
    /// keylane-redis on a list of messages with keys.
    KeylaneList,
    /// keylane-redis on a list of plain payloads, with a rule for the key.
    KeylaneListPlain,
    /// keylane-leases on keylane-redis.
    Keylane,
    /// A dispatcher.
    LanesAlone,
    /// A dispatcher whose lanes are leased.
    LanesLeased,
}

impl Id {
    /// Those of streams.
    pub const STREAMS: [Self; 2] = [Self::Xreadgroup, Self::KeylaneStream];

    /// Those of lists.
    pub const LISTS: [Self; 7] = [
        Self::NaiveList,
        Self::NaiveListTail,
        Self::NaiveListMany,
        Self::Apalis,
        Self::ApalisTuned,
        Self::KeylaneList,
        Self::KeylaneListPlain,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xreadgroup => "xreadgroup",
            Self::KeylaneStream => "keylane-stream",
            Self::NaiveList => "naive-list",
            Self::NaiveListTail => "naive-list-tail",
            Self::NaiveListMany => "naive-list-many",
            Self::Apalis => "apalis-redis",
            Self::ApalisTuned => "apalis-redis-tuned",
            Self::KeylaneList => "keylane-list",
            Self::KeylaneListPlain => "keylane-list-plain",
            Self::Keylane => "keylane-leases",
            Self::LanesAlone => "lanes",
            Self::LanesLeased => "lanes-leased",
        }
    }

    /// Whether it is one of ours.
    pub fn is_keylane(self) -> bool {
        matches!(
            self,
            Self::KeylaneStream
                | Self::KeylaneList
                | Self::KeylaneListPlain
                | Self::Keylane
                | Self::LanesAlone
                | Self::LanesLeased
        )
    }

    /// Whether it keeps the order of each key, however many workers there are.
    pub fn keeps_order(self) -> bool {
        self.is_keylane()
    }

    /// Opens it on an empty server.
    pub async fn open(self, setup: Setup) -> Result<Box<dyn Contender>, Error> {
        use apalis::Apalis;
        use keylane_list::{Elements, KeylaneList};
        use naive_list::{Look, NaiveList};
        Ok(match self {
            Self::Xreadgroup => Box::new(xreadgroup::Xreadgroup::open(&setup).await?),
            Self::KeylaneStream => Box::new(keylane_stream::KeylaneStream::open(&setup).await?),
            Self::NaiveList => Box::new(NaiveList::open(&setup, Look::Newest, 1).await?),
            Self::NaiveListTail => Box::new(NaiveList::open(&setup, Look::Oldest, 1).await?),
            Self::NaiveListMany => {
                Box::new(NaiveList::open(&setup, Look::Newest, CONCURRENCY).await?)
            }
            Self::Apalis => Box::new(Apalis::open(&setup, false).await?),
            Self::ApalisTuned => Box::new(Apalis::open(&setup, true).await?),
            Self::KeylaneList => Box::new(KeylaneList::open(&setup, Elements::WithKeys).await?),
            Self::KeylaneListPlain => Box::new(KeylaneList::open(&setup, Elements::Plain).await?),
            Self::Keylane | Self::LanesAlone | Self::LanesLeased => {
                return Err("it consumes nothing".into());
            }
        })
    }
}
