//! The conformance suites.

use keylane_leader::conformance as elections;
use keylane_leases::conformance as leases;

use crate::support::{LONG, new_root, shared, store};

#[tokio::test]
async fn leases_conform() {
    let server = shared().await;
    leases::check(store(&server.hosts(), &new_root(), LONG)).await;
}

#[tokio::test]
async fn elections_conform() {
    let server = shared().await;
    let store = store(&server.hosts(), &new_root(), LONG);
    elections::check(store.clone(), elections::SHORTEST).await;
    elections::check_end(store).await;
}
