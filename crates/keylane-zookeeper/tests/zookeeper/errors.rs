//! What errors say.

use bytes::Bytes;
use keylane_leases::store::LeaseStore;
use keylane_zookeeper::{ZooKeeper, ZooKeeperLeases};

use crate::support::{Process, TICK, new_root, shared};

/// The nodes of a store belong to another user.
#[tokio::test]
async fn an_error_of_a_call_names_the_servers_and_what_to_set() {
    let (server, root) = (shared().await, new_root());
    let of_user = ZooKeeper::at(server.hosts()).unwrap().server_tick(TICK);
    let of_user = of_user.digest("orders", "canary").unwrap();
    let leases = ZooKeeperLeases::open(&of_user, root.clone()).unwrap();
    assert_eq!(leases.held_by(&Bytes::from("key")).await, Ok(None));
    let stranger = Process::new(&server.hosts(), &root);
    let error = stranger.store.held_by(&Bytes::from("key")).await;
    let text = error.unwrap_err().to_string();
    let named = format!("ZooKeeper at {}: ", server.hosts());
    assert!(text.contains(&named), "{text}");
    assert!(text.contains("let the user of `digest` write"), "{text}");
    assert!(!text.contains("canary"), "{text}");
}
