//! A console at a port of its own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use keylane_console::{Action, Console};
use tokio::net::TcpListener;

/// What an operator may do. Nothing that loses an order. No token: no proxy leads to the port.
pub(crate) const ALLOWED: [Action; 3] = [Action::Pause, Action::Resume, Action::RetryNow];

/// Serves it for as long as the process runs. Returns where.
pub(crate) async fn serve(console: Console) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { console.serve(listener).await });
    Ok(address)
}
