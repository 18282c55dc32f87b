//! Connections.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use keylane_connector::ErrorKind;
use redis::aio::{ConnectionLike, MultiplexedConnection, PubSubSink, PubSubStream};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, ResponsePolicy, RoutingInfo};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, FromRedisValue, Pipeline, ProtocolVersion,
    RedisFuture, RedisResult, Value, cmd, from_redis_value, make_extension_error,
};
use tokio_util::task::AbortOnDropHandle;

use crate::error::RedisError;
use crate::tls::{Certificates, certify};

/// How long a connection is silent before the system asks the other end whether it is there, and
/// the pause before it asks again. A network that forgets silent connections does not forget this.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

/// The first word of the server's message about a key of another type.
const WRONG_TYPE: &str = "WRONGTYPE";

/// A connection. To a server it fails for good when it breaks; to a cluster it finds the nodes
/// again.
#[derive(Clone)]
pub(crate) struct Link {
    connection: Connection,
    origin: Arc<Origin>,
    /// A task that lasts as long as the runtime of the connection.
    task: Option<Arc<AbortOnDropHandle<()>>>,
}

/// Where a connection leads, for another one beside it, and for errors.
struct Origin {
    nodes: Vec<ConnectionInfo>,
    place: Arc<str>,
    connect: Duration,
}

impl Origin {
    fn new(nodes: Vec<ConnectionInfo>, connect: Duration) -> Arc<Self> {
        let place = place_of(&nodes);
        Arc::new(Self {
            nodes,
            place,
            connect,
        })
    }
}

/// Returns where servers are: their hosts and ports, and the number of the database if it is not 0.
pub(crate) fn place_of(nodes: &[ConnectionInfo]) -> Arc<str> {
    let places = nodes.iter().map(|node| {
        let (place, database) = (node.addr(), node.redis_settings().db());
        match database {
            0 => place.to_string(),
            database => format!("{place}/{database}"),
        }
    });
    Vec::from_iter(places).join(",").into()
}

#[derive(Clone)]
enum Connection {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Link {
    /// Connects to a server, with time limits of the connection and of an answer.
    pub(crate) async fn server(
        client: &Client,
        (connect, response): (Duration, Duration),
    ) -> Result<Self, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(connect))
            .set_response_timeout(Some(response));
        let link = client.get_multiplexed_async_connection_with_config(&config);
        let nodes = vec![client.get_connection_info().clone()];
        Ok(Self::new(
            Connection::Server(link.await?),
            Origin::new(nodes, connect),
        ))
    }

    /// The same, to a cluster.
    pub(crate) async fn cluster(
        nodes: &[ConnectionInfo],
        (connect, response): (Duration, Duration),
        certificates: &Certificates,
    ) -> Result<Self, RedisError> {
        let client = ClusterClientBuilder::new(nodes.iter().cloned())
            .connection_timeout(connect)
            .response_timeout(response)
            .tcp_settings(tcp_settings());
        let client = certify(client, nodes, certificates).build()?;
        let link = client.get_async_connection();
        let origin = Origin::new(nodes.to_vec(), connect);
        Ok(Self::new(Connection::Cluster(link.await?), origin))
    }

    fn new(connection: Connection, origin: Arc<Origin>) -> Self {
        Self {
            connection,
            origin,
            task: None,
        }
    }

    /// Subscribes to a channel, with a connection of its own to the same server. In a cluster it is
    /// the first of the given nodes that can be reached, counted from this one: each node has all
    /// messages.
    pub(crate) async fn subscribe(
        &self,
        channel: &[u8],
        from: usize,
    ) -> Result<(PubSubSink, PubSubStream), RedisError> {
        let Origin { nodes, connect, .. } = &*self.origin;
        let mut last = None;
        for at in 0..nodes.len() {
            let node = &nodes[(from + at) % nodes.len()];
            let subscribed = tokio::time::timeout(*connect, subscribe(node, channel)).await;
            match subscribed.unwrap_or_else(|_| Err(too_late())) {
                Ok(subscribed) => return Ok(subscribed),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(too_late))
    }

    /// Runs this task, which never ends, as long as a handle of the connection is there.
    pub(crate) fn with_task(mut self, task: impl Future<Output = ()> + Send + 'static) -> Self {
        self.task = Some(Arc::new(AbortOnDropHandle::new(tokio::spawn(task))));
        self
    }

    /// Whether the runtime of the task has ended, and with it the connection.
    pub(crate) fn is_over(&self) -> bool {
        self.task.as_ref().is_some_and(|task| task.is_finished())
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.connection, Connection::Cluster(_))
    }

    /// Sends a command, and waits for the answer.
    pub(crate) async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, RedisError> {
        match command.query_async(self).await {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.explain(command, error).await),
        }
    }

    /// Names the server in an error of a command.
    pub(crate) fn named(&self, error: impl Into<RedisError>) -> RedisError {
        error.into().at(&self.origin.place)
    }

    /// Names the server in the error of a command, and what is wrong with its keys.
    pub(crate) async fn explain(&mut self, command: &Cmd, error: redis::RedisError) -> RedisError {
        let error = self.with_types(command, error).await;
        self.named(error)
    }

    /// Names the keys of a command with their types, if the server reports that one of them has a
    /// wrong one: it does not say which.
    async fn with_types(&mut self, command: &Cmd, error: redis::RedisError) -> redis::RedisError {
        if error.code() != Some(WRONG_TYPE) {
            return error;
        }
        let mut types = Vec::new();
        for key in keys_of(command) {
            let kind: RedisResult<String> = cmd("TYPE").arg(key).query_async(self).await;
            if let Ok(kind) = kind
                && kind != "none"
            {
                let key = String::from_utf8_lossy(key);
                types.push(format!("`{key}` is a {kind}"));
            }
        }
        let types = types.join(", ");
        let why = error.detail().unwrap_or_default();
        let what =
            format!("{types}: remove the key of another program, or use another name: {why}");
        make_extension_error(WRONG_TYPE.to_owned(), Some(what))
    }

    /// Sends a command to each node of a cluster that is connected, primaries and replicas. Returns
    /// the answers with the addresses of the nodes, without those of nodes that refuse.
    pub(crate) async fn ask_nodes<T: FromRedisValue>(
        &mut self,
        command: Cmd,
    ) -> Result<Vec<(String, T)>, RedisError> {
        let Connection::Cluster(link) = &mut self.connection else {
            return Ok(Vec::new());
        };
        let all = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllNodes, None));
        let answers = link.route_command(command, all).await?;
        let answers: Vec<(String, Value)> =
            from_redis_value(answers).map_err(redis::RedisError::from)?;
        let answers = answers.into_iter();
        let answers =
            answers.filter_map(|(node, answer)| Some((node, from_redis_value(answer).ok()?)));
        Ok(answers.collect())
    }

    /// Asks the server, or any primary of the cluster, for an answer.
    pub(crate) async fn ping(&mut self) -> Result<(), RedisError> {
        let ping = cmd("PING");
        let answer = match &mut self.connection {
            Connection::Server(link) => ping.query_async(link).await,
            Connection::Cluster(link) => {
                let any = (
                    MultipleNodeRoutingInfo::AllMasters,
                    Some(ResponsePolicy::OneSucceeded),
                );
                let any = RoutingInfo::MultiNode(any);
                link.route_command(ping, any).await.map(drop)
            }
        };
        answer.map_err(|error| self.named(error))
    }
}

