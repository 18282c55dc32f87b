//! The conformance suites.

use std::time::Duration;

use keylane_leases::conformance;

use crate::support::{new_root, shared, store};

/// The suite leases for ten minutes.
const LONG: Duration = Duration::from_secs(1_000);

#[tokio::test]
async fn leases_conform() {
    let server = shared().await;
    conformance::check(store(&server.hosts(), &new_root(), LONG)).await;
}
