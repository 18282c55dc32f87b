//! TLS to the servers: the certificates of the client, and why there is no connection.

use etcd_client::Error as ClientError;
#[cfg(feature = "tls")]
use std::time::Duration;

#[cfg(feature = "tls")]
use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};
#[cfg(feature = "tls")]
use futures::stream::{FuturesUnordered, StreamExt};
#[cfg(feature = "tls")]
use keylane_connector::tls::{Certificates, find_failure, host_and_port};
use keylane_connector::tls::{TlsFailure, TlsNames};

pub(crate) const NAMES: TlsNames = TlsNames {
    authority: "`Etcd::certificates`",
    identity: "`Certificates::identity`",
    with: "write https:// into the address",
    without: "write http:// into the address",
};

/// What a client of HTTP/2 says first: a server answers with its settings.
#[cfg(feature = "tls")]
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// How long a server may take for a handshake.
#[cfg(feature = "tls")]
const HANDSHAKE: Duration = Duration::from_secs(2);

/// Returns why no connection with TLS can be made to these servers: the first reason, if each has
/// one. The client tries them for ever, and says of some reasons only that a connection was
/// closed.
#[cfg(feature = "tls")]
pub(crate) async fn failure(
    places: impl Iterator<Item = &str>,
    certificates: &Certificates,
) -> Option<TlsFailure> {
    let servers = places.filter_map(|place| host_and_port(place, Some(443)));
    let found = servers.map(|server| find_failure(server, certificates, HELLO, HANDSHAKE));
    // The first one that is well ends it, so no other one delays the connection.
    let mut found = found.collect::<FuturesUnordered<_>>();
    let mut first = None;
    while let Some(failure) = found.next().await {
        first = first.or(Some(failure?));
    }
    first
}

/// Adds certificates to the options of the client.
#[cfg(feature = "tls")]
pub(crate) fn with(options: ConnectOptions, certificates: &Certificates) -> ConnectOptions {
    let tls = TlsOptions::new();
    let tls = match certificates.authority_pem() {
        Some(pem) => tls.ca_certificate(Certificate::from_pem(pem)),
        None => tls.with_webpki_roots(),
    };
    options.with_tls(match certificates.client_identity() {
        Some(own) => tls.identity(Identity::from_pem(own.certificate(), own.key())),
        None => tls,
    })
}

/// Returns why there is no connection with TLS, if the error is about that.
#[cfg(feature = "tls")]
pub(crate) fn failure_of(error: &ClientError) -> Option<TlsFailure> {
    match error {
        ClientError::GRpcStatus(status) => TlsFailure::of(status),
        ClientError::TransportError(error) => TlsFailure::of(error),
        ClientError::IoError(error) => TlsFailure::of(error),
        _ => None,
    }
}

/// Without TLS nothing fails because of it.
#[cfg(not(feature = "tls"))]
pub(crate) fn failure_of(_: &ClientError) -> Option<TlsFailure> {
    None
}
