//! The settings of a server, or of the nodes of a cluster.

use std::fmt;

use crate::redis::RedisKind;
use crate::tls::{Authority, Certificate, ServerTls};

/// When the server writes its append-only file to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Fsync {
    /// Before it answers. A confirmed write outlives a crash of the machine.
    #[default]
    Always,
    /// Once a second.
    EverySecond,
    /// When the operating system does it.
    No,
}

/// The settings of a [`Redis`](crate::Redis) or a [`RedisCluster`](crate::RedisCluster), each with
/// a default.
///
/// # Examples
///
/// ```no_run
/// # async fn test() -> Result<(), testkit_servers::ServerError> {
/// use testkit_servers::{Redis, RedisKind};
///
/// let primary = Redis::builder(RedisKind::Valkey9)
///     .password("secret")
///     .argument("maxmemory", "10mb")
///     .start()
///     .await?;
/// let replica = Redis::builder(RedisKind::Valkey9)
///     .replica_of(&primary)
///     .start()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing before `start`"]
pub struct RedisBuilder {
    pub(super) kind: RedisKind,
    pub(super) fsync: Fsync,
    pub(super) password: Option<String>,
    pub(super) primary: Option<Primary>,
    pub(super) has_own_clock: bool,
    pub(super) arguments: Vec<(String, String)>,
    /// The certificates of the nodes of a cluster, and the authority that they trust.
    pub(super) tls: Option<ServerTls>,
}

/// The primary of a replica.
#[derive(Clone)]
pub(super) struct Primary {
    pub(super) port: u16,
    pub(super) password: Option<String>,
}

impl RedisBuilder {
    pub(super) fn new(kind: RedisKind) -> Self {
        Self {
            kind,
            fsync: Fsync::default(),
            password: None,
            primary: None,
            has_own_clock: false,
            arguments: Vec::new(),
            tls: None,
        }
    }

    /// Sets when the append-only file is written to the disk; by default [`Fsync::Always`].
    ///
    /// A confirmed write outlives [`kill`](crate::Redis::kill) with all three: the system still has
    /// it. `argument("appendonly", "no")` switches the file off.
    pub fn appendfsync(mut self, fsync: Fsync) -> Self {
        self.fsync = fsync;
        self
    }

    /// Sets the password that clients need; by default none. It is in
    /// [`Redis::url`](crate::Redis::url).
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Gives it a clock of its own, which [`Redis::set_clock`](crate::Redis::set_clock) sets while
    /// it runs.
    pub fn own_clock(mut self) -> Self {
        self.has_own_clock = true;
        self
    }

    /// Gives each node of a cluster a port with TLS besides the other one, and the nodes talk to
    /// each other with TLS. They require certificates of `authority` of each other, but none of
    /// clients. [`Redis::tls_port`](crate::Redis::tls_port) is the port.
    pub fn cluster_tls(mut self, certificate: Certificate, authority: &Authority) -> Self {
        self.tls = Some(ServerTls::new(certificate).require_clients_of(authority));
        self
    }

    /// Sets a directive, such as `maxmemory` or `busy-reply-threshold`, without the two dashes.
    /// Separate the words of a value by spaces. It overrides those of this module; a directive that
    /// the server accepts more than once can be given more than once.
    ///
    /// `bind`, `port`, `cluster-port`, `dir`, `daemonize`, `logfile` and `requirepass` belong to
    /// this module: it could not find a server with other values.
    pub fn argument(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.arguments.push((name.into(), value.into()));
        self
    }
}

/// Leaves the passwords out.
impl fmt::Debug for RedisBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBuilder")
            .field("kind", &self.kind)
            .field("fsync", &self.fsync)
            .field("arguments", &self.arguments)
            .finish_non_exhaustive()
    }
}
