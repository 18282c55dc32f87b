//! An ensemble of ZooKeeper servers.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::ServerError;
use crate::daemon::{Daemon, PORTS, is_port_taken, on_thread, temporary_folder};
use crate::port::free_port;
use crate::proxies::Proxies;
use crate::proxy::Proxy;
use crate::zookeeper::java::Java;
use crate::zookeeper::server::{Ports, Server, route};
use crate::zookeeper::{Mode, ZooKeeperBuilder, folder, word};

/// The signal after which a server stops in order.
const STOP_SIGNAL: &str = "TERM";

/// How long a command of four letters may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// One ZooKeeper server of a test, or an ensemble of three, in a private temporary folder, on ports
/// of the loopback address.
///
/// Its servers are numbered from 0, and ZooKeeper uses the same numbers. A confirmed write outlives
/// [`kill`](Self::kill).
///
/// If the value is dropped, all servers end and the folder is removed; that blocks the thread for
/// less than a second. When the test ends without a drop, by SIGKILL or with the ensemble in a
/// `static`, the servers end and the folder is removed soon after. The folder stays only if no
/// server ran at that moment.
///
/// All methods take `&self`: tasks that share an ensemble put it into an `Arc`. Tests with separate
/// runtimes can share one: its proxies run on a thread of their own.
///
/// The asynchronous methods work on a thread of their own, so an operation finishes even if its
/// future is dropped, and the next operation on the same server waits for it. They do not use
/// Tokio's clock: a test may pause it.
///
/// # Examples
///
/// ```no_run
/// # async fn test() -> Result<(), testkit_servers::ServerError> {
/// use testkit_servers::ZooKeeper;
///
/// let zookeeper = ZooKeeper::ensemble().await?;
/// // … connect to `zookeeper.proxied()` …
/// let leader = zookeeper.leader().await.expect("one of them leads");
/// zookeeper.kill(leader).await?;
/// // … what clients see now …
/// zookeeper.start_again(leader).await?;
/// # Ok(())
/// # }
/// ```
pub struct ZooKeeper {
    inner: Arc<Inner>,
}

struct Inner {
    ports: Vec<Ports>,
    /// In front of the clients' ports.
    proxies: Proxies,
    links: Links,
    java: Java,
    /// Before the folder, so that they are dropped first.
    servers: Vec<Server>,
    folder: TempDir,
}

/// The proxies between the servers.
struct Links {
    proxies: Proxies,
    /// From which server to which one.
    pairs: Vec<(usize, usize)>,
}

/// A copy of the data of a server, made by [`ZooKeeper::save`]. It is removed with its ensemble.
#[derive(Debug, Clone)]
pub struct Saved(PathBuf);

impl ZooKeeper {
    /// Creates one server, starts it and waits until it serves clients.
    ///
    /// # Errors
    ///
    /// [`Missing`](ServerError::Missing) if Java or ZooKeeper is not installed, and the other
    /// variants if the server does not start.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server ends and its folder is removed as soon as it is ready.
    pub async fn start() -> Result<Self, ServerError> {
        Self::builder().start().await
    }

    /// Creates three servers, starts them and waits until each of them serves clients.
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
    /// The same as that of [`start`](Self::start).
    pub async fn ensemble() -> Result<Self, ServerError> {
        Self::builder().servers(3).start().await
    }

    /// Returns the builder of a server or an ensemble with other settings.
    pub fn builder() -> ZooKeeperBuilder {
        ZooKeeperBuilder::default()
    }

    /// Returns the addresses of all servers, separated by commas, for clients that connect to them
    /// directly.
    pub fn hosts(&self) -> String {
        let ports = self.inner.ports.iter();
        addresses(ports.map(|ports| ports.client))
    }

    /// Returns the address of one server.
    ///
    /// # Panics
    ///
    /// Panics if there is no such server.
    #[track_caller]
    pub fn host(&self, server: usize) -> String {
        self.server(server);
        addresses([self.inner.ports[server].client])
    }

    /// Returns the addresses of the proxies of all servers, separated by commas.
    pub fn proxied(&self) -> String {
        addresses(self.inner.proxies.all().iter().map(Proxy::port))
    }

