//! The settings of a cluster.

use crate::kafka::java::Machine;
use crate::tls::ServerTls;

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
    /// The names of more listeners, and their protocols.
    pub(super) listeners: Vec<(String, &'static str)>,
    /// The users of SCRAM, in the format of the tool.
    pub(super) users: Vec<String>,
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
            listeners: Vec::new(),
            users: Vec::new(),
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
    /// Adds a listener with a protocol of Kafka, such as `SASL_PLAINTEXT`, and this certificate if
    /// that is one with TLS. [`Kafka::listener`](crate::Kafka::listener) has its address. Only for
    /// a single node.
    pub fn listener(mut self, name: &str, protocol: &'static str, tls: Option<&ServerTls>) -> Self {
        self.listeners.push((name.to_uppercase(), protocol));
        let of = |property: &str| {
            let name = name.to_lowercase();
            format!("listener.name.{name}.{property}")
        };
        let Some(tls) = tls else { return self };
        let certificate = tls.certificate();
        self = self
            .property(of("ssl.keystore.type"), "PEM")
            .property(of("ssl.keystore.certificate.chain"), &certificate.pem)
            .property(of("ssl.keystore.key"), &certificate.key);
        match tls.clients() {
            Some(authority) => self
                .property(of("ssl.client.auth"), "required")
                .property(of("ssl.truststore.type"), "PEM")
                .property(of("ssl.truststore.certificates"), authority),
            None => self,
        }
    }

    /// Creates a user for the mechanisms `SCRAM-SHA-256` and `SCRAM-SHA-512`.
    pub fn scram_user(mut self, name: &str, password: &str) -> Self {
        for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
            let user = format!("{mechanism}=[name={name},password={password}]");
            self.users.push(user);
        }
        self
    }
}
