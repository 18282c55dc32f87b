//! A single etcd server.

use std::fmt;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use crate::ServerError;
use crate::daemon::{Daemon, PORTS, is_port_taken, on_thread, temporary_folder};
use crate::etcd::{EtcdKind, ask, programs};
use crate::port::free_port;
use crate::process::Program;
use crate::program::run;
use crate::proxy::Proxy;
use crate::server::LOG;
use crate::tls::{Certificate, Files, ServerTls};

/// The name of the files of certificates.
const TLS: &str = "tls";

/// How long `etcdctl` may take, in seconds.
const PATIENCE: u64 = 240;

/// The settings of an [`Etcd`], each with a default.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing before `start`"]
pub struct EtcdBuilder {
    kind: EtcdKind,
    arguments: Vec<String>,
    tls: Option<ServerTls>,
}

impl EtcdBuilder {
    /// Adds an argument, such as `--max-txn-ops=16`.
    ///
    /// `--name`, `--data-dir`, the URLs and the cluster belong to this module.
    pub fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Lets clients connect with TLS, and only so.
    pub fn tls(mut self, tls: ServerTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Creates the server, starts it and waits until it answers.
    ///
    /// # Errors
    ///
    /// [`Missing`](ServerError::Missing) if the server is not installed, and the other variants if
    /// it does not start.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server ends and its folder is removed as soon as it is ready.
    pub async fn start(self) -> Result<Etcd, ServerError> {
        let inner = on_thread(move || Inner::start(self, free_port)).await?;
        let inner = Arc::new(inner);
        Ok(Etcd { inner })
    }
}

/// An etcd server of a test, in a private temporary folder, on ports of the loopback address. It is
/// the only member of its cluster.
///
/// It runs as the user of the test, and a confirmed write outlives [`kill`](Self::kill).
///
/// If the value is dropped, the server ends and its folder is removed; that blocks the thread for
/// less than a second. When the test ends without a drop, by SIGKILL or with the server in a
/// `static`, the server ends and its folder is removed soon after.
///
/// All methods take `&self`. The asynchronous methods work on a thread of their own, so an
/// operation finishes even if its future is dropped, and the next one that starts, ends, pauses or
/// resumes the server waits for it. They do not use Tokio's clock, and panic outside a Tokio
/// runtime.
///
/// # Examples
///
/// ```no_run
/// # async fn test() -> Result<(), testkit_servers::ServerError> {
/// use testkit_servers::{Etcd, EtcdKind};
///
/// let server = Etcd::start(EtcdKind::Etcd34).await?;
/// let saved = server.save().await?;
/// // …
/// server.put_back(&saved).await?;
/// # Ok(())
/// # }
/// ```
pub struct Etcd {
    inner: Arc<Inner>,
}

/// The data of a server at a point in time. It belongs to the folder of the server.
#[derive(Debug, Clone)]
pub struct EtcdData {
    folder: PathBuf,
}

struct Inner {
    settings: EtcdBuilder,
    program: PathBuf,
    port: u16,
    /// The port for other members, of which there are none. It tells which server this is, also
    /// when clients need a password.
    peers: u16,
    /// The port for questions about its health. It has no TLS.
    health: u16,
    /// Before the folder, so that it is dropped first.
    daemon: Daemon,
    folder: TempDir,
}

impl Etcd {
    /// Creates a server, starts it and waits until it answers, as
    /// [`EtcdBuilder::start`] does.
    ///
    /// # Errors
    ///
    /// [`Missing`](ServerError::Missing) if the server is not installed, and the other variants if
    /// it does not start.
    pub async fn start(kind: EtcdKind) -> Result<Self, ServerError> {
        Self::builder(kind).start().await
    }

    /// Returns the builder of a server with other settings.
    pub fn builder(kind: EtcdKind) -> EtcdBuilder {
        EtcdBuilder {
            kind,
            arguments: Vec::new(),
            tls: None,
        }
    }

    /// Returns the version of the server.
    pub fn kind(&self) -> EtcdKind {
        self.inner.settings.kind
    }

    /// Returns the address for clients.
    pub fn url(&self) -> String {
        self.inner.client_url()
    }

    /// Shows this certificate to new connections from now on. The server must have TLS. What it
    /// requires of clients stays.
    ///
    /// # Errors
    ///
    /// [`System`](ServerError::System) if the files cannot be written.
    pub async fn show(&self, certificate: Certificate) -> Result<(), ServerError> {
        // It reads the files for each connection.
        let tls = ServerTls::new(certificate);
        self.run(move |inner| Files::write(inner.folder.path(), TLS, &tls).map(drop))
            .await
    }

    /// Returns the port for clients, on 127.0.0.1. It stays the same for the life of this value.
    pub fn port(&self) -> u16 {
        self.inner.port
    }

