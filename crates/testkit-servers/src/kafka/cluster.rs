//! A Kafka cluster.

use std::ffi::OsString;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread;

use tempfile::TempDir;

use crate::ServerError;
use crate::daemon::{Daemon, PORTS, is_port_taken, on_thread, temporary_folder};
use crate::kafka::KafkaBuilder;
use crate::kafka::java::{Java, Machine};
use crate::kafka::node::Node;
use crate::kafka::properties::{Listener, Ports, properties};
use crate::port::free_port;
use crate::proxies::Proxies;
use crate::proxy::Proxy;

/// The signal after which a node hands its partitions over and stops in order.
const STOP_SIGNAL: &str = "TERM";

/// A Kafka cluster of a test, in a private temporary folder, on ports of the loopback address.
///
/// Its nodes are numbered from 0, and Kafka uses the same numbers. Each is a broker and a
/// controller. They run with Kafka's default settings, except some that suit tests: topics are not
/// created by their first use, groups and their sessions are quick, and a killed node counts as
/// failed after 3 s. [`KafkaBuilder::property`] changes any of them.
///
/// A session of the classic group protocol can be as short as 500 ms. With the new protocol the
/// server sets the session, and it is 6 s; `group.consumer.session.timeout.ms` and
/// `group.consumer.heartbeat.interval.ms` change it, here or for one group.
///
/// If the value is dropped, all nodes end and the folder is removed; that blocks the thread for
/// less than a second. When the test ends without a drop, by SIGKILL or with the cluster in a
/// `static`, the nodes end and the folder is removed soon after. The folder stays only if no node
/// of the cluster ran at that moment.
///
/// All methods take `&self`: tasks that share a cluster put it into an `Arc`. Tests with separate
/// runtimes can share one: its proxies run on a thread of their own.
///
/// The asynchronous methods work on a thread of their own, so an operation finishes even if its
/// future is dropped, and the next operation on the same node waits for it. They do not use Tokio's
/// clock: a test may pause it.
///
/// # Examples
///
/// A test whose records outlive a crash:
///
/// ```no_run
/// # async fn test() -> Result<(), testkit_servers::ServerError> {
/// use testkit_servers::Kafka;
///
/// let kafka = Kafka::start().await?;
/// // … connect to `kafka.bootstrap()`, create a topic and write …
/// kafka.kill(0).await?;
/// kafka.start_again(0).await?;
/// // … and read …
/// # Ok(())
/// # }
/// ```
///
/// A client with network faults, while the cluster is healthy:
///
/// ```no_run
/// # async fn test() -> Result<(), testkit_servers::ServerError> {
/// use testkit_servers::Kafka;
///
/// let kafka = Kafka::start().await?;
/// let (client, observer) = (kafka.proxied(), kafka.bootstrap());
/// // … a client starts from `client` …
/// kafka.proxy(0).cut();
/// // … what it thinks now, and what another one sees from `observer` …
/// kafka.proxy(0).heal();
/// # Ok(())
/// # }
/// ```
pub struct Kafka {
    inner: Arc<Inner>,
}

struct Inner {
    /// The id of the cluster.
    id: String,
    machine: Machine,
    ports: Vec<Ports>,
    /// The listeners that the test has added.
    added: Vec<Listener>,
    /// The users of SCRAM.
    users: Vec<String>,
    proxies: Proxies,
    java: Java,
    /// Before the folder, so that they are dropped first.
    nodes: Vec<Node>,
    folder: TempDir,
}

impl Kafka {
    /// Creates a cluster of one node, starts it and waits until it answers, at most 60 s.
    ///
    /// # Errors
    ///
    /// [`Missing`](ServerError::Missing) if Java or Kafka is not installed, and the other variants
    /// if the node does not start.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the cluster ends and its folder is removed as soon as it is ready.
    pub async fn start() -> Result<Self, ServerError> {
        Self::builder().start().await
    }

    /// Creates a cluster of so many nodes, 1 to 3, starts them and waits until each answers and
    /// sees all others, at most 60 s.
    ///
    /// # Errors
    ///
    /// The same as those of [`start`](Self::start).
    ///
    /// # Panics
    ///
    /// Panics if `nodes` is 0 or more than 3, and outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// The same as that of [`start`](Self::start).
    pub async fn cluster(nodes: usize) -> Result<Self, ServerError> {
        Self::builder().nodes(nodes).start().await
    }

