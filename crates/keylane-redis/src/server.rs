//! The addresses of the servers, and the settings of connections.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use keylane_connector::{ConfigError, ErrorKind};
use redis::{Client, IntoConnectionInfo};
use tokio::time::timeout;

use crate::error::RedisError;
use crate::inspect::{inspect, inspect_at_intervals, inspect_cluster};
use crate::link::{Link, place_of, tcp_settings};
use crate::sentinel::Sentinels;
use crate::tls::{self, Certificates};

/// How long a server may take to answer, by default.
const RESPONSE: Duration = Duration::from_secs(5);

/// How long a connection may take, by default.
const CONNECT: Duration = Duration::from_secs(5);

/// The address of a Redis or Valkey server, of a cluster, or of Sentinels, and its time limits.
/// Cheap to clone. It has no connection: each source, queue and sink makes its own, and one for
/// each Tokio runtime that uses it.
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
/// let sentinels = ["redis://sentinel-1:26379", "redis://sentinel-2:26379"];
/// let primary = Redis::sentinel(sentinels, "redis://:secret@orders-primary/0")?;
/// # let _ = (redis, cluster, primary);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Redis {
    address: Address,
    response_timeout: Duration,
    connect_timeout: Duration,
    certificates: Certificates,
}

#[derive(Clone)]
enum Address {
    Server(Client),
    /// The first nodes to connect to.
    Cluster(Vec<redis::ConnectionInfo>),
    Sentinel(Sentinels),
}

impl Redis {
    /// Sets one server: `redis://user:password@host:port/database`, or `rediss://…` with TLS, for
    /// which the feature `tls` must be on.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] for any other form.
    pub fn at(address: &str) -> Result<Self, ConfigError> {
        let address = connection_info(address)?;
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
        let nodes = nodes.into_iter().map(connection_info);
        let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
        match nodes.is_empty() {
            true => Err(no_address()),
            false => Ok(Self::with(Address::Cluster(nodes))),
        }
    }

