//! The conformance suite of stores, and thousands of leases.

use std::sync::Arc;
use std::time::Duration;

use keylane_etcd::{Etcd, EtcdElections, EtcdLeases};
use keylane_leases::conformance;
use testkit_servers::EtcdKind;

use crate::support::{SHORTEST, each_kind, leases, new_namespace, shared, store};

/// As they are, with transactions as small as they can be, and as the leases of elections. All at
/// the same time: the cases wait for most of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_conform() {
    each_kind(async |kind: EtcdKind| {
        let server = testkit_servers::Etcd::builder(kind).argument("--max-txn-ops=3");
        let server = server.start().await.unwrap();
        let etcd = Etcd::at([server.url()]).unwrap();
        let few = EtcdLeases::open(&etcd, "few").unwrap();
        let few = few.operations(3).unwrap();
        let server = shared(kind).await;
        let etcd = Etcd::at([server.url()]).unwrap();
        let elections = EtcdElections::open(&etcd, &new_namespace()).unwrap();
        let plain = store(&server.url(), &new_namespace());
        tokio::join!(
            conformance::check_from(plain, SHORTEST),
            conformance::check_from(Arc::new(few), SHORTEST),
            conformance::check_from(Arc::new(elections), SHORTEST),
        );
    })
    .await;
}

#[tokio::test]
async fn thousands_are_renewed() {
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let [here, there] = [(); 2].map(|()| leases(&server.url(), &namespace));
        conformance::check_many(&here, &there, 2_000, Duration::from_secs(6)).await;
    })
    .await;
}