    /// Returns the builder of a cluster with other settings.
    pub fn builder() -> KafkaBuilder {
        KafkaBuilder::default()
    }

    /// Creates the cluster. Blocks the thread, which runs no task of a runtime.
    fn create(settings: &KafkaBuilder) -> Result<Self, ServerError> {
        let inner = Inner::start(settings, free_port)?;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Returns the addresses of all nodes, separated by commas, for clients that connect to them
    /// directly.
    pub fn bootstrap(&self) -> String {
        self.addresses(|ports| ports.direct)
    }

    /// Returns the addresses of the proxies of all nodes, separated by commas. A client that starts
    /// from these connects to the nodes through the proxies alone.
    pub fn proxied(&self) -> String {
        self.addresses(|ports| ports.proxied)
    }

    /// Returns the address of a [listener](KafkaBuilder::listener) that was added.
    ///
    /// # Panics
    ///
    /// Panics if there is no such listener.
    #[track_caller]
    pub fn listener(&self, name: &str) -> String {
        let mut added = self.inner.added.iter();
        let found = added.find(|one| one.name.eq_ignore_ascii_case(name));
        format!("127.0.0.1:{}", found.expect("a listener of this name").port)
    }

    fn addresses(&self, port: impl Fn(&Ports) -> u16) -> String {
        let ports = self.inner.ports.iter().map(port);
        let addresses: Vec<_> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        addresses.join(",")
    }

    /// Returns the proxy between a node and the clients of [`proxied`](Self::proxied). The nodes
    /// connect to each other without it. It runs in real time, even if the test pauses its clock.
    ///
    /// # Panics
    ///
    /// Panics if there is no such node.
    #[track_caller]
    pub fn proxy(&self, node: usize) -> &Proxy {
        self.node(node);
        &self.inner.proxies.all()[node]
    }

    /// Returns how many nodes the cluster has, including those that do not run.
    pub fn nodes(&self) -> usize {
        self.inner.nodes.len()
    }

    /// Returns the process id of a node; `None` when it does not run.
    ///
    /// Blocks the thread while the node is being started or stopped.
    ///
    /// # Panics
    ///
    /// Panics if there is no such node.
    #[track_caller]
    pub fn pid(&self, node: usize) -> Option<u32> {
        self.node(node).daemon.pid()
    }

    /// Returns the output of a node so far, for the message of a failed test.
    ///
    /// # Panics
    ///
    /// Panics if there is no such node.
    #[track_caller]
    pub fn log(&self, node: usize) -> String {
        self.node(node).daemon.log()
    }

    /// Returns the folder of the cluster. It is removed when this value is dropped.
    pub fn folder(&self) -> &Path {
        self.inner.folder.path()
    }

    /// Runs one of Kafka's own tools, by the name of its class, with `input` to read. Returns its
    /// output. It takes a second or two and the memory of a Java program: for more than a few calls
    /// use a client in the test.
    ///
    /// # Errors
    ///
    /// [`Program`](ServerError::Program) if it fails or takes longer than 60 s.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the tool runs to its end all the same.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn test() -> Result<(), testkit_servers::ServerError> {
    /// # let kafka = testkit_servers::Kafka::start().await?;
    /// let at = kafka.bootstrap();
    /// let create = ["--bootstrap-server", &at, "--create", "--topic", "orders"];
    /// kafka.tool("org.apache.kafka.tools.TopicCommand", create, "").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn tool(
        &self,
        class: &str,
        args: impl IntoIterator<Item = impl Into<OsString>>,
        input: &str,
    ) -> Result<String, ServerError> {
        let (class, input) = (class.to_owned(), input.to_owned());
        let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
        let inner = Arc::clone(&self.inner);
        on_thread(move || inner.java.tool(&class, &args, &input)).await
    }