    /// Returns the proxy between a server and the clients of [`proxied`](Self::proxied). It runs in
    /// real time, even if the test pauses its clock.
    ///
    /// # Panics
    ///
    /// Panics if there is no such server.
    #[track_caller]
    pub fn proxy(&self, server: usize) -> &Proxy {
        self.server(server);
        &self.inner.proxies.all()[server]
    }

    /// Separates a server from the others: no byte passes between them. Clients reach it.
    ///
    /// # Panics
    ///
    /// Panics if there is no such server.
    #[track_caller]
    pub fn cut_off(&self, server: usize) {
        self.server(server);
        self.inner.links.each_of(server, Proxy::cut);
    }

    /// Ends [`cut_off`](Self::cut_off). The connections of before are reset.
    ///
    /// # Panics
    ///
    /// Panics if there is no such server.
    #[track_caller]
    pub fn rejoin(&self, server: usize) {
        self.server(server);
        self.inner.links.each_of(server, |proxy| {
            proxy.reset();
            proxy.heal();
        });
    }

    /// Returns how many servers there are, including those that do not run.
    pub fn servers(&self) -> usize {
        self.inner.servers.len()
    }

    /// Returns what a server is to the ensemble; `None` while it serves no client.
    ///
    /// # Panics
    ///
    /// Panics if there is no such server, and outside a Tokio runtime.
    pub async fn mode(&self, server: usize) -> Option<Mode> {
        self.with(server, Server::mode).await
    }

