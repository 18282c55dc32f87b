//! A connection of our own, for clients that take one.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Certificates;

/// Shakes hands over a connection, and returns it with TLS. The certificate of the server must be
/// for this host name or address, and a trusted authority must have signed it.
///
/// # Errors
///
/// [`TlsFailure::of`](super::TlsFailure::of) finds in the error why there is no TLS. A server may
/// refuse the client certificate later: then an error of the first read says so.
///
/// # Cancel safety
///
/// If the future is dropped, the connection is closed.
pub async fn secured(
    stream: TcpStream,
    host: &str,
    certificates: &Certificates,
) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + use<>> {
    let client = certificates.client().map_err(io::Error::other)?;
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let connector = TlsConnector::from(Arc::new(client));
    connector.connect(name, stream).await
}
