//! The conformance suites.

use std::time::Duration;

use keylane_leader::conformance as elections;
use keylane_leases::conformance as leases;

use crate::support::{new_root, shared, store};

/// The suite leases for ten minutes.
const LONG: Duration = Duration::from_secs(1_000);

#[tokio::test]
async fn leases_conform() {
    let server = shared().await;
    leases::check(store(&server.hosts(), &new_root(), LONG)).await;
}

#[tokio::test]
async fn elections_conform() {
    let server = shared().await;
    let store = store(&server.hosts(), &new_root(), LONG);
    elections::check(store, elections::SHORTEST).await;
}
