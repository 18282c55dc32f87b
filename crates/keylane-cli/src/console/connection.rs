//! A connection to a console: over TCP, and with TLS if its address says so.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use keylane_connector::tls::{Certificates, TlsFailure, find_failure, secured, speaks_tls};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::address::Address;
use super::error::ConsoleError;

/// How long a look may take whether a server speaks TLS.
const LOOK: Duration = Duration::from_secs(1);

/// Reads the authorities that are trusted; without a file, those of Mozilla's list.
pub(super) fn certificates(
    address: &Address,
    file: Option<&Path>,
) -> Result<Certificates, ConsoleError> {
    let Some(path) = file else {
        return Ok(Certificates::new());
    };
    if !address.has_tls {
        return Err(ConsoleError::NoTls);
    }
    let wrong = |why: String| ConsoleError::Authority {
        path: path.to_owned(),
        why,
    };
    let pem = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let certificates = Certificates::new().authority(pem);
    certificates.map_err(|error| wrong(error.to_string()))
}

/// Connects. The connection ends with the body of the answer.
pub(super) async fn connect(
    address: &Address,
    certificates: &Certificates,
) -> Result<SendRequest<Full<Bytes>>, ConsoleError> {
    let (host, port) = address.peer();
    let stream = TcpStream::connect((host, port)).await;
    let stream = stream.map_err(|error| failed(address, &error))?;
    match address.has_tls {
        true => {
            let secured = secured(stream, host, certificates).await;
            speak(address, secured.map_err(|error| failed(address, &error))?).await
        }
        false => speak(address, stream).await,
    }
}

async fn speak(
    address: &Address,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<SendRequest<Full<Bytes>>, ConsoleError> {
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = shaken.map_err(|error| failed(address, &error))?;
    // Its error is the error of the request.
    tokio::spawn(connection);
    Ok(sender)
}

/// What the error of a request means. A server that refuses the client certificate does so after
/// the handshake, and a reset of the connection may overtake its alert. A handshake alone is not
/// reset.
pub(super) async fn unanswered(
    address: &Address,
    certificates: &Certificates,
    error: &(dyn Error + 'static),
) -> ConsoleError {
    let failed = failed(address, error);
    if !address.has_tls || matches!(failed, ConsoleError::Tls { .. }) {
        return failed;
    }
    match find_failure(address.peer(), certificates, &[], LOOK).await {
        Some(failure) => ConsoleError::Tls {
            url: address.url(),
            failure,
        },
        None => failed,
    }
}

/// What an error of a connection means.
fn failed(address: &Address, error: &(dyn Error + 'static)) -> ConsoleError {
    let url = address.url();
    match TlsFailure::of(error) {
        Some(failure) => ConsoleError::Tls { url, failure },
        None => ConsoleError::NoAnswer {
            url,
            why: error.to_string(),
        },
    }
}

/// What it means that the answer is none of HTTP.
pub(super) async fn misread(address: &Address) -> ConsoleError {
    let url = address.url();
    match !address.has_tls && speaks_tls(address.peer(), LOOK).await {
        true => ConsoleError::Tls {
            url,
            failure: TlsFailure::OnlyTls,
        },
        false => ConsoleError::NoConsole { url },
    }
}