    /// Returns the process id of the server; `None` when it does not run.
    ///
    /// Blocks the thread while the server is being started or stopped.
    pub fn pid(&self) -> Option<u32> {
        self.inner.daemon.pid()
    }

    /// Returns the folder of this server. It is removed when this value is dropped.
    pub fn folder(&self) -> &Path {
        self.inner.folder.path()
    }

    /// Returns the output of the server so far, for the message of a failed test.
    pub fn log(&self) -> String {
        self.inner.daemon.log()
    }

    /// Puts a proxy in front of the server, which cuts and slows connections. Clients that shall
    /// meet its faults connect to its port.
    ///
    /// # Errors
    ///
    /// The error of the operating system if no port can be opened.
    pub async fn proxy(&self) -> io::Result<Proxy> {
        Proxy::to(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port()))).await
    }

    /// Tells the server to stop in order, and waits until it has ended. Does nothing if it does not
    /// run.
    ///
    /// # Errors
    ///
    /// [`NotStopped`](ServerError::NotStopped) if it does not end in time. It is killed then.
    pub async fn stop(&self) -> Result<(), ServerError> {
        self.run(|inner| inner.daemon.stop("TERM")).await
    }

    /// Kills the server with SIGKILL, as a crash would. Does nothing if it does not run.
    ///
    /// # Errors
    ///
    /// [`System`](ServerError::System) if it cannot be killed.
    pub async fn kill(&self) -> Result<(), ServerError> {
        self.run(|inner| inner.daemon.kill()).await
    }

    /// Starts the server again after [`stop`](Self::stop), [`kill`](Self::kill) or a crash, with
    /// the same ports and data, and waits until it answers.
    ///
    /// # Errors
    ///
    /// [`Running`](ServerError::Running) if the server runs; [`Ended`](ServerError::Ended) or
    /// [`NotReady`](ServerError::NotReady) if it does not start.
    pub async fn start_again(&self) -> Result<(), ServerError> {
        self.run(Inner::launch).await
    }

    /// Stops the server where it is, with SIGSTOP. Connections stay open, and calls hang.
    ///
    /// # Errors
    ///
    /// [`NotRunning`](ServerError::NotRunning) if the server does not run.
    pub async fn pause(&self) -> Result<(), ServerError> {
        self.run(|inner| inner.daemon.pause()).await
    }

    /// Resumes a paused server, with SIGCONT.
    ///
    /// # Errors
    ///
    /// [`NotRunning`](ServerError::NotRunning) if the server does not run.
    pub async fn resume(&self) -> Result<(), ServerError> {
        self.run(|inner| inner.daemon.resume()).await
    }

    /// Copies the data of the server, which ends in order and starts again for it.
    ///
    /// # Errors
    ///
    /// [`System`](ServerError::System) if the data cannot be copied, and those of
    /// [`start_again`](Self::start_again).
    pub async fn save(&self) -> Result<EtcdData, ServerError> {
        self.run(Inner::save).await
    }

    /// Kills the server and starts it again with the data of an earlier time, as an operator does
    /// who copies the disk of a backup back. The revision goes back, and the id of the cluster
    /// stays.
    ///
    /// # Errors
    ///
    /// As [`save`](Self::save).
    pub async fn put_back(&self, data: &EtcdData) -> Result<(), ServerError> {
        let from = data.folder.clone();
        self.run(move |inner| {
            inner.replace(|to| copy(&from, to).map_err(ServerError::system("copy the data")))
        })
        .await
    }

    /// Kills the server and starts it again with a snapshot, restored by `etcdctl` of etcd 3.4. The
    /// revision goes back, and the cluster has a new id: `token` names it.
    ///
    /// # Errors
    ///
    /// [`Program`](ServerError::Program) if `etcdctl` fails, and those of [`save`](Self::save).
    pub async fn restore(&self, snapshot: &Path, token: &str) -> Result<(), ServerError> {
        let (snapshot, token) = (snapshot.to_owned(), token.to_owned());
        self.run(move |inner| inner.replace(|to| inner.unpack(&snapshot, to, &token)))
            .await
    }

    async fn run<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Inner) -> Result<T, ServerError> + Send + 'static,
    ) -> Result<T, ServerError> {
        let inner = Arc::clone(&self.inner);
        on_thread(move || operation(&inner)).await
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("kind", &self.inner.settings.kind)
            .field("port", &self.inner.port)
            .field("folder", &self.inner.folder.path())
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn start(
        settings: EtcdBuilder,
        mut port: impl FnMut() -> io::Result<u16>,
    ) -> Result<Self, ServerError> {
        let folder = temporary_folder()?;
        let mut port = || port().map_err(ServerError::system("find a free port"));
        let mut inner = Self {
            program: programs::program(settings.kind)?,
            settings,
            port: 0,
            peers: 0,
            health: 0,
            daemon: Daemon::new(folder.path().join(LOG)),
            folder,
        };
        let mut tried = 0;
        loop {
            tried += 1;
            (inner.port, inner.peers, inner.health) = (port()?, port()?, port()?);
            match inner.launch() {
                // The URL of the member is in the data already.
                Err(error) if is_port_taken(&error) && tried < PORTS => inner.clear()?,
                started => return started.map(|()| inner),
            }
        }
    }

    fn launch(&self) -> Result<(), ServerError> {
        let folder = self.folder.path();
        let (clients, peers) = (self.client_url(), url(self.peers));
        let program = Program::new(&self.program, folder, &folder.join(LOG))
            .last_signal("KILL")
            .arg(format!("--name={}", self.name()))
            .arg(format!("--data-dir={}", self.data().display()))
            .arg(format!("--listen-client-urls={clients}"))
            .arg(format!("--advertise-client-urls={clients}"))
            .arg(format!("--listen-peer-urls={peers}"))
            .arg(format!("--initial-advertise-peer-urls={peers}"))
            .arg(format!("--initial-cluster={}={peers}", self.name()))
            .arg(format!("--listen-metrics-urls={}", url(self.health)))
            .args(self.certificates()?)
            .args(&self.settings.arguments);
        self.daemon.start(program, |_| Ok(self.answers()))
    }

    /// Returns whether it can read its data, and is not another server that has taken the port.
    fn answers(&self) -> bool {
        let says =
            |port, path, word: &str| ask::get(port, path).is_ok_and(|answer| answer.contains(word));
        // It is healthy after a read of which a majority of its cluster knows.
        says(self.peers, "/members", &self.name())
            && says(self.health, "/health", r#""health":"true""#)
    }

    fn client_url(&self) -> String {
        match self.settings.tls {
            Some(_) => format!("https://127.0.0.1:{}", self.port),
            None => url(self.port),
        }
    }

    /// Writes the certificates, and returns the arguments that name them.
    fn certificates(&self) -> Result<Vec<String>, ServerError> {
        let Some(tls) = &self.settings.tls else {
            return Ok(Vec::new());
        };
        let files = Files::write(self.folder.path(), TLS, tls)?;
        let mut arguments = vec![
            format!("--cert-file={}", files.certificate.display()),
            format!("--key-file={}", files.key.display()),
        ];
        if let Some(clients) = &files.clients {
            arguments.push("--client-cert-auth".to_owned());
            arguments.push(format!("--trusted-ca-file={}", clients.display()));
        }
        Ok(arguments)
    }

    /// The name of the folder is random, so no other server has this one.
    fn name(&self) -> String {
        let name = self.folder.path().file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn clear(&self) -> Result<(), ServerError> {
        match fs::remove_dir_all(self.data()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(ServerError::system("remove the data")(error))
            }
            _ => Ok(()),
        }
    }

    fn save(&self) -> Result<EtcdData, ServerError> {
        self.daemon.stop("TERM")?;
        let system = || ServerError::system("copy the data");
        let saved = tempfile::Builder::new()
            .prefix("saved-")
            .tempdir_in(self.folder.path())
            .map_err(system())?;
        copy(&self.data(), saved.path()).map_err(system())?;
        self.launch()?;
        // It goes with the folder of the server.
        let folder = saved.keep();
        Ok(EtcdData { folder })
    }

    /// Starts the server again with data that `fill` writes into the folder.
    fn replace(
        &self,
        fill: impl FnOnce(&Path) -> Result<(), ServerError>,
    ) -> Result<(), ServerError> {
        self.daemon.kill()?;
        self.clear()?;
        fill(&self.data())?;
        self.launch()
    }

    fn unpack(&self, snapshot: &Path, to: &Path, token: &str) -> Result<(), ServerError> {
        let peers = url(self.peers);
        run(&programs::client()?, None, PATIENCE, |command| {
            command
                .env("ETCDCTL_API", "3")
                .args(["snapshot", "restore"])
                .arg(snapshot)
                .arg(format!("--name={}", self.name()))
                .arg(format!("--data-dir={}", to.display()))
                .arg(format!("--initial-cluster={}={peers}", self.name()))
                .arg(format!("--initial-advertise-peer-urls={peers}"))
                .arg(format!("--initial-cluster-token={token}"));
        })
        .map(drop)
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// Copies the files below a folder.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &to)?,
            false => fs::copy(entry.path(), to).map(drop)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// The first two ports are taken: by a program that does not answer as a server would, and by a
    /// server of the same kind.
    #[test]
    fn takes_another_port_when_one_is_taken() {
        let settings = Etcd::builder(EtcdKind::Etcd34);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = listener.local_addr().unwrap().port();
        let other = Inner::start(settings.clone(), free_port).unwrap();
        let mut ports = [silent, other.port].into_iter();
        let server = Inner::start(settings, || ports.next().map_or_else(free_port, Ok)).unwrap();
        assert!(![silent, other.port].contains(&server.port));
        assert!(server.daemon.log().contains("ddress already in use"));
    }
}
