//! The settings of an ensemble.

use std::time::Duration;

/// The most servers of an ensemble.
const MOST: usize = 3;

/// The settings of a [`ZooKeeper`](crate::ZooKeeper), each with a default.
///
/// # Examples
///
/// ```no_run
/// # async fn test() -> Result<(), testkit_servers::ServerError> {
/// use std::time::Duration;
/// use testkit_servers::ZooKeeper;
///
/// let zookeeper = ZooKeeper::builder()
///     .servers(3)
///     .tick(Duration::from_millis(500))
///     .start()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing before `start`"]
pub struct ZooKeeperBuilder {
    pub(super) servers: usize,
    pub(super) tick: Duration,
    pub(super) properties: Vec<(String, String)>,
}

impl Default for ZooKeeperBuilder {
    fn default() -> Self {
        Self {
            servers: 1,
            tick: Duration::from_millis(200),
            properties: Vec::new(),
        }
    }
}

impl ZooKeeperBuilder {
    /// Sets how many servers the ensemble has, 1 or 3; by default 1.
    ///
    /// # Panics
    ///
    /// Panics if it is 0, 2 or more than 3.
    #[track_caller]
    pub fn servers(mut self, servers: usize) -> Self {
        assert!(
            servers == 1 || servers == MOST,
            "an ensemble of {servers} servers: it has 1 or {MOST}"
        );
        self.servers = servers;
        self
    }

    /// Sets the tick, the unit of all times of the servers; by default 200 ms. The shortest
    /// session time-out is two ticks. A server that has not heard of its leader for five ticks
    /// gives up.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Sets a property of all servers. It overrides the properties of this module and an earlier
    /// one of the same name.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.push((name.into(), value.into()));
        self
    }
}
