//! The server.

use std::future::Future;

use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tower::{BoxError, ServiceBuilder};

use crate::bank::Bank;
use crate::lanes::{Mode, PATIENCE, by_account, status};
use crate::wire::accounts_server::AccountsServer;

/// Serves until `stop`, and then finishes what came before it.
pub(crate) async fn serve(
    listener: TcpListener,
    bank: Bank,
    mode: Mode,
    stop: impl Future<Output = ()>,
) -> Result<(), BoxError> {
    // The first is the outermost.
    let in_order = ServiceBuilder::new()
        .map_err(status)
        .load_shed()
        .timeout(PATIENCE)
        .layer(by_account(mode)?)
        .into_inner();
    Server::builder()
        .layer(in_order)
        .add_service(AccountsServer::new(bank))
        .serve_with_incoming_shutdown(TcpIncoming::from(listener), stop)
        .await?;
    Ok(())
}
