//! A Redis or Valkey cluster.

use std::thread;
use std::time::Instant;

use crate::ServerError;
use crate::daemon::{PROBE_PAUSE, on_thread};
use crate::program::tail;
use crate::redis::builder::RedisBuilder;
use crate::redis::server::{PATIENCE, PROBE};
use crate::redis::{Redis, RedisKind, resp};

/// The slots of every cluster.
const SLOTS: usize = 16_384;

/// A cluster of servers of a test, each of them a primary with an equal part of the slots, until
/// there are [replicas](Self::add_replicas).
///
/// Each node is a [`Redis`], which a test kills, starts again and pauses on its own. A node that
/// does not answer counts as failed after 3 s, and the cluster takes no commands until it is back;
/// `argument("cluster-node-timeout", ..)` and `argument("cluster-require-full-coverage", "no")`
/// change that.
///
/// # Examples
///
/// ```no_run
/// # async fn test() -> Result<(), testkit_servers::ServerError> {
/// use testkit_servers::{RedisCluster, RedisKind};
///
/// let cluster = RedisCluster::start(RedisKind::Redis7, 3).await?;
/// // … a client of a cluster connects to `cluster.urls()` …
/// cluster.node(1).kill().await?;
/// cluster.node(1).start_again().await?;
/// cluster.ready().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Redis>,
}

impl RedisCluster {
    /// Creates a cluster of so many nodes, starts them and waits until all take commands, at most
    /// 60 s.
    ///
    /// # Errors
    ///
    /// [`Missing`](ServerError::Missing) if the server is not installed, and the other variants if
    /// a node does not start or the nodes do not agree.
    ///
    /// # Panics
    ///
    /// Panics if `nodes` is 0, and outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the cluster ends and its folders are removed as soon as it is
    /// ready.
    pub async fn start(kind: RedisKind, nodes: usize) -> Result<Self, ServerError> {
        Redis::builder(kind).start_cluster(nodes).await
    }

    /// Creates the cluster. Blocks the thread.
    fn create(settings: &RedisBuilder, nodes: usize) -> Result<Self, ServerError> {
        let start = |_| Redis::create_node(settings);
        let nodes: Vec<_> = (0..nodes).map(start).collect::<Result<_, _>>()?;
        for (index, node) in nodes.iter().enumerate() {
            // Set while the node is alone. With equal epochs the nodes would have to agree on
            // others.
            let epoch = (index + 1).to_string();
            node.execute_within(PATIENCE, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch])?;
            let bound = |index| SLOTS * index / nodes.len();
            let (first, last) = (bound(index), bound(index + 1) - 1);
            let range = [first.to_string(), last.to_string()];
            let add = ["CLUSTER", "ADDSLOTSRANGE", &range[0], &range[1]];
            node.execute_within(PATIENCE, &add)?;
        }
        let (first, others) = nodes.split_first().expect("one node at least");
        for other in others {
            meet(first, other)?;
        }
        await_ready(&nodes)?;
        Ok(Self { nodes })
    }

    /// Adds a replica to each node, and waits until it follows, at most 4 minutes. The replicas
    /// come behind the nodes that are there, in their order, and take over when these fail.
    ///
    /// # Errors
    ///
    /// The same as those of [`start`](Self::start).
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the replicas are lost, and end.
    pub async fn add_replicas(&mut self) -> Result<(), ServerError> {
        let primaries: Vec<_> = self.nodes.iter().map(Redis::share).collect();
        let add = move || {
            let mut nodes: Vec<_> = primaries.iter().map(Redis::share).collect();
            for primary in &primaries {
                let replica = Redis::create_node(primary.settings())?;
                meet(&primaries[0], &replica)?;
                let id = primary.execute_within(PATIENCE, &["CLUSTER", "MYID"])?;
                nodes.push(replica);
                await_ready(&nodes)?;
                let follow = ["CLUSTER", "REPLICATE", &id];
                nodes[nodes.len() - 1].execute_within(PATIENCE, &follow)?;
            }
            await_ready(&nodes)?;
            Ok(nodes)
        };
        self.nodes = on_thread(add).await?;
        Ok(())
    }

    /// Moves the slot of a key from the node that has it to another primary, one key after the
    /// other, while the clients use it.
    ///
    /// # Errors
    ///
    /// [`Refused`](ServerError::Refused) if a node refuses a step.
    ///
    /// # Panics
    ///
    /// Panics if there is no such node or none has the slot, and outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the slot is moved all the same.
    pub async fn move_slot(&self, key: &str, to: usize) -> Result<(), ServerError> {
        let from = self.place_of(key).await.expect("a node has the slot");
        let nodes: Vec<_> = self.nodes.iter().map(Redis::share).collect();
        let key = key.to_owned();
        on_thread(move || move_slot(&nodes, &key, &nodes[from], &nodes[to])).await
    }

    /// Returns the number of the node that serves a key; `None` if none does.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    pub async fn place_of(&self, key: &str) -> Option<usize> {
        for (place, node) in self.nodes.iter().enumerate() {
            // The others, and replicas, name the one that has it.
            if node.pid().is_some() && node.execute(&["EXISTS", key]).await.is_ok() {
                return Some(place);
            }
        }
        None
    }

    /// Returns all nodes, including those that do not run. The first has the lowest slots, unless
    /// slots were moved.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// Returns a node, counted from 0.
    ///
    /// # Panics
    ///
    /// Panics if there is no such node.
    #[track_caller]
    pub fn node(&self, node: usize) -> &Redis {
        let count = self.nodes.len();
        self.nodes
            .get(node)
            .unwrap_or_else(|| panic!("no node {node}: the cluster has {count}, from 0 on"))
    }

    /// Returns the URLs of all nodes, for a client that takes several.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Redis::url).collect()
    }

    /// Waits until each node sees all others and reports that the cluster takes commands, and each
    /// replica follows, at most 60 s.
    ///
    /// # Errors
    ///
    /// [`NotRunning`](ServerError::NotRunning) if one of the nodes does not run, and
    /// [`NotReady`](ServerError::NotReady) with its log if one is not ready in time.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing happens.
    pub async fn ready(&self) -> Result<(), ServerError> {
        let nodes: Vec<_> = self.nodes.iter().map(Redis::share).collect();
        on_thread(move || await_ready(&nodes)).await
    }
}

