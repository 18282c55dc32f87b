//! A TCP proxy on loopback with faults that a test orders.
//!
//! ```text
//!                        ┌────────── Proxy ──────────┐
//!  client ─ to_server ──►│ read ► 64 KiB ► may pass? │──► server
//!         ◄─ to_client ──│ may pass? ◄ 64 KiB ◄ read │◄──
//!                        └─────────────▲─────────────┘
//!                         test: cut, delay, reset, …
//! ```
//!
//! The client connects to [`Proxy::addr`], and the proxy connects to the server. It forwards bytes,
//! the end of one direction (a half-close) and resets, each direction separately. A fault applies
//! from the moment at which the call returns, for existing and for new connections.
//!
//! # Guarantees
//!
//! - Bytes are never reordered, duplicated or changed. What arrives is a prefix of what was sent.
//! - Bytes are lost only if their connection is reset: by a fault, by the client, by the server, or
//!   because the proxy is dropped. A connection that lost bytes never ends with a clean close.
//!   The kernel tells each end of a reset once: the call that reads, or the call that writes.
//! - Buffers have a limit. The proxy holds 64 KiB for each direction of a connection, and then
//!   stops reading: a slow reader slows its writer. The kernel's buffers come on top.
//!
//! # Differences from a cable
//!
//! - The kernel accepts connections for the proxy. A client's connect succeeds during a cut, and
//!   while the server is down; in the latter case the connection is reset at once.
//! - A connection counts as accepted a moment after the client's connect returned. A test that
//!   resets or refuses first exchanges a byte over the connections that must count as existing.
//! - Bytes that the proxy has passed before a cut may still wait in the kernel, and are read during
//!   the cut.
//!
//! The proxy runs on the runtime and on the clock of its caller. A test that blocks the only thread
//! of its runtime stops the proxy, and paused time runs ahead of the sockets.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use testkit_servers::proxy::Proxy;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use tokio::net::{TcpListener, TcpStream};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let server = TcpListener::bind("127.0.0.1:0").await?;
//! let proxy = Proxy::to(server.local_addr()?).await?;
//! let mut client = TcpStream::connect(proxy.addr()).await?;
//! let (mut served, _) = server.accept().await?;
//!
//! proxy.cut();
//! client.write_all(b"hello").await?; // waits in the kernel
//! let mut answer = [0; 5];
//! let read = tokio::time::timeout(Duration::from_millis(20), served.read(&mut answer));
//! assert!(read.await.is_err(), "nothing passes, and nothing is closed");
//!
//! proxy.heal();
//! served.read_exact(&mut answer).await?;
//! assert_eq!(&answer, b"hello");
//!
//! proxy.reset();
//! assert!(client.read(&mut answer).await.is_err());
//! # Ok(())
//! # }
//! ```

mod handle;
pub use handle::Proxy;

mod direction;
pub use direction::Direction;

mod traffic;
pub use traffic::Traffic;

mod faults;

mod link;

mod connection;

mod pump;
