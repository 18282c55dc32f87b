//! Connections.

use std::fmt;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, ResponsePolicy, RoutingInfo};
use redis::{
    AsyncConnectionConfig, Client, Cmd, FromRedisValue, Pipeline, RedisFuture, Value, cmd,
};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::error::RedisError;
use crate::server::Redis;

/// A connection. To a server it fails for good when it breaks; to a cluster it finds the nodes
/// again.
#[derive(Clone)]
pub(crate) enum Link {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Link {
    pub(crate) async fn server(
        client: &Client,
        connect: Duration,
        response: Duration,
    ) -> Result<Self, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(connect))
            .set_response_timeout(Some(response));
        let link = client.get_multiplexed_async_connection_with_config(&config);
        Ok(Self::Server(link.await?))
    }

    pub(crate) async fn cluster(
        nodes: &[redis::ConnectionInfo],
        connect: Duration,
        response: Duration,
    ) -> Result<Self, RedisError> {
        let client = ClusterClientBuilder::new(nodes.iter().cloned())
            .connection_timeout(connect)
            .response_timeout(response)
            .build()?;
        Ok(Self::Cluster(client.get_async_connection().await?))
    }

    /// Sends a command, and waits for the answer.
    pub(crate) async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, RedisError> {
        Ok(command.query_async(self).await?)
    }

    /// Asks the server, or any primary of the cluster, for an answer.
    pub(crate) async fn ping(&mut self) -> Result<(), RedisError> {
        let ping = cmd("PING");
        match self {
            Self::Server(_) => self.ask(&ping).await,
            Self::Cluster(link) => {
                let any = (
                    MultipleNodeRoutingInfo::AllMasters,
                    Some(ResponsePolicy::OneSucceeded),
                );
                link.route_command(ping, RoutingInfo::MultiNode(any))
                    .await?;
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server(_) => "Link(server)",
            Self::Cluster(_) => "Link(cluster)",
        })
    }
}

impl ConnectionLike for Link {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Server(link) => link.req_packed_command(cmd),
            Self::Cluster(link) => link.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        cmd: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Server(link) => link.req_packed_commands(cmd, offset, count),
            Self::Cluster(link) => link.req_packed_commands(cmd, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Server(link) => link.get_db(),
            Self::Cluster(link) => link.get_db(),
        }
    }
}

/// A connection that was idle for this long is tested before it is used again: its server may have
/// been restarted.
const IDLE: Duration = Duration::from_millis(100);

/// A connection for callers that come and go. It connects when it is first needed, and again after
/// it has broken. A command that was in progress then has failed, and may have been executed.
pub(crate) struct Reconnecting {
    redis: Redis,
    link: Mutex<Option<(Link, Instant)>>,
}

impl Reconnecting {
    pub(crate) fn new(redis: Redis) -> Self {
        Self {
            redis,
            link: Mutex::new(None),
        }
    }

    /// Returns the current connection, or a new one. Callers at the same time share it.
    async fn link(&self) -> Result<Link, RedisError> {
        let mut slot = self.link.lock().await;
        let now = Instant::now();
        if let Some((mut link, used_at)) = slot.take()
            && (now < used_at + IDLE || link.ask::<()>(&cmd("PING")).await.is_ok())
        {
            *slot = Some((link.clone(), now));
            return Ok(link);
        }
        let new = self.redis.connect().await?;
        *slot = Some((new.clone(), now));
        Ok(new)
    }

    /// Runs a call with the connection. If it fails because the connection broke, the next caller
    /// gets a new one.
    pub(crate) async fn with<T>(
        &self,
        call: impl AsyncFnOnce(&mut Link) -> Result<T, RedisError>,
    ) -> Result<T, RedisError> {
        let mut link = self.link().await?;
        let answer = call(&mut link).await;
        if let Err(error) = &answer
            && error.breaks_connection()
        {
            // Another caller may have connected again meanwhile. Then it connects once more, which
            // is rare and does no harm.
            *self.link.lock().await = None;
        }
        answer
    }
}
