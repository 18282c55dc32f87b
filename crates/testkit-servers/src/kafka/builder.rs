//! The settings of a cluster.

use crate::ServerError;
use crate::daemon::on_thread;
use crate::kafka::Kafka;
use crate::kafka::java::Machine;

/// How many nodes a cluster has at most.
const MOST: usize = 3;

/// The settings of a [`Kafka`], each with a default.
///
/// # Examples
///
/// ```no_run
/// # async fn test() -> Result<(), testkit_servers::ServerError> {
/// use testkit_servers::Kafka;
///
/// let kafka = Kafka::builder()
///     .nodes(3)
///     .property("group.consumer.session.timeout.ms", "1500")
///     .start()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing before `start`"]
pub struct KafkaBuilder {
    pub(super) nodes: usize,
    pub(super) machine: Machine,
    pub(super) properties: Vec<(String, String)>,
}

impl Default for KafkaBuilder {
    fn default() -> Self {
        Self {
            nodes: 1,
            machine: Machine {
                heap_mib: 384,
                is_quick: true,
            },
            properties: Vec::new(),
        }
    }
}

impl KafkaBuilder {
    /// How many nodes the cluster has, 1 to 3; by default 1.
    ///
    /// Every topic is on every node, unless its creator or a property says otherwise. With three
    /// nodes `min.insync.replicas` is 2, so the cluster takes records while one is down. With two
    /// it is 1, and the cluster stands still while one is down, because the controllers have no
    /// majority.
    ///
    /// # Panics
    ///
    /// If it is 0 or more than 3.
    #[track_caller]
    pub fn nodes(mut self, nodes: usize) -> Self {
        assert!(
            (1..=MOST).contains(&nodes),
            "a cluster of {nodes} nodes: it has 1 to {MOST}"
        );
        self.nodes = nodes;
        self
    }

    /// The heap of each node, in MiB; by default 384. A node takes some 150 MiB more. One that
    /// needs more than its heap ends.
    pub fn heap_mib(mut self, heap: u32) -> Self {
        self.machine.heap_mib = heap;
        self
    }

    /// For measurements: the virtual machine runs with its own choice of compilers and collector,
    /// and with a heap of 1 GiB unless [`heap_mib`](Self::heap_mib) comes later. By default it runs
    /// with those that start quickly and need little of the processor.
    pub fn for_throughput(mut self) -> Self {
        self.machine = Machine {
            heap_mib: 1_024,
            is_quick: false,
        };
        self
    }

    /// Sets a property of all nodes. It wins over those of this module and over an earlier one of
    /// the same name.
    ///
    /// Those that name listeners, voters and folders belong to this module: a cluster with others
    /// would not start.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.push((name.into(), value.into()));
        self
    }

    /// Creates the cluster, starts its nodes and waits until each of them answers and sees all
    /// others, at most 60 s.
    ///
    /// # Errors
    ///
    /// [`Missing`](ServerError::Missing) if Java or Kafka is not installed;
    /// [`Program`](ServerError::Program) or [`Ended`](ServerError::Ended) with Kafka's words if a
    /// property is wrong; the other variants if a node does not start.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the cluster is ended and its folder removed as soon as it is
    /// ready.
    pub async fn start(self) -> Result<Kafka, ServerError> {
        on_thread(move || Kafka::create(&self)).await
    }
}
