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

use crate::error::RedisError;

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
