//! A handshake of our own, where the client of a system does not say why its own one failed.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::open::secured;
use super::{Certificates, TlsFailure};

/// How long a server may take to refuse a client certificate. With TLS 1.3 the client has ended its
/// handshake before.
const REFUSAL: Duration = Duration::from_millis(500);

/// The first byte of an alert of TLS.
const ALERT: u8 = 21;

/// Returns why TLS to this server fails. `hello` is what a client of the system says first; if it
/// is empty, a server without TLS is not found out.
///
/// Returns `None` if a handshake succeeds and the server does not refuse the client certificate
/// within half a second, if the server cannot be reached, or if it answers in no way within
/// `limit`.
///
/// # Cancel safety
///
/// If the future is dropped, its connection is closed.
pub async fn find_failure(
    server: (&str, u16),
    certificates: &Certificates,
    hello: &[u8],
    limit: Duration,
) -> Option<TlsFailure> {
    match timeout(limit, shake_hands(server, certificates, hello)).await {
        Ok(Ok(())) => return None,
        Ok(Err(error)) => {
            if let Some(failure) = TlsFailure::of(&error) {
                return Some(failure);
            }
        }
        Err(_) => {}
    }
    // A server without TLS closes the connection, or waits for the rest of a message.
    let answers = timeout(limit, answers_without(server, hello)).await;
    matches!(answers, Ok(Ok(true))).then_some(TlsFailure::NoTls)
}

/// Returns whether a server answers `hello` without TLS.
async fn answers_without(server: (&str, u16), hello: &[u8]) -> io::Result<bool> {
    if hello.is_empty() {
        return Ok(false);
    }
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(hello).await?;
    Ok(stream.read_u8().await? != ALERT)
}

/// Returns whether this server speaks TLS, whatever its certificate is.
///
/// # Cancel safety
///
/// If the future is dropped, its connection is closed.
pub async fn speaks_tls(server: (&str, u16), limit: Duration) -> bool {
    let certificates = Certificates::new();
    match timeout(limit, shake_hands(server, &certificates, &[])).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => TlsFailure::of(&error).is_some_and(|of| of != TlsFailure::NoTls),
        Err(_) => false,
    }
}

/// Returns the parts of `host:port`, where the host may be an IPv6 address in brackets. Without a
/// port it has this default. `None` if there is no port, or what stands there is none.
pub fn host_and_port(place: &str, default: Option<u16>) -> Option<(&str, u16)> {
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (place, default?),
    };
    Some((host.trim_matches(['[', ']']), port))
}

async fn shake_hands(
    (host, port): (&str, u16),
    certificates: &Certificates,
    hello: &[u8],
) -> io::Result<()> {
    let stream = TcpStream::connect((host, port)).await?;
    let mut stream = secured(stream, host, certificates).await?;
    let answer = async {
        stream.write_all(hello).await?;
        stream.flush().await?;
        stream.read(&mut [0]).await
    };
    match timeout(REFUSAL, answer).await {
        Ok(answered) => answered.map(drop),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_host_and_a_port() {
        let of = |place| host_and_port(place, Some(443));
        assert_eq!(of("etcd-1:2379"), Some(("etcd-1", 2379)));
        assert_eq!(of("etcd-1"), Some(("etcd-1", 443)));
        assert_eq!(of("[::1]:2379"), Some(("::1", 2379)));
        assert_eq!(of("[::1]"), Some(("::1", 443)));
        assert_eq!(of("etcd-1:port"), None);
        assert_eq!(host_and_port("kafka-1", None), None);
        assert_eq!(host_and_port("kafka-1:9092", None), Some(("kafka-1", 9092)));
    }
}
