//! A proxy that holds requests back: they reach the server after later requests on another
//! connection. It can also lead to another server, from its next connection on.

use std::net::Ipv4Addr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The treatment of the requests on the connections so far.
pub(crate) struct Late {
    pub(crate) port: u16,
    held: Arc<watch::Sender<Held>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// How many connections there are.
    accepted: usize,
    /// The first connections, up to this number, are held back.
    first: usize,
    /// Bytes that wait.
    waiting: usize,
    /// Where new connections lead.
    port: u16,
}

impl Late {
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let held = Arc::<watch::Sender<Held>>::default();
        held.send_modify(|held| held.port = port);
        tokio::spawn(accept(listener, Arc::clone(&held)));
        Self { port: own, held }
    }

    /// Makes new connections lead to this server.
    pub(crate) fn lead_to(&self, port: u16) {
        self.held.send_modify(|held| held.port = port);
    }

    /// Holds back all requests from now on, on the current connections.
    pub(crate) fn hold(&self) {
        self.held.send_modify(|held| held.first = held.accepted);
    }

    /// Waits until some of them wait.
    pub(crate) async fn holds(&self) {
        let mut held = self.held.subscribe();
        held.wait_for(|held| held.waiting > 0).await.unwrap();
    }

    /// Lets all of them go on.
    pub(crate) async fn release(&self) {
        self.held.send_modify(|held| held.first = 0);
        let mut held = self.held.subscribe();
        held.wait_for(|held| held.waiting == 0).await.unwrap();
    }
}

async fn accept(listener: TcpListener, held: Arc<watch::Sender<Held>>) {
    loop {
        let (client, _) = listener.accept().await.unwrap();
        held.send_modify(|held| held.accepted += 1);
        let number = held.borrow().accepted;
        tokio::spawn(forward(client, number, Arc::clone(&held)));
    }
}

async fn forward(client: TcpStream, number: usize, held: Arc<watch::Sender<Held>>) {
    let port = held.borrow().port;
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else {
        return;
    };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let answers = tokio::spawn(async move { copy(&mut from_server, &mut to_client).await });
    let mut is_free = held.subscribe();
    let mut bytes = vec![0; 65_536];
    // This includes requests of a client that has left meanwhile.
    while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
        held.send_modify(|held| held.waiting += count);
        is_free.wait_for(|held| held.first < number).await.unwrap();
        let passed = to_server.write_all(&bytes[..count]).await;
        held.send_modify(|held| held.waiting -= count);
        if passed.is_err() {
            break;
        }
    }
    // The server sees the end after the last request.
    drop(to_server);
    let _ = answers.await;
}
