//! The conformance suite of stores, and thousands of leases.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{join_all, try_join_all};
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

/// Two owners, each with thousands of leases, for several times as long as one lasts.
#[tokio::test]
async fn thousands_are_renewed() {
    each_kind(renews_thousands).await;
}

async fn renews_thousands(kind: EtcdKind) {
    const EACH: u32 = 2_000;
    let ttl = Duration::from_secs(6);
    let (server, namespace) = (shared(kind).await, new_namespace());
    let owners = Vec::from_iter((0..2).map(|_| leases(&server.url(), &namespace)));
    let held = join_all(owners.iter().enumerate().map(|(at, leases)| {
        let keys = (0..EACH).map(move |n| format!("{at}/{n}"));
        try_join_all(keys.map(|key| leases.acquire(key, ttl)))
    }));
    let held: Vec<_> = held.await.into_iter().map(Result::unwrap).collect();
    for _ in 0..4 {
        tokio::time::sleep(ttl / 2).await;
        for lease in held.iter().flatten() {
            lease.check().unwrap();
        }
    }
    // All leases are taken for the other owner, and free when their holder has closed.
    let (here, there) = (&owners[0], &owners[1]);
    assert!(there.try_acquire("0/7", ttl).await.is_err());
    here.close().await;
    let keys = (0..EACH).map(|n| format!("0/{n}"));
    let taken = try_join_all(keys.map(|key| there.try_acquire(key, ttl)));
    assert_eq!(taken.await.unwrap().len(), EACH as usize);
    there.close().await;
}
