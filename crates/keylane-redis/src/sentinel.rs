//! Sentinels: servers that know which server is the primary.

use std::fmt;
use std::time::Duration;

use redis::sentinel::{Sentinel, SentinelNodeConnectionInfo};
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisResult};

use crate::error::RedisError;
use crate::link::tcp_settings;
use crate::tls::with_tls;

/// After this time the client asks the next Sentinel.
const SILENT: Duration = Duration::from_secs(1);

/// The Sentinels of a primary.
#[derive(Clone)]
pub(crate) struct Sentinels {
    nodes: Vec<ConnectionInfo>,
    /// The name that the Sentinels have for the primary.
    name: String,
    /// The user and the database of the primary.
    login: SentinelNodeConnectionInfo,
}

impl Sentinels {
    /// Returns `None` for an address that has another form or TLS, or if there is none.
    pub(crate) fn new<'a>(nodes: impl IntoIterator<Item = &'a str>, primary: &str) -> Option<Self> {
        let nodes = nodes.into_iter().map(|node| {
            let node = node.into_connection_info()?;
            Ok(node.set_tcp_settings(tcp_settings()))
        });
        let nodes = nodes.collect::<RedisResult<Vec<_>>>().ok()?;
        if nodes.iter().any(|node| with_tls(node).is_some()) {
            return None;
        }
        let primary = primary.into_connection_info().ok()?;
        let ConnectionAddr::Tcp(name, _) = primary.addr() else {
            return None;
        };
        let login = SentinelNodeConnectionInfo::default()
            .set_redis_connection_info(primary.redis_settings().clone())
            .set_tcp_settings(tcp_settings());
        (!nodes.is_empty()).then(|| Self {
            nodes,
            name: name.clone(),
            login,
        })
    }

    /// Returns how long it takes if all Sentinels but one are silent.
    pub(crate) fn asked_within(&self) -> Duration {
        SILENT * u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)
    }

    /// Asks the Sentinels for the primary, and the primary for its role.
    pub(crate) async fn primary(&self) -> Result<Client, RedisError> {
        let mut sentinel = Sentinel::build(self.nodes.clone())?;
        Ok(sentinel
            .async_master_for(&self.name, Some(&self.login))
            .await?)
    }
}

/// The name of the primary, and where it is asked for.
impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<_> = self
            .nodes
            .iter()
            .map(|node| node.addr().to_string())
            .collect();
        write!(f, "{} of the Sentinels {}", self.name, nodes.join(","))
    }
}