impl RedisBuilder {
    /// Creates a cluster of so many nodes with these settings, each of them a primary, and waits
    /// until all nodes take commands, at most 60 s.
    ///
    /// # Errors
    ///
    /// The same as those of [`start`](Self::start); [`Ended`](ServerError::Ended) if these are the
    /// settings of a replica: in a cluster a command makes a node a replica.
    ///
    /// # Panics
    ///
    /// Panics if `nodes` is 0, and outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the cluster ends and its folders are removed as soon as it is
    /// ready.
    pub async fn start_cluster(self, nodes: usize) -> Result<RedisCluster, ServerError> {
        assert!(nodes > 0, "a cluster has one node at least");
        on_thread(move || RedisCluster::create(&self, nodes)).await
    }
}

fn meet(one: &Redis, other: &Redis) -> Result<(), ServerError> {
    let port = other.port().to_string();
    let bus = other.bus().unwrap_or_default().to_string();
    let meet = ["CLUSTER", "MEET", "127.0.0.1", &port, &bus];
    one.execute_within(PATIENCE, &meet).map(drop)
}

fn move_slot(nodes: &[Redis], key: &str, from: &Redis, to: &Redis) -> Result<(), ServerError> {
    let ask = |node: &Redis, words: &[&str]| node.execute_within(PATIENCE, words);
    let slot = ask(from, &["CLUSTER", "KEYSLOT", key])?;
    let id = |node: &Redis| ask(node, &["CLUSTER", "MYID"]);
    let (from_id, to_id) = (id(from)?, id(to)?);
    let set = |node: &Redis, how: &str, id: &str| {
        let set = ["CLUSTER", "SETSLOT", &slot, how, id];
        ask(node, &set).map(drop)
    };
    set(to, "IMPORTING", &from_id)?;
    set(from, "MIGRATING", &to_id)?;
    let port = to.port().to_string();
    loop {
        let keys = ask(from, &["CLUSTER", "GETKEYSINSLOT", &slot, "10"])?;
        if keys.is_empty() {
            break;
        }
        for key in keys.lines() {
            ask(from, &["MIGRATE", "127.0.0.1", &port, key, "0", "5000"])?;
            // The slot is used in between.
            thread::sleep(PROBE_PAUSE);
        }
    }
    set(to, "NODE", &to_id)?;
    set(from, "NODE", &to_id)?;
    for node in nodes {
        // Replicas learn it from their primaries, and those that do not run from the others.
        let _ = set(node, "NODE", &to_id);
    }
    Ok(())
}

fn await_ready(nodes: &[Redis]) -> Result<(), ServerError> {
    let began = Instant::now();
    while let Some(late) = nodes.iter().find(|node| !is_ready(node, nodes.len())) {
        if late.pid().is_none() {
            return Err(ServerError::NotRunning);
        }
        if began.elapsed() > PATIENCE {
            return Err(ServerError::NotReady {
                seconds: PATIENCE.as_secs(),
                log: tail(&late.log()),
            });
        }
        thread::sleep(PROBE_PAUSE);
    }
    Ok(())
}

fn is_ready(node: &Redis, nodes: usize) -> bool {
    let info = node.execute_within(PROBE, &["CLUSTER", "INFO"]);
    info.is_ok_and(|info| {
        let number = |name| resp::field(&info, name).and_then(|number| number.parse().ok());
        resp::field(&info, "cluster_state") == Some("ok")
            && number("cluster_known_nodes") >= Some(nodes)
            // The slots of nodes that answer.
            && number("cluster_slots_ok") == Some(SLOTS)
    }) && node.follows_if_it_should()
}
