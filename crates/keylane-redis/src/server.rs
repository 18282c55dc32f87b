//! Where the servers are, and how they are spoken with.

use std::fmt;
use std::time::Duration;

use redis::{Client, IntoConnectionInfo};

use crate::error::{ConfigError, RedisError};
use crate::link::{Link, Reconnecting};

/// How long a server may take to answer, unless set.
const RESPONSE: Duration = Duration::from_secs(5);

/// How long a connection may take, unless set.
const CONNECT: Duration = Duration::from_secs(5);

/// A server of Redis or Valkey, or a cluster of them: where it is, and how long it may take. Cheap
/// to clone. It holds no connection: each source, queue and sink makes its own.
///
/// The versions that are tested are Redis 7.0 and 8 and Valkey 9. At least Redis 7.0 is needed.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use keylane_redis::Redis;
///
/// # fn main() -> Result<(), keylane_redis::ConfigError> {
/// let redis = Redis::at("redis://:secret@redis.internal:6379/0")?
///     .response_timeout(Duration::from_secs(2));
/// let cluster = Redis::cluster(["redis://node-1:6379", "redis://node-2:6379"])?;
/// # let _ = (redis, cluster);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Redis {
    address: Address,
    response_timeout: Duration,
    connect_timeout: Duration,
}

#[derive(Clone)]
enum Address {
    Server(Client),
    /// Nodes to begin with.
    Cluster(Vec<redis::ConnectionInfo>),
}

impl Redis {
    /// One server: `redis://user:password@host:port/database`.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Address`] for anything else.
    pub fn at(address: &str) -> Result<Self, ConfigError> {
        let client = Client::open(address).map_err(|_| ConfigError::Address)?;
        Ok(Self::with(Address::Server(client)))
    }

    /// A cluster, of which some nodes are known.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Address`] if there is none, or one is not of the form that
    /// [`at`](Self::at) takes.
    pub fn cluster<'a>(nodes: impl IntoIterator<Item = &'a str>) -> Result<Self, ConfigError> {
        let nodes = nodes
            .into_iter()
            .map(IntoConnectionInfo::into_connection_info);
        let nodes = nodes.collect::<Result<Vec<_>, _>>();
        let nodes = nodes.map_err(|_| ConfigError::Address)?;
        match nodes.is_empty() {
            true => Err(ConfigError::Address),
            false => Ok(Self::with(Address::Cluster(nodes))),
        }
    }

    fn with(address: Address) -> Self {
        Self {
            address,
            response_timeout: RESPONSE,
            connect_timeout: CONNECT,
        }
    }

    /// How long a server may take to answer a command; 5 seconds unless set. A command that waits
    /// for news may take that much longer than it waits.
    #[must_use]
    pub fn response_timeout(mut self, limit: Duration) -> Self {
        self.response_timeout = limit;
        self
    }

    /// How long it may take to connect; 5 seconds unless set.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Whether it is a cluster, in which all keys of a command must be in one slot.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.address, Address::Cluster(_))
    }

    /// A connection that fails for good when it breaks.
    pub(crate) async fn connect(&self) -> Result<Link, RedisError> {
        self.connect_for(Duration::ZERO).await
    }

    /// The same, for commands that wait for news for up to so long. Nothing else goes through it:
    /// what is sent behind such a command is answered after it.
    pub(crate) async fn connect_for(&self, wait: Duration) -> Result<Link, RedisError> {
        let limit = self.response_timeout + wait;
        match &self.address {
            Address::Server(client) => Link::server(client, self.connect_timeout, limit).await,
            Address::Cluster(nodes) => Link::cluster(nodes, self.connect_timeout, limit).await,
        }
    }

    /// A connection that is made at the first command, and again when it has broken.
    pub(crate) fn reconnecting(&self) -> Reconnecting {
        Reconnecting::new(self.clone())
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may have a password in it.
        let what = match &self.address {
            Address::Server(_) => "server",
            Address::Cluster(_) => "cluster",
        };
        f.debug_struct("Redis")
            .field("what", &what)
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}