    /// Sets the primary that Sentinels know under a name. Each new connection asks them for it, so
    /// sources, queues and sinks go on with the replica that is promoted. The Sentinels must report
    /// addresses that this process can reach.
    ///
    /// `primary` has the form that [`at`](Self::at) takes, with the name in the place of the host:
    /// `redis://user:password@name/database`. The user and the password in the addresses of the
    /// Sentinels are those of the Sentinels.
    ///
    /// **Replication is asynchronous.** The replica that is promoted may lack the last writes that
    /// the primary has confirmed: messages that were pushed are lost, messages that were acked come
    /// again, and a lease may have two holders for a while. `min-replicas-to-write` makes that
    /// less likely.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] if there is no Sentinel, or if an address has another form, or TLS:
    /// that is not supported with Sentinels.
    pub fn sentinel<'a>(
        sentinels: impl IntoIterator<Item = &'a str>,
        primary: &str,
    ) -> Result<Self, ConfigError> {
        let sentinels = Sentinels::new(sentinels, primary).ok_or_else(no_address)?;
        Ok(Self::with(Address::Sentinel(sentinels)))
    }

    fn with(address: Address) -> Self {
        Self {
            address,
            response_timeout: RESPONSE,
            connect_timeout: CONNECT,
            certificates: Certificates::default(),
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

    /// Sets the certificates for connections with TLS: the authorities that are trusted, and the
    /// certificate by which the server knows this process. Without this call the authorities of
    /// Mozilla's list are trusted, and there is no client certificate.
    ///
    /// A server in a cluster is checked by the address or the host name that the cluster reports
    /// (`cluster-announce-hostname`, with `cluster-preferred-endpoint-type hostname`).
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] if an address does not begin with `rediss://`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use keylane_redis::{Certificates, Redis};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let certificates = Certificates::new().authority(std::fs::read("/etc/redis/ca.pem")?)?;
    /// let redis = Redis::at("rediss://:secret@redis.internal:6379/0")?.certificates(certificates)?;
    /// # let _ = redis;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn certificates(mut self, certificates: Certificates) -> Result<Self, ConfigError> {
        let certified = |server: &redis::ConnectionInfo| {
            tls::certified(server, &certificates).map_err(|_| no_tls())
        };
        match &mut self.address {
            Address::Server(client) => *client = certified(client.get_connection_info())?,
            Address::Cluster(nodes) => {
                for node in nodes {
                    *node = certified(node)?.get_connection_info().clone();
                }
            }
            Address::Sentinel(_) => return Err(no_tls()),
        }
        self.certificates = certificates;
        Ok(self)
    }

    /// Whether it is a cluster, in which all keys of a command must be in one slot.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.address, Address::Cluster(_))
    }

    /// Connects, and looks at the settings of the server: now, and again at intervals. The
    /// connection fails for good when it breaks.
    ///
    /// The nodes of a cluster are looked at in the background: one that does not answer does not
    /// delay the others.
    pub(crate) async fn connect(&self) -> Result<Link, RedisError> {
        let (mut link, server) = self.reach(Duration::ZERO).await?;
        let mut looks = link.clone();
        let Some(server) = server else {
            let cluster = self.place();
            return Ok(link.with_task(async move { inspect_cluster(&mut looks, &cluster).await }));
        };
        let inspected = inspect(&mut link, &server).await;
        inspected.map_err(|error| link.named(error))?;
        Ok(link.with_task(async move { inspect_at_intervals(&mut looks, &server).await }))
    }

    /// Connects for commands that wait up to this long for new data. No other command should use
    /// this connection: it would be answered after the wait.
    pub(crate) async fn connect_for(&self, wait: Duration) -> Result<Link, RedisError> {
        Ok(self.reach(wait).await?.0)
    }

    /// Returns the servers as errors name them: hosts and ports.
    pub(crate) fn place(&self) -> Arc<str> {
        match &self.address {
            Address::Server(client) => place_of(std::slice::from_ref(client.get_connection_info())),
            Address::Cluster(nodes) => place_of(nodes),
            Address::Sentinel(sentinels) => sentinels.to_string().into(),
        }
    }

    /// Returns a new connection, with the name of its server if it is a single one.
    async fn reach(&self, wait: Duration) -> Result<(Link, Option<String>), RedisError> {
        let limits = (self.connect_timeout, self.response_timeout + wait);
        let asked;
        let client = match &self.address {
            Address::Server(client) => client,
            Address::Cluster(nodes) => {
                tls::prepare(nodes);
                let link = Link::cluster(nodes, limits, &self.certificates).await;
                return match link {
                    Ok(link) => Ok((link, None)),
                    Err(error) => {
                        let error = self.explain(error, nodes).await;
                        Err(error.at(&self.place()))
                    }
                };
            }
            Address::Sentinel(sentinels) => {
                let limit = self.connect_timeout + sentinels.asked_within();
                let primary = timeout(limit, sentinels.primary()).await;
                let primary = primary.unwrap_or_else(|_| Err(no_primary()));
                asked = primary.map_err(|error| error.at(&self.place()))?;
                &asked
            }
        };
        let info = std::slice::from_ref(client.get_connection_info());
        let server = info[0].addr().to_string();
        tls::prepare(info);
        match Link::server(client, limits).await {
            Ok(link) => Ok((link, Some(server))),
            Err(error) => {
                let error = self.explain(error, info).await.at_first();
                Err(error.at(&place_of(info)))
            }
        }
    }

    /// Returns why there is no connection to these servers, if it is because of TLS and the error
    /// does not say so.
    async fn explain(&self, error: RedisError, servers: &[redis::ConnectionInfo]) -> RedisError {
        if error.kind() != ErrorKind::Unreachable {
            return error;
        }
        let failure = tls::failure(servers, &self.certificates, self.connect_timeout).await;
        failure.map_or(error, RedisError::tls)
    }
}

