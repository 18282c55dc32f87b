//! The addresses of the servers, and the settings of connections.

use std::fmt;
use std::future::pending;
use std::time::Duration;

use keylane_connector::ConfigError;
use redis::{Client, IntoConnectionInfo};

use crate::error::RedisError;
use crate::inspect::{inspect, inspect_at_intervals};
use crate::link::{Link, tcp_settings};

/// How long a server may take to answer, by default.
const RESPONSE: Duration = Duration::from_secs(5);

/// How long a connection may take, by default.
const CONNECT: Duration = Duration::from_secs(5);

/// The address of a Redis or Valkey server, or of a cluster, and its time limits.
/// Cheap to clone. It has no connection: each source, queue and sink makes its own, and one for each
/// Tokio runtime that uses it.
///
/// The tested versions are Redis 7.0 and 8 and Valkey 9. At least Redis 7.0 is needed.
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
    /// The first nodes to connect to.
    Cluster(Vec<redis::ConnectionInfo>),
}

impl Redis {
    /// Sets one server: `redis://user:password@host:port/database`.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] for any other form.
    pub fn at(address: &str) -> Result<Self, ConfigError> {
        let address = address.into_connection_info().map_err(|_| no_address())?;
        let client = Client::open(address.set_tcp_settings(tcp_settings()));
        let client = client.map_err(|_| no_address())?;
        Ok(Self::with(Address::Server(client)))
    }

    /// Sets a cluster by some of its nodes.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] if there is no node, or if one does not have the form that
    /// [`at`](Self::at) takes.
    pub fn cluster<'a>(nodes: impl IntoIterator<Item = &'a str>) -> Result<Self, ConfigError> {
        let nodes = nodes
            .into_iter()
            .map(IntoConnectionInfo::into_connection_info);
        let nodes = nodes.collect::<Result<Vec<_>, _>>();
        let nodes = nodes.map_err(|_| no_address())?;
        match nodes.is_empty() {
            true => Err(no_address()),
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

    /// Sets how long a server may take to answer a command; 5 seconds by default. A command that
    /// waits for new data may take this much longer than its wait.
    #[must_use]
    pub fn response_timeout(mut self, limit: Duration) -> Self {
        self.response_timeout = limit;
        self
    }

    /// Sets how long it may take to connect; 5 seconds by default.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Whether it is a cluster, in which all keys of a command must be in one slot.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.address, Address::Cluster(_))
    }

    /// Connects, and looks at the settings of the server: now, and again at intervals. The
    /// connection fails for good when it breaks.
    pub(crate) async fn connect(&self) -> Result<Link, RedisError> {
        let (mut link, server) = self.reach(Duration::ZERO).await?;
        let Some(server) = server else {
            return Ok(link.with_task(pending()));
        };
        inspect(&mut link, &server).await?;
        let mut looks = link.clone();
        Ok(link.with_task(async move { inspect_at_intervals(&mut looks, &server).await }))
    }

    /// Connects for commands that wait up to this long for new data. No other command should use
    /// this connection: it would be answered after the wait.
    pub(crate) async fn connect_for(&self, wait: Duration) -> Result<Link, RedisError> {
        Ok(self.reach(wait).await?.0)
    }

    /// Returns a new connection, with the name of its server if it is a single one.
    async fn reach(&self, wait: Duration) -> Result<(Link, Option<String>), RedisError> {
        let limits = (self.connect_timeout, self.response_timeout + wait);
        let client = match &self.address {
            Address::Server(client) => client,
            Address::Cluster(nodes) => return Ok((Link::cluster(nodes, limits).await?, None)),
        };
        let server = client.get_connection_info().addr().to_string();
        Ok((Link::server(client, limits).await?, Some(server)))
    }
}

fn no_address() -> ConfigError {
    ConfigError::new(
        "address",
        "must have the form redis://user:password@host:port/database, without TLS; in the user and \
         the password, write @ as %40, : as %3A, / as %2F, # as %23, ? as %3F and % as %25",
    )
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may contain a password.
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
