//! The handle of a proxy.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::connection::{End, forward, limited};
use super::direction::Direction;
use super::faults::Faults;
use super::link::Link;
use super::traffic::Traffic;

/// A TCP proxy in front of a server, with faults that a test switches on and off.
///
/// Methods that are not async work from any thread. A fault applies to all connections. Faults of
/// different kinds add up, and stay until the test ends them. If the proxy is dropped, all its
/// connections are reset, and its port is closed.
///
/// See the [module](super) for what it guarantees, and for an example.
pub struct Proxy {
    addr: SocketAddr,
    target: Arc<watch::Sender<SocketAddr>>,
    faults: Arc<watch::Sender<Faults>>,
    accepting: AbortHandle,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1, and forwards its connections to `target`. The server
    /// need not run yet: each connection through the proxy makes one to the server.
    ///
    /// # Errors
    ///
    /// The error of the operating system if no port can be opened.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime with I/O and time.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, there is no proxy, and its port is free again.
    ///
    /// # Examples
    ///
    /// ```
    /// # use testkit_servers::proxy::Proxy;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// let proxy = Proxy::to(([127, 0, 0, 1], 5432).into()).await?;
    /// let url = format!("postgres://user@127.0.0.1:{}/orders", proxy.port());
    /// # assert_ne!(proxy.port(), 5432);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn to(target: SocketAddr) -> io::Result<Self> {
        Self::at((Ipv4Addr::LOCALHOST, 0).into(), target).await
    }

    /// Listens on this address, like [`to`](Self::to).
    pub(crate) async fn at(addr: SocketAddr, target: SocketAddr) -> io::Result<Self> {
        let socket = limited(TcpSocket::new_v4()?)?; // accepted sockets inherit it
        socket.set_reuseaddr(true)?;
        socket.bind(addr)?;
        let listener = socket.listen(1_024)?;
        let addr = listener.local_addr()?;
        let faults = Arc::new(watch::Sender::new(Faults::default()));
        let target = Arc::new(watch::Sender::new(target));
        let accepting = tokio::spawn(accept(listener, Arc::clone(&target), Arc::clone(&faults)));
        Ok(Self {
            addr,
            target,
            faults,
            accepting: accepting.abort_handle(),
        })
    }

    /// Returns the address for clients.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the port of [`addr`](Self::addr).
    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// Forwards new connections to another server, as a host name does after a fail-over. Existing
    /// connections stay where they are: [`reset`](Self::reset) ends them.
    pub fn point_to(&self, target: SocketAddr) {
        self.target.send_replace(target);
    }

    /// Cuts both directions, like a pulled cable: no byte passes and no connection closes. Bytes
    /// wait in the buffers of their senders. New connections are accepted, and reach the server
    /// after [`heal`](Self::heal).
    pub fn cut(&self) {
        self.change(|faults| {
            faults.to_server.is_cut = true;
            faults.to_client.is_cut = true;
        });
    }

    /// Cuts the direction to the server. The other direction is not affected: answers pass.
    pub fn cut_to_server(&self) {
        self.change(|faults| faults.to_server.is_cut = true);
    }

    /// Cuts the direction to the client. The other direction is not affected: requests pass, and
    /// the server acts on them.
    pub fn cut_to_client(&self) {
        self.change(|faults| faults.to_client.is_cut = true);
    }

    /// Ends all cuts. Waiting bytes arrive, as if TCP sent them again. Other faults stay.
    pub fn heal(&self) {
        self.change(|faults| {
            faults.to_server.is_cut = false;
            faults.to_client.is_cut = false;
        });
    }

    /// Closes all connections with a TCP reset, on both sides and also during a cut. Bytes in
    /// flight are lost. No byte passes on them after this call; the resets follow as soon as the
    /// runtime runs. New connections work.
    pub fn reset(&self) {
        self.change(|faults| faults.resets += 1);
    }

    /// Forgets all connections, as a NAT does with idle ones: no byte passes on them any more, and
    /// none of them is closed before a [`reset`](Self::reset). New connections work.
    pub fn forget(&self) {
        self.change(|faults| faults.forgets += 1);
    }

    /// Resets a connection once, in the middle of its traffic. From now on so many bytes pass in
    /// this direction, counted over all connections; then the connection that carries the last of
    /// them is reset. Others go on. With 0, it is the next connection that has a byte to pass.
    ///
    /// A second call for the same direction replaces the first.
    ///
    /// # Examples
    ///
    /// An answer that the client reads by half:
    ///
    /// ```
    /// # use testkit_servers::proxy::{Direction, Proxy};
    /// # use tokio::io::{AsyncReadExt, AsyncWriteExt};
    /// # use tokio::net::{TcpListener, TcpStream};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// # let server = TcpListener::bind("127.0.0.1:0").await?;
    /// # let proxy = Proxy::to(server.local_addr()?).await?;
    /// # let mut client = TcpStream::connect(proxy.addr()).await?;
    /// # let (mut served, _) = server.accept().await?;
    /// proxy.reset_after(Direction::ToClient, 3);
    /// served.write_all(b"answer").await?;
    /// let mut half = [0; 3];
    /// client.read_exact(&mut half).await?;
    /// assert!(client.read_u8().await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn reset_after(&self, direction: Direction, bytes: u64) {
        self.change(|faults| faults.way(direction).reset_after = Some(bytes));
    }

    /// Sets whether new connections are reset at once. Existing ones go on.
    pub fn refuse(&self, refuse: bool) {
        self.change(|faults| faults.refuses = refuse);
    }

    /// Delays all bytes in this direction for so long, from the time at which the proxy has read
    /// them. Zero ends it. Each connection has at most 64 KiB in transit, which then limits its
    /// throughput: with 50 ms to 1.3 MB per second.
    pub fn delay(&self, direction: Direction, latency: Duration) {
        self.change(|faults| faults.way(direction).latency = latency);
    }

    /// Lets at most so many bytes per second pass in this direction, over all connections together.
    /// The first 40 ms after an idle time may be twice as fast. `None` ends the limit.
    ///
    /// # Examples
    ///
    /// ```
    /// # use testkit_servers::proxy::{Direction, Proxy};
    /// use std::num::NonZeroU64;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// # let proxy = Proxy::to(([127, 0, 0, 1], 5432).into()).await?;
    /// proxy.throttle(Direction::ToClient, NonZeroU64::new(10_000));
    /// # Ok(())
    /// # }
    /// ```
    pub fn throttle(&self, direction: Direction, bytes_per_second: Option<NonZeroU64>) {
        self.change(|faults| faults.way(direction).throttle(bytes_per_second));
    }

    /// Returns the counters.
    pub fn traffic(&self) -> Traffic {
        self.faults.borrow().traffic()
    }

    fn change(&self, change: impl FnOnce(&mut Faults)) {
        self.faults.send_modify(change);
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("addr", &self.addr)
            .field("target", &*self.target.borrow())
            .field("faults", &*self.faults.borrow())
            .finish_non_exhaustive()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Closed before the abort, which comes too late for a connection that is being accepted.
        self.change(Faults::close);
        self.accepting.abort();
    }
}

async fn accept(
    listener: TcpListener,
    target: Arc<watch::Sender<SocketAddr>>,
    faults: Arc<watch::Sender<Faults>>,
) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            // The client has gone already, or this process has no file descriptor left.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let client = End::new(client); // reset when it is dropped
        if let Some(link) = Link::admit(&faults) {
            let target = *target.borrow();
            tokio::spawn(forward(client, target, link));
        }
    }
}