    /// Returns the server that leads, the only one included; `None` while no server does.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    pub async fn leader(&self) -> Option<usize> {
        let inner = Arc::clone(&self.inner);
        let leads = |mode| matches!(mode, Some(Mode::Leader | Mode::Alone));
        on_thread(move || inner.servers.iter().position(|one| leads(one.mode()))).await
    }

    /// Sends a server a command of four letters, such as `mntr`, and returns its answer.
    ///
    /// # Errors
    ///
    /// [`System`](ServerError::System) if it cannot be reached, or does not answer within 60 s.
    ///
    /// # Panics
    ///
    /// Panics if there is no such server, and outside a Tokio runtime.
    pub async fn word(&self, server: usize, word: &str) -> Result<String, ServerError> {
        self.server(server);
        let (port, word) = (self.inner.ports[server].client, word.to_owned());
        let asked = on_thread(move || word::ask(port, &word, PATIENCE)).await;
        asked.map_err(ServerError::system("ask the server"))
    }

    /// Returns the process id of a server; `None` when it does not run.
    ///
    /// Blocks the thread while the server is being started or stopped.
    ///
    /// # Panics
    ///
    /// Panics if there is no such server.
    #[track_caller]
    pub fn pid(&self, server: usize) -> Option<u32> {
        self.server(server).daemon.pid()
    }

    /// Returns the output of a server so far, for the message of a failed test.
    ///
    /// # Panics
    ///
    /// Panics if there is no such server.
    #[track_caller]
    pub fn log(&self, server: usize) -> String {
        self.server(server).daemon.log()
    }

    /// Returns the folder of the ensemble. It is removed when this value is dropped.
    pub fn folder(&self) -> &Path {
        self.inner.folder.path()
    }

    /// Tells a server to stop in order, and waits until it has ended.
    ///
    /// Does nothing if the server does not run.
    ///
    /// # Errors
    ///
    /// [`NotStopped`](ServerError::NotStopped) if it takes too long. It is killed then.
    ///
    /// # Panics
    ///
    /// Panics if there is no such server, and outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server is stopped all the same.
    pub async fn stop(&self, server: usize) -> Result<(), ServerError> {
        self.with_daemon(server, |daemon| daemon.stop(STOP_SIGNAL))
            .await
    }

    /// Kills a server with SIGKILL, as a crash would. When this returns, it is gone.
    ///
    /// Does nothing if the server does not run.
    ///
    /// # Errors
    ///
    /// [`System`](ServerError::System) if it cannot be killed.
    ///
    /// # Panics
    ///
    /// Panics if there is no such server, and outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server is killed all the same.
    pub async fn kill(&self, server: usize) -> Result<(), ServerError> {
        self.with_daemon(server, Daemon::kill).await
    }

    /// Starts a server again after [`stop`](Self::stop), [`kill`](Self::kill) or a crash, on the
    /// same ports and with the same data, and waits until it serves clients. In an ensemble without
    /// a majority it waits only until it answers.
    ///
    /// # Errors
    ///
    /// [`Running`](ServerError::Running) if the server runs; [`Ended`](ServerError::Ended) or
    /// [`NotReady`](ServerError::NotReady) if it does not start.
    ///
    /// # Panics
    ///
    /// Panics if there is no such server, and outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server is started all the same.
    pub async fn start_again(&self, server: usize) -> Result<(), ServerError> {
        self.server(server);
        let inner = Arc::clone(&self.inner);
        on_thread(move || inner.start_again(server)).await
    }

    /// Stops a server where it is, with SIGSTOP. Connections stay open, and requests hang.
    ///
    /// # Errors
    ///
    /// [`NotRunning`](ServerError::NotRunning) if the server does not run.
    ///
    /// # Panics
    ///
    /// Panics if there is no such server, and outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server is paused all the same.
    pub async fn pause(&self, server: usize) -> Result<(), ServerError> {
        self.with_daemon(server, Daemon::pause).await
    }

    /// Resumes a paused server, with SIGCONT.
    ///
    /// # Errors
    ///
    /// [`NotRunning`](ServerError::NotRunning) if the server does not run.
    ///
    /// # Panics
    ///
    /// Panics if there is no such server, and outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server is resumed all the same.
    pub async fn resume(&self, server: usize) -> Result<(), ServerError> {
        self.with_daemon(server, Daemon::resume).await
    }

    /// Copies the data of a server, which must not run, for [`restore`](Self::restore).
    ///
    /// # Errors
    ///
    /// [`Running`](ServerError::Running) if the server runs; [`System`](ServerError::System) if the
    /// files cannot be copied.
    ///
    /// # Panics
    ///
    /// Panics if there is no such server, and outside a Tokio runtime.
    pub async fn save(&self, server: usize) -> Result<Saved, ServerError> {
        let folder = tempfile::Builder::new()
            .prefix("saved-")
            .tempdir_in(self.folder());
        let folder = folder.map_err(ServerError::system("create a folder"))?;
        let to = folder.keep();
        let copy = to.clone();
        self.with_data(server, move |data| folder::copy(data, &copy))
            .await?;
        Ok(Saved(to))
    }

    /// Replaces the data of a server, which must not run, by those of a copy: what was written
    /// after the copy is lost.
    ///
    /// # Errors
    ///
    /// [`Running`](ServerError::Running) if the server runs; [`System`](ServerError::System) if the
    /// files cannot be replaced.
    ///
    /// # Panics
    ///
    /// Panics if there is no such server, and outside a Tokio runtime.
    pub async fn restore(&self, server: usize, saved: &Saved) -> Result<(), ServerError> {
        let from = saved.0.clone();
        self.with_data(server, move |data| folder::replace(data, &from))
            .await
    }

    async fn with_data(
        &self,
        server: usize,
        operation: impl FnOnce(&Path) -> io::Result<()> + Send + 'static,
    ) -> Result<(), ServerError> {
        self.with(server, |server| match server.daemon.pid() {
            Some(_) => Err(ServerError::Running),
            None => operation(&server.data).map_err(ServerError::system("copy the data")),
        })
        .await
    }

    async fn with_daemon<T: Send + 'static>(
        &self,
        server: usize,
        operation: impl FnOnce(&Daemon) -> T + Send + 'static,
    ) -> T {
        self.with(server, |server| operation(&server.daemon)).await
    }

    async fn with<T: Send + 'static>(
        &self,
        server: usize,
        operation: impl FnOnce(&Server) -> T + Send + 'static,
    ) -> T {
        self.server(server);
        let inner = Arc::clone(&self.inner);
        on_thread(move || operation(&inner.servers[server])).await
    }

    #[track_caller]
    fn server(&self, server: usize) -> &Server {
        let servers = &self.inner.servers;
        let count = servers.len();
        servers
            .get(server)
            .unwrap_or_else(|| panic!("no server {server}: there are {count}, from 0 on"))
    }
}

impl ZooKeeperBuilder {
    /// Creates the servers, starts them and waits until each of them serves clients.
    ///
    /// # Errors
    ///
    /// [`Missing`](ServerError::Missing) if Java or ZooKeeper is not installed;
    /// [`Ended`](ServerError::Ended) with ZooKeeper's error text if a property is wrong; the other
    /// variants if a server does not start.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the servers end and their folder is removed as soon as they are
    /// ready.
    pub async fn start(self) -> Result<ZooKeeper, ServerError> {
        let inner = on_thread(move || Inner::start(&self, free_port)).await?;
        Ok(ZooKeeper {
            inner: Arc::new(inner),
        })
    }
}

