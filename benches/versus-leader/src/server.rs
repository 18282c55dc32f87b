//! The server of a run, and what it counts.

use std::time::Duration;

use testkit_servers::ZooKeeper;
use tokio::time::{Instant, sleep};

use crate::Error;

/// The tick of the server.
pub const TICK: Duration = Duration::from_millis(200);

/// How often the server is asked whether it has come to rest.
const ASKED: Duration = Duration::from_millis(20);

/// How long it may take to come to rest.
const PATIENCE: Duration = Duration::from_secs(60);

/// The counters of watchers that have fired.
const FIRED: [&str; 4] = [
    "zk_sum_node_created_watch_count",
    "zk_sum_node_deleted_watch_count",
    "zk_sum_node_changed_watch_count",
    "zk_sum_node_children_watch_count",
];

/// A server that runs.
#[derive(Debug)]
pub struct Server(ZooKeeper);

/// What the server has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Packets that came, the question for the counters among them.
    pub received: f64,
    /// Transactions.
    pub writes: f64,
    /// Watchers that have fired.
    pub fired: f64,
    /// Nodes that end with their sessions.
    pub nodes: f64,
}

impl Counters {
    fn of(answer: &str) -> Self {
        let of = |name: &str| {
            let value = answer
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
            value.and_then(|value| value.trim().parse().ok())
        };
        Self {
            received: of("zk_packets_received").unwrap_or(f64::NAN),
            writes: of("zk_cnt_updatelatency").unwrap_or(f64::NAN),
            // A kind of which there was none has no counter.
            fired: FIRED.iter().filter_map(|name| of(name)).sum(),
            nodes: of("zk_ephemerals_count").unwrap_or(f64::NAN),
        }
    }

    /// Returns what was counted since `before`. The nodes are those of now.
    pub fn since(self, before: Self) -> Self {
        Self {
            // The second question is none of the candidates'.
            received: self.received - before.received - 1.0,
            writes: self.writes - before.writes,
            fired: self.fired - before.fired,
            nodes: self.nodes,
        }
    }
}

impl Server {
    /// Starts it.
    pub async fn start() -> Result<Self, Error> {
        let server = ZooKeeper::builder().tick(TICK).start().await?;
        Ok(Self(server))
    }

    /// Returns its address.
    pub fn hosts(&self) -> String {
        self.0.hosts()
    }

    /// Returns what it has counted.
    pub async fn counters(&self) -> Result<Counters, Error> {
        Ok(Counters::of(&self.0.word(0, "mntr").await?))
    }

    /// Waits until there are so many nodes that end with their sessions.
    pub async fn has(&self, nodes: u64) -> Result<(), Error> {
        let began = Instant::now();
        loop {
            let found = self.counters().await?.nodes;
            if found == nodes as f64 {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("{found} nodes of candidates, not {nodes}").into());
            }
            sleep(ASKED).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read() {
        let text = "zk_packets_received\t12\nzk_sum_node_changed_watch_count\t3\n\
                    zk_sum_node_deleted_watch_count\t4\nzk_ephemerals_count\t5\n\
                    zk_cnt_updatelatency\t6\n";
        let counters = Counters::of(text);
        let Counters {
            received,
            writes,
            fired,
            nodes,
        } = counters;
        assert_eq!((received, writes, fired, nodes), (12.0, 6.0, 7.0, 5.0));
        assert_eq!(counters.since(Counters::default()).received, 11.0);
        assert!(Counters::of("").received.is_nan());
    }
}