    /// Tells a node to stop in order, and waits until it has ended. It hands the partitions that it
    /// leads over to others.
    ///
    /// Does nothing if the node does not run. A node cannot stop in order while no majority of the
    /// nodes runs: [`kill`](Self::kill) the last one of a cluster, or stop all at the same time.
    ///
    /// # Errors
    ///
    /// [`NotStopped`](ServerError::NotStopped) if it takes longer than 60 s. It is killed then.
    ///
    /// # Panics
    ///
    /// Panics if there is no such node, and outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the node is stopped all the same.
    pub async fn stop(&self, node: usize) -> Result<(), ServerError> {
        self.with(node, |daemon| daemon.stop(STOP_SIGNAL)).await
    }

    /// Kills a node with SIGKILL, as a crash would. When this returns, it is gone.
    ///
    /// Does nothing if the node does not run.
    ///
    /// # Errors
    ///
    /// [`System`](ServerError::System) if it cannot be killed.
    ///
    /// # Panics
    ///
    /// Panics if there is no such node, and outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the node is killed all the same.
    pub async fn kill(&self, node: usize) -> Result<(), ServerError> {
        self.with(node, Daemon::kill).await
    }

    /// Starts a node again after [`stop`](Self::stop), [`kill`](Self::kill) or a crash, on the same
    /// ports and with the same data, and waits until it answers and the cluster admits it, at most
    /// 60 s. That takes at least 3 s after a crash, unless `broker.session.timeout.ms` changes
    /// that.
    ///
    /// A majority of the nodes, the new one included, admits a node. If fewer run, start as many as
    /// it takes at the same time.
    ///
    /// # Errors
    ///
    /// [`Running`](ServerError::Running) if the node runs; [`Ended`](ServerError::Ended) or
    /// [`NotReady`](ServerError::NotReady) if it does not start.
    ///
    /// # Panics
    ///
    /// Panics if there is no such node, and outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the node is started all the same.
    pub async fn start_again(&self, node: usize) -> Result<(), ServerError> {
        self.node(node);
        let inner = Arc::clone(&self.inner);
        on_thread(move || inner.start_node(&inner.nodes[node], 1, || false)).await
    }

    /// Stops a node where it is, with SIGSTOP. Connections stay open, and requests hang. In a
    /// cluster of three, the others take its partitions over after 3 s.
    ///
    /// # Errors
    ///
    /// [`NotRunning`](ServerError::NotRunning) if the node does not run.
    ///
    /// # Panics
    ///
    /// Panics if there is no such node, and outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the node is paused all the same.
    pub async fn pause(&self, node: usize) -> Result<(), ServerError> {
        self.with(node, Daemon::pause).await
    }

    /// Resumes a paused node, with SIGCONT.
    ///
    /// # Errors
    ///
    /// [`NotRunning`](ServerError::NotRunning) if the node does not run.
    ///
    /// # Panics
    ///
    /// Panics if there is no such node, and outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the node is resumed all the same.
    pub async fn resume(&self, node: usize) -> Result<(), ServerError> {
        self.with(node, Daemon::resume).await
    }

    async fn with<T: Send + 'static>(
        &self,
        node: usize,
        operation: impl FnOnce(&Daemon) -> T + Send + 'static,
    ) -> T {
        self.node(node);
        let inner = Arc::clone(&self.inner);
        on_thread(move || operation(&inner.nodes[node].daemon)).await
    }

    #[track_caller]
    fn node(&self, node: usize) -> &Node {
        let nodes = &self.inner.nodes;
        let count = nodes.len();
        nodes
            .get(node)
            .unwrap_or_else(|| panic!("no node {node}: the cluster has {count}, from 0 on"))
    }
}

impl KafkaBuilder {
    /// Creates the cluster, starts its nodes and waits until each of them answers and sees all
    /// others, at most 60 s.
    ///
    /// # Errors
    ///
    /// [`Missing`](ServerError::Missing) if Java or Kafka is not installed;
    /// [`Program`](ServerError::Program) or [`Ended`](ServerError::Ended) with Kafka's error text
    /// if a property is wrong; the other variants if a node does not start.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the cluster ends and its folder is removed as soon as it is ready.
    pub async fn start(self) -> Result<Kafka, ServerError> {
        on_thread(move || Kafka::create(&self)).await
    }
}

impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kafka")
            .field("ports", &self.inner.ports)
            .field("folder", &self.inner.folder.path())
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn start(
        settings: &KafkaBuilder,
        mut port: impl FnMut() -> io::Result<u16>,
    ) -> Result<Self, ServerError> {
        let mut tried = 0;
        loop {
            tried += 1;
            // Start over with all nodes: they know each other by their ports.
            match Self::start_on(settings, &mut port) {
                Err(error) if is_port_taken(&error) && tried < PORTS => {}
                started => return started,
            }
        }
    }

    fn start_on(
        settings: &KafkaBuilder,
        port: impl FnMut() -> io::Result<u16>,
    ) -> Result<Self, ServerError> {
        let folder = temporary_folder()?;
        let java = Java::new(folder.path())?;
        let (ports, proxies) = open(settings.nodes, port)?;
        let added = settings.listeners.iter().map(|(name, protocol)| {
            Ok(Listener {
                name: name.clone(),
                protocol,
                port: free_port().map_err(ServerError::system("find a free port"))?,
            })
        });
        let added = added.collect::<Result<Vec<_>, ServerError>>()?;
        let node = |id: usize| {
            let data = folder.path().join(format!("node-{id}"));
            let text = properties(id, &ports, &added, &data, &settings.properties);
            Node::new(id, ports[id].direct, folder.path(), &text)
        };
        let nodes = (0..settings.nodes).map(node).collect::<Result<_, _>>()?;
        let inner = Self {
            id: cluster_id(),
            machine: settings.machine,
            ports,
            added,
            users: settings.users.clone(),
            proxies,
            java,
            nodes,
            folder,
        };
        inner.start_all()?;
        Ok(inner)
    }

    /// Starts the nodes at the same time: a node is not ready before most of them run.
    fn start_all(&self) -> Result<(), ServerError> {
        let failed = OnceLock::new();
        thread::scope(|scope| {
            for node in &self.nodes {
                scope.spawn(|| {
                    let others_failed = || failed.get().is_some();
                    let started = node
                        .format(&self.java, &self.id, &self.users)
                        .and_then(|()| self.start_node(node, self.nodes.len(), others_failed));
                    if let Err(error) = started {
                        // The first error is the cause of the others.
                        let _ = failed.set(error);
                    }
                });
            }
        });
        failed.into_inner().map_or(Ok(()), Err)
    }

    fn start_node(
        &self,
        node: &Node,
        seen: usize,
        others_failed: impl Fn() -> bool,
    ) -> Result<(), ServerError> {
        node.start(&self.java, self.machine, &self.id, seen, others_failed)
    }
}

/// Opens the ports of all nodes, with a proxy for each.
fn open(
    nodes: usize,
    mut port: impl FnMut() -> io::Result<u16>,
) -> Result<(Vec<Ports>, Proxies), ServerError> {
    let mut free: Vec<u16> = Vec::new();
    while free.len() < 3 * nodes {
        let port = port().map_err(ServerError::system("find a free port"))?;
        if !free.contains(&port) {
            free.push(port);
        }
    }
    let listeners: Vec<_> = free.chunks_exact(3).collect();
    let proxies = Proxies::to(listeners.iter().map(|of_node| of_node[1]))?;
    let ports = listeners.iter().zip(proxies.all());
    let ports = ports.map(|(of_node, proxy)| Ports {
        direct: of_node[0],
        behind_proxy: of_node[1],
        proxied: proxy.port(),
        controller: of_node[2],
    });
    Ok((ports.collect(), proxies))
}

/// Returns 128 random bits in Kafka's format: 22 characters of 6 bits, of which the last has 2.
fn cluster_id() -> String {
    const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let random = RandomState::new();
    let digits = (0..21_u8).map(|place| {
        let digit = random.hash_one(place) % DIGITS.len() as u64;
        char::from(DIGITS[digit as usize])
    });
    digits.chain(['A']).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn takes_other_ports_when_one_is_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = listener.local_addr().unwrap().port();
        let mut asked = 0;
        let port = || {
            asked += 1;
            if asked == 2 { Ok(taken) } else { free_port() }
        };
        let cluster = Inner::start(&KafkaBuilder::default(), port).unwrap();
        assert!(asked > 5 && cluster.ports[0].behind_proxy != taken);
    }

    #[test]
    fn clusters_have_names_of_their_own() {
        let (one, two) = (cluster_id(), cluster_id());
        assert_ne!(one, two);
        assert_eq!(one.len(), 22);
    }
}