impl fmt::Debug for ZooKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeper")
            .field("ports", &self.inner.ports)
            .field("folder", &self.inner.folder.path())
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn start(
        settings: &ZooKeeperBuilder,
        mut port: impl FnMut() -> io::Result<u16>,
    ) -> Result<Self, ServerError> {
        let mut tried = 0;
        loop {
            tried += 1;
            // Start over with all servers: they know each other by their ports.
            match Self::start_on(settings, &mut port) {
                Err(error) if is_port_taken(&error) && tried < PORTS => {}
                started => return started,
            }
        }
    }

    fn start_on(
        settings: &ZooKeeperBuilder,
        port: impl FnMut() -> io::Result<u16>,
    ) -> Result<Self, ServerError> {
        let folder = temporary_folder()?;
        let java = Java::new(folder.path())?;
        let (ports, links) = open(settings.servers, port)?;
        let proxies = Proxies::to(ports.iter().map(|ports| ports.client))?;
        let server = |id: usize| Server::new(id, &ports, folder.path(), settings);
        let servers = (0..settings.servers).map(server);
        let servers = servers.collect::<Result<_, _>>()?;
        let inner = Self {
            ports,
            proxies,
            links,
            java,
            servers,
            folder,
        };
        inner.start_all()?;
        Ok(inner)
    }

    /// Starts the servers at the same time: none is ready before most of them run.
    fn start_all(&self) -> Result<(), ServerError> {
        let failed = OnceLock::new();
        thread::scope(|scope| {
            for server in &self.servers {
                scope.spawn(|| {
                    let others_failed = || failed.get().is_some();
                    if let Err(error) = server.start(&self.java, true, others_failed) {
                        // The first error is the cause of the others.
                        let _ = failed.set(error);
                    }
                });
            }
        });
        failed.into_inner().map_or(Ok(()), Err)
    }

    fn start_again(&self, server: usize) -> Result<(), ServerError> {
        let runs = |server: &&Server| server.daemon.pid().is_some();
        let running = self.servers.iter().filter(runs).count();
        let has_majority = 2 * (running + 1) > self.servers.len();
        self.servers[server].start(&self.java, has_majority, || false)
    }
}

impl Links {
    fn each_of(&self, server: usize, change: impl Fn(&Proxy)) {
        let links = self.pairs.iter().zip(self.proxies.all());
        links
            .filter(|((from, to), _)| *from == server || *to == server)
            .for_each(|(_, proxy)| change(proxy));
    }
}

/// Opens the ports of all servers, with proxies from each to each other one.
fn open(
    servers: usize,
    mut port: impl FnMut() -> io::Result<u16>,
) -> Result<(Vec<Ports>, Links), ServerError> {
    let mut free: Vec<u16> = Vec::new();
    while free.len() < 3 * servers {
        let port = port().map_err(ServerError::system("find a free port"))?;
        if !free.contains(&port) {
            free.push(port);
        }
    }
    let ports = free.chunks_exact(3).map(|of_server| Ports {
        client: of_server[0],
        quorum: of_server[1],
        election: of_server[2],
    });
    let ports: Vec<Ports> = ports.collect();
    let all = (0..servers).flat_map(|from| (0..servers).map(move |to| (from, to)));
    let pairs = all.filter(|(from, to)| from != to);
    // One for each port of the other server.
    let pairs: Vec<_> = pairs.flat_map(|pair| [pair, pair]).collect();
    let addresses = pairs.iter().enumerate().map(|(at, (from, to))| {
        let port = match at % 2 {
            0 => ports[*to].quorum,
            _ => ports[*to].election,
        };
        let target = (Ipv4Addr::LOCALHOST, port);
        ((route(*from, *to), port).into(), target.into())
    });
    let proxies = Proxies::at(addresses)?;
    Ok((ports, Links { proxies, pairs }))
}

fn addresses(ports: impl IntoIterator<Item = u16>) -> String {
    let addresses = ports.into_iter().map(|port| format!("127.0.0.1:{port}"));
    addresses.collect::<Vec<_>>().join(",")
}
