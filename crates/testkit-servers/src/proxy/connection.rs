//! One connection through the proxy.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

use tokio::net::{TcpSocket, TcpStream};

use super::direction::Direction::{ToClient, ToServer};
use super::link::{Link, Reset};
use super::pump::{Ending, Pump};

/// The size that the kernel is asked to use for each buffer of a socket.
const KERNEL_ROOM: u32 = 64 * 1024;

/// Forwards until both ends have closed, or until the connection is reset.
pub(super) async fn forward(mut client: End, target: SocketAddr, link: Link) {
    let _: Result<(), Reset> = run(&mut client, target, &link).await;
    drop(client);
    drop(link); // last: a connection that does not count as open is closed
}

async fn run(client: &mut End, target: SocketAddr, link: &Link) -> Result<(), Reset> {
    link.heals(ToServer).await?;
    let server = tokio::select! {
        server = connect(target) => server,
        reset = link.reset() => return Err(reset),
    };
    let Ok(server) = server else {
        link.heals(ToClient).await?;
        return Err(Reset);
    };
    let mut server = End::new(server);

    let is_gone = AtomicBool::new(false);
    let (client_reads, client_writes) = client.stream.split();
    let (server_reads, server_writes) = server.stream.split();
    let (to_server, to_client) = tokio::try_join!(
        Pump::new(ToServer, client_reads, server_writes, link, &is_gone).run(),
        Pump::new(ToClient, server_reads, client_writes, link, &is_gone).run(),
    )?;
    // If an end takes no more bytes, the other end is told as soon as the network allows.
    match (to_server, to_client) {
        (Ending::Closed, Ending::Closed) => {}
        (Ending::Gone, _) => link.heals(ToClient).await.and(Err(Reset))?,
        (_, Ending::Gone) => link.heals(ToServer).await.and(Err(Reset))?,
    }
    client.is_closed = true;
    server.is_closed = true;
    Ok(())
}

async fn connect(target: SocketAddr) -> io::Result<TcpStream> {
    let socket = match target {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    limited(socket)?.connect(target).await
}

/// Keeps the kernel from holding megabytes for a socket of the proxy.
pub(super) fn limited(socket: TcpSocket) -> io::Result<TcpSocket> {
    socket.set_recv_buffer_size(KERNEL_ROOM)?;
    socket.set_send_buffer_size(KERNEL_ROOM)?;
    Ok(socket)
}

/// One end. It is closed with a reset, unless both directions have ended: bytes may be missing
/// then, and a clean close would hide that.
pub(super) struct End {
    stream: TcpStream,
    is_closed: bool,
}

impl End {
    pub(super) fn new(stream: TcpStream) -> Self {
        // Sends small answers at once. A socket that refuses this is dead, and the next read
        // reports it.
        stream.set_nodelay(true).ok();
        Self {
            stream,
            is_closed: false,
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if !self.is_closed {
            self.stream.set_zero_linger().ok();
        }
    }
}
