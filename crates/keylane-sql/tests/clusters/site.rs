//! What the clusters of both databases share.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use keylane_sql::{Database, Tables};
use keylane_testkit::scenario::repeats;
use testkit_servers::proxy::Proxy;

/// How long it takes to find out that a host is lost.
pub(crate) const FOUND_OUT: Duration = Duration::from_secs(1);

/// How often a standby takes over: twice unless set.
pub(crate) fn failovers() -> u64 {
    repeats("KEYLANE_FAILOVERS", 2)
}

/// Shows the logs of the source with `RUST_LOG=keylane`, if the test fails.
pub(crate) fn show_log() {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter);
    // Another test may have done so.
    let _ = subscriber
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .try_init();
}

pub(crate) fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Makes the tables in a new database, and returns its address by a proxy in front of the server.
pub(crate) async fn prepared(address: &str, proxy: &Proxy) -> String {
    let database = Database::connect(address).await.unwrap();
    database.migrate(&Tables::new()).await.unwrap();
    let (server, name) = address.rsplit_once('/').unwrap();
    let (user, _) = server.rsplit_once(':').unwrap();
    format!("{user}:{}/{name}", proxy.port())
}
