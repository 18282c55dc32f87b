//! The settings of a cluster.

use crate::kafka::java::Machine;

/// The most nodes of a cluster.
const MOST: usize = 3;

/// The settings of a [`Kafka`](crate::Kafka), each with a default.
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
    /// Sets how many nodes the cluster has, 1 to 3; by default 1.
    ///
    /// Every topic is on every node, unless its creator or a property changes that. With three
    /// nodes `min.insync.replicas` is 2, so the cluster takes records while one is down. With two
    /// it is 1, and the cluster stands still while one is down, because the controllers have no
    /// majority.
    ///
    /// # Panics
    ///
    /// Panics if it is 0 or more than 3.
    #[track_caller]
    pub fn nodes(mut self, nodes: usize) -> Self {
        assert!(
            (1..=MOST).contains(&nodes),
            "a cluster of {nodes} nodes: it has 1 to {MOST}"
        );
        self.nodes = nodes;
        self
    }

    /// Sets the heap of each node, in MiB; by default 384. A node takes some 150 MiB more. A node
    /// that needs more than its heap ends.
    pub fn heap_mib(mut self, heap: u32) -> Self {
        self.machine.heap_mib = heap;
        self
    }

    /// Configures the nodes for measurements: the virtual machine chooses its compilers and
    /// collector, and has a heap of 1 GiB unless [`heap_mib`](Self::heap_mib) comes later. By
    /// default it runs with those that start quickly and need little of the processor.
    pub fn for_throughput(mut self) -> Self {
        self.machine = Machine {
            heap_mib: 1_024,
            is_quick: false,
        };
        self
    }

    /// Sets a property of all nodes. It overrides the properties of this module and an earlier one
    /// of the same name.
    ///
    /// The properties for listeners, voters and folders belong to this module: a cluster with other
    /// values would not start.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.push((name.into(), value.into()));
        self
    }
}