/// Reads an address.
fn connection_info(address: &str) -> Result<redis::ConnectionInfo, ConfigError> {
    let info = address.into_connection_info().map_err(|_| no_address())?;
    match tls::is_unchecked(&info) {
        true => Err(ConfigError::new(
            "address",
            "must not end with `#insecure`: name the authority of the server with `certificates`",
        )),
        false => Ok(info),
    }
}

#[cfg(feature = "tls")]
fn no_tls() -> ConfigError {
    ConfigError::new(
        "certificates",
        "need TLS: begin each address with rediss://, and use no Sentinels",
    )
}

fn no_primary() -> RedisError {
    let what = "the Sentinels did not name a primary in time, or it did not answer";
    RedisError::new(ErrorKind::Unreachable, what)
}

fn no_address() -> ConfigError {
    ConfigError::new(
        "address",
        "must have the form redis://user:password@host:port/database, or rediss:// for TLS, which \
         needs the feature `tls` and no Sentinels; in the user and the password, write @ as %40, : \
         as %3A, / as %2F, # as %23, ? as %3F and % as %25",
    )
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may contain a password.
        let what = match &self.address {
            Address::Server(_) => "server",
            Address::Cluster(_) => "cluster",
            Address::Sentinel(_) => "sentinel",
        };
        f.debug_struct("Redis")
            .field("what", &what)
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "../tests/shared/logs.rs"]
mod logs;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use keylane_testkit::scenario::until_async as until;
    use testkit_servers::RedisKind;
    use tracing::Level;

    use super::*;

    /// The mistakes that a new user makes first.
    #[tokio::test]
    async fn a_wrong_address_or_password_says_what_to_correct() {
        let server = testkit_servers::Redis::builder(RedisKind::Redis8);
        let server = server.password("canary").start().await.unwrap();
        let host = format!("127.0.0.1:{}", server.port());
        for (address, kind, place, advice) in [
            (
                "redis://127.0.0.1:1".to_owned(),
                ErrorKind::Unreachable,
                "127.0.0.1:1",
                "refused",
            ),
            (
                format!("redis://{host}"),
                ErrorKind::Denied,
                &host,
                "write the password into",
            ),
            (
                format!("redis://:canary-4711@{host}"),
                ErrorKind::Denied,
                &host,
                "address",
            ),
        ] {
            let error = Redis::at(&address).unwrap().connect().await.err().unwrap();
            let text = error.to_string();
            assert_eq!(error.kind(), kind, "{text}");
            assert!(
                text.starts_with(&format!("Redis at {place}: ")) && text.contains(advice),
                "{text}"
            );
            assert!(!text.contains("canary"), "{text}");
        }
    }

    /// A port of another server: PostgreSQL closes the connection, MariaDB greets.
    #[tokio::test]
    async fn a_server_that_is_not_redis_is_told_apart() {
        let postgres = testkit_servers::Postgres::start().await.unwrap();
        let maria = testkit_servers::MariaDb::start().await.unwrap();
        for (port, what) in [
            (postgres.port(), "or not be Redis"),
            (maria.port(), "not of the protocol of Redis"),
        ] {
            let address = format!("redis://127.0.0.1:{port}");
            let error = Redis::at(&address).unwrap().connect().await.err().unwrap();
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Unreachable, "{text}");
            let place = format!("Redis at 127.0.0.1:{port}: ");
            assert!(text.starts_with(&place) && text.contains(what), "{text}");
        }
    }

    /// How often the server was looked at.
    async fn looks(server: &testkit_servers::Redis) -> u64 {
        let stats = server.execute(&["INFO", "commandstats"]).await.unwrap();
        let stat = stats
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_info:calls="));
        let calls = stat.and_then(|stat| stat.split(',').next());
        calls.map_or(0, |calls| calls.parse().unwrap())
    }

    /// An operator changes a setting while the server is in use.
    #[tokio::test]
    async fn a_setting_that_is_changed_is_warned_of_once() {
        for kind in RedisKind::ALL {
            let server = testkit_servers::Redis::builder(kind);
            let server = server.argument("maxmemory", "100mb").start().await.unwrap();
            let logs = logs::Logs::record();
            let redis = Redis::at(&server.url()).unwrap();
            let _link = redis.connect().await.unwrap();
            assert_eq!(logs.at(Level::WARN), [""; 0], "{kind}");
            let words = ["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"];
            server.execute(&words).await.unwrap();
            until("it is said", async || !logs.at(Level::WARN).is_empty()).await;
            let before = looks(&server).await;
            // This one looks as well.
            until("it is looked at again", async || {
                looks(&server).await > before + 20
            })
            .await;
            let warnings = logs.at(Level::WARN);
            assert_eq!(warnings.len(), 1, "{kind}: {warnings:?}");
            assert!(warnings[0].contains("noeviction"), "{kind}: {warnings:?}");
        }
    }

    /// An operator changes settings of two of four nodes. The last two are replicas.
    #[tokio::test]
    async fn a_setting_of_a_node_is_warned_of_once_with_the_node() {
        for kind in [RedisKind::Redis7, RedisKind::Valkey9] {
            let nodes = testkit_servers::Redis::builder(kind).argument("maxmemory", "100mb");
            let nodes = nodes.argument("repl-ping-replica-period", "1");
            let mut cluster = nodes.start_cluster(2).await.unwrap();
            cluster.add_replicas().await.unwrap();
            names_its_replicas(&cluster).await;
            let logs = logs::Logs::record();
            let urls = cluster.urls();
            let redis = Redis::cluster(urls.iter().map(String::as_str)).unwrap();
            let _link = redis.connect().await.unwrap();
            are_looked_at_again(&cluster).await;
            assert_eq!(logs.at(Level::WARN), [""; 0], "{kind}");
            let changes = [
                (1, ["maxmemory-policy", "allkeys-lru"]),
                (2, ["appendfsync", "no"]),
            ];
            for (node, [setting, value]) in changes {
                let words = ["CONFIG", "SET", setting, value];
                cluster.node(node).execute(&words).await.unwrap();
                let before = logs.at(Level::WARN).len();
                until("it is said", async || logs.at(Level::WARN).len() > before).await;
            }
            are_looked_at_again(&cluster).await;
            let warnings = logs.at(Level::WARN);
            assert_eq!(warnings.len(), 2, "{kind}: {warnings:?}");
            for (warning, (node, [setting, _])) in warnings.iter().zip(changes) {
                let server = format!("server=\"127.0.0.1:{}\"", cluster.node(node).port());
                assert!(warning.contains(&server), "{kind}: {warning}");
                assert!(warning.contains(setting), "{kind}: {warning}");
            }
        }
    }

    /// Waits until each node names both replicas to a client. It names none that has heard nothing
    /// of its primary.
    async fn names_its_replicas(cluster: &testkit_servers::RedisCluster) {
        for node in cluster.nodes() {
            until("the node names the replicas", async || {
                let slots = node.execute(&["CLUSTER", "SLOTS"]).await.unwrap();
                let replicas = cluster.nodes()[2..].iter();
                replicas
                    .map(testkit_servers::Redis::port)
                    .all(|port| slots.contains(&port.to_string()))
            })
            .await;
        }
    }

    /// Waits until each node was looked at three times more.
    async fn are_looked_at_again(cluster: &testkit_servers::RedisCluster) {
        for node in cluster.nodes() {
            let before = looks(node).await;
            let own = Cell::new(0);
            until("the node is looked at", async || {
                own.set(own.get() + 1);
                looks(node).await >= before + own.get() + 3
            })
            .await;
        }
    }

    /// A connection on which a source only waits.
    #[tokio::test]
    async fn a_connection_that_waits_looks_at_nothing() {
        let server = testkit_servers::Redis::start(RedisKind::Redis7).await;
        let server = server.unwrap();
        let redis = Redis::at(&server.url()).unwrap();
        let before = looks(&server).await;
        let mut waits = redis.connect_for(Duration::from_secs(1)).await.unwrap();
        waits.ping().await.unwrap();
        assert_eq!(looks(&server).await, before + 1, "that of the test");
    }
}
