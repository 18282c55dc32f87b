//! The fault proxy, on real sockets.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod cuts;
mod forwarding;
mod random;
mod resets;
mod slow;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use keylane_testkit::scenario::within;
use testkit_servers::proxy::Proxy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A server whose connections the test holds, and a proxy in front of it.
struct Rig {
    proxy: Proxy,
    server: TcpListener,
}

impl Rig {
    async fn new() -> Self {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy::to(server.local_addr().unwrap()).await.unwrap();
        Self { proxy, server }
    }

    /// A connection, by both its ends. A byte has gone each way.
    async fn connect(&self) -> (TcpStream, TcpStream) {
        let mut client = TcpStream::connect(self.proxy.addr()).await.unwrap();
        let (mut served, _) = within(self.server.accept()).await.unwrap();
        passes(&mut client, &mut served, b"?").await;
        passes(&mut served, &mut client, b"!").await;
        (client, served)
    }

    /// Waits until so many connections are open.
    async fn open(&self, count: u64) {
        let counted = async {
            while self.proxy.traffic().open != count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        within(counted).await;
    }
}

/// Sends bytes, and asserts that they arrive.
async fn passes(from: &mut TcpStream, to: &mut TcpStream, bytes: &[u8]) {
    from.write_all(bytes).await.unwrap();
    arrives(to, bytes).await;
}

async fn arrives(to: &mut TcpStream, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    within(to.read_exact(&mut read)).await.unwrap();
    assert_eq!(read, bytes);
}

/// Asserts that no byte, no end and no reset arrives.
async fn is_silent(to: &mut TcpStream) {
    let read = tokio::time::timeout(Duration::from_millis(100), to.read_u8()).await;
    assert!(read.is_err(), "{read:?}");
}

/// Asserts that nothing but a reset arrives.
async fn is_reset(to: &mut TcpStream) {
    let error = within(to.read_u8()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// Asserts that nothing but a clean end arrives.
async fn has_ended(to: &mut TcpStream) {
    assert_eq!(within(to.read(&mut [0])).await.unwrap(), 0);
}

/// An address at which no server listens.
async fn nowhere() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// Bytes of which no part looks like another.
fn known_bytes(len: u32) -> Vec<u8> {
    let bytes = (0..len).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8);
    bytes.collect()
}