async fn subscribe(
    node: &ConnectionInfo,
    channel: &[u8],
) -> Result<(PubSubSink, PubSubStream), RedisError> {
    // The client reads messages in this form.
    let settings = node.redis_settings().clone();
    let settings = settings.set_protocol(ProtocolVersion::RESP2);
    let node = node.clone().set_redis_settings(settings);
    let client = Client::open(node.set_tcp_settings(tcp_settings()))?;
    let (mut sink, messages) = client.get_async_pubsub().await?.split();
    sink.subscribe(channel).await?;
    Ok((sink, messages))
}

fn too_late() -> RedisError {
    let what = "the server did not confirm the subscription in time";
    RedisError::new(ErrorKind::Unreachable, what)
}

/// Returns the settings of the sockets.
pub(crate) fn tcp_settings() -> TcpSettings {
    let (after, every) = KEEPALIVE;
    let keepalive = TcpKeepalive::new().with_time(after).with_interval(every);
    TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive)
}

/// Returns the keys of a command that has them all declared, or one behind its name.
fn keys_of(command: &Cmd) -> Vec<&[u8]> {
    let words = command.args_iter().filter_map(|arg| match arg {
        redis::Arg::Simple(word) => Some(word),
        _ => None,
    });
    let words = Vec::from_iter(words);
    let count = words
        .get(2)
        .and_then(|count| std::str::from_utf8(count).ok()?.parse().ok());
    match (&words[..], count) {
        ([b"EVAL" | b"EVALSHA", _, _, keys @ ..], Some(count)) => {
            keys.iter().take(count).copied().collect()
        }
        ([_, key, ..], _) => vec![key],
        _ => Vec::new(),
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.connection {
            Connection::Server(_) => "Link(server)",
            Connection::Cluster(_) => "Link(cluster)",
        })
    }
}

impl ConnectionLike for Link {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match &mut self.connection {
            Connection::Server(link) => link.req_packed_command(cmd),
            Connection::Cluster(link) => link.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        cmd: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match &mut self.connection {
            Connection::Server(link) => link.req_packed_commands(cmd, offset, count),
            Connection::Cluster(link) => link.req_packed_commands(cmd, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match &self.connection {
            Connection::Server(link) => link.get_db(),
            Connection::Cluster(link) => link.get_db(),
        }
    }
}
