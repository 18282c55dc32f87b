//! TLS to the servers: the certificates of the client, and why there is no connection.

#[cfg(feature = "tls")]
use std::time::Duration;

#[cfg(feature = "tls")]
pub(crate) use keylane_connector::tls::Certificates;
use keylane_connector::tls::{TlsFailure, TlsNames};
#[cfg(feature = "tls")]
use keylane_connector::tls::{find_failure, set_provider};
use redis::cluster::ClusterClientBuilder;
#[cfg(feature = "tls")]
use redis::{Client, ClientTlsConfig, RedisResult, TlsCertificates};
use redis::{ConnectionAddr, ConnectionInfo};

/// The certificates of a client: without TLS there are none.
#[cfg(not(feature = "tls"))]
pub(crate) type Certificates = ();

pub(crate) const NAMES: TlsNames = TlsNames {
    authority: "`Redis::certificates`",
    identity: "`Certificates::identity`",
    with: "write rediss:// into the address",
    without: "write redis:// into the address",
};

/// A command without a key, as a user types it. Each server answers it, if with an error.
#[cfg(feature = "tls")]
const HELLO: &[u8] = b"PING\r\n";

/// How long a server may take for a handshake, once it has failed.
#[cfg(feature = "tls")]
const HANDSHAKE: Duration = Duration::from_secs(1);

/// Returns the host and the port of a server, if connections to it have TLS.
pub(crate) fn with_tls(server: &ConnectionInfo) -> Option<(&str, u16)> {
    match server.addr() {
        ConnectionAddr::TcpTls { host, port, .. } => Some((host, *port)),
        _ => None,
    }
}

/// Returns whether an address asks for no check of the server at all.
pub(crate) fn is_unchecked(server: &ConnectionInfo) -> bool {
    matches!(server.addr(), ConnectionAddr::TcpTls { insecure: true, .. })
}

/// Gives the certificates to the connections of a server. Fails if they have no TLS.
#[cfg(feature = "tls")]
pub(crate) fn certified(
    server: &ConnectionInfo,
    certificates: &Certificates,
) -> RedisResult<Client> {
    Client::build_with_tls(server.clone(), of_client(certificates))
}

/// Gives the certificates to the connections of a cluster with these servers. A client that has
/// some makes only connections with TLS.
#[cfg(feature = "tls")]
pub(crate) fn certify(
    cluster: ClusterClientBuilder,
    servers: &[ConnectionInfo],
    certificates: &Certificates,
) -> ClusterClientBuilder {
    match servers.iter().any(|server| with_tls(server).is_some()) {
        true => cluster.certs(of_client(certificates)),
        false => cluster,
    }
}

#[cfg(not(feature = "tls"))]
pub(crate) fn certify(
    cluster: ClusterClientBuilder,
    _: &[ConnectionInfo],
    (): &(),
) -> ClusterClientBuilder {
    cluster
}

/// Returns the certificates in the form of the client.
#[cfg(feature = "tls")]
fn of_client(certificates: &Certificates) -> TlsCertificates {
    let identity = certificates.client_identity();
    TlsCertificates {
        client_tls: identity.map(|identity| ClientTlsConfig {
            client_cert: identity.certificate().to_vec(),
            client_key: identity.key().to_vec(),
        }),
        root_cert: certificates.authority_pem().map(<[u8]>::to_vec),
    }
}

/// Prepares the process for connections to these servers.
#[cfg(feature = "tls")]
pub(crate) fn prepare(servers: &[ConnectionInfo]) {
    if servers.iter().any(|server| with_tls(server).is_some()) {
        set_provider();
    }
}

#[cfg(not(feature = "tls"))]
pub(crate) fn prepare(_: &[ConnectionInfo]) {}

/// Returns why there is no connection with TLS, where the client has not said it: a cluster names
/// no reason, and a server without TLS may wait for the end of a line.
#[cfg(feature = "tls")]
pub(crate) async fn failure(
    servers: &[ConnectionInfo],
    certificates: &Certificates,
    limit: Duration,
) -> Option<TlsFailure> {
    let limit = limit.min(HANDSHAKE);
    for server in servers.iter().filter_map(with_tls) {
        let found = find_failure(server, certificates, HELLO, limit).await;
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Without TLS the client cannot make such a connection.
#[cfg(not(feature = "tls"))]
pub(crate) async fn failure(
    _: &[ConnectionInfo],
    (): &(),
    _: std::time::Duration,
) -> Option<TlsFailure> {
    None
}
