//! The suites of both stores.

use std::sync::Arc;

use keylane_leader::conformance::{self, SHORTEST};

use super::elections;
use crate::support::{Kind, Place};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_elections() {
    conforms(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_keeps_elections() {
    conforms(Kind::MariaDb).await;
}

async fn conforms(kind: Kind) {
    let place = Place::new(kind).await;
    let store = Arc::new(elections(&place).await);
    conformance::check(store.clone(), SHORTEST).await;
    conformance::check_end(store.clone()).await;
    // The leases are those of any store.
    keylane_leases::conformance::check(store).await;
}
