//! Leases as their users see them: settings, runtimes, lanes, and what is left behind.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use keylane::{Context, Dispatcher};
use keylane_leader::ElectionStore;
use keylane_leases::store::{LeaseStore, Owner, Wish};
use keylane_leases::{Leases, Settings};
use keylane_testkit::scenario::until_async as until;
use keylane_zookeeper::{ZooKeeper, ZooKeeperLeases};
use tokio::time::timeout;
use zookeeper_client::{Acls, CreateMode, Error};

use crate::support::{
    LONG, PATIENCE, Process, TICK, TIMEOUT, TTL, client, new_root, shared, store,
};

#[tokio::test]
async fn a_lease_that_would_outlast_its_session_is_refused_with_what_to_set() {
    let server = shared().await;
    let zookeeper = ZooKeeper::at(server.hosts()).unwrap().server_tick(TICK);
    let zookeeper = zookeeper.session_timeout(TIMEOUT).unwrap();
    let longest = zookeeper.longest_ttl();
    assert_eq!(longest, Duration::from_millis(2_900));
    let store = ZooKeeperLeases::open(&zookeeper, new_root()).unwrap();
    let owner = Owner::random();
    // Nor does a candidate ask for more.
    assert_eq!(ElectionStore::longest_ttl(&store), longest);
    let ask = async |ttl| store.acquire(&owner, &[Wish::new("key", ttl)]).await;
    assert!(ask(longest).await.is_ok());
    let error = ask(longest + Duration::from_millis(1)).await.unwrap_err();
    assert!(error.to_string().contains("session_timeout"), "{error}");
}

#[tokio::test]
async fn what_is_dropped_leaves_nothing_and_frees_its_leases_at_once() {
    let server = shared().await;
    let (hosts, root) = (server.hosts(), new_root());
    let observer = client(&hosts).await;
    let here = store(&hosts, &root, LONG);
    let wishes = [Wish::new("key", LONG / 2)];
    here.acquire(&Owner::random(), &wishes).await.unwrap();
    let names = async |folder: &str| {
        let path = format!("{root}/{folder}");
        observer.sync(&path).await.unwrap();
        observer.list_children(&path).await.unwrap().len()
    };
    // The grant, and the node that shows that the session lives.
    assert_eq!((names("leases").await, names("grants").await), (1, 2));
    drop(here);
    let left = async || names("leases").await + names("grants").await;
    until("the session is closed", async || left().await == 0).await;
}

#[tokio::test]
async fn the_holder_is_seen_from_another_session_with_the_longest_time() {
    let server = shared().await;
    let (hosts, root) = (server.hosts(), new_root());
    let (here, there) = (store(&hosts, &root, LONG), store(&hosts, &root, LONG));
    let (owner, key) = (Owner::named("billing-3"), "key".into());
    here.acquire(&owner, &[Wish::new("key", TTL)])
        .await
        .unwrap();
    let mine = here.held_by(&key).await.unwrap().unwrap();
    assert!(mine.remaining.is_some_and(|time| time <= TTL), "{mine:?}");
    let seen = there.held_by(&key).await.unwrap().unwrap();
    assert_eq!((&seen.owner, seen.token), (&owner.to_string(), mine.token));
    // If its process is dead, the session is what has it.
    assert_eq!(seen.remaining, Some(LONG));
    assert_eq!(
        (mine.ends_with_session, seen.ends_with_session),
        (false, true)
    );

    // Nodes that others have made: who, as far as it is known.
    let observer = client(&hosts).await;
    let path = |name: &str| format!("{root}/leases/k{name}");
    for (name, mode) in [("a", CreateMode::Persistent), ("b", CreateMode::Ephemeral)] {
        let options = mode.with_acls(Acls::anyone_all());
        observer
            .create(&path(name), b"a note", &options)
            .await
            .unwrap();
    }
    let owner = async |name: &str| {
        let holder = here.held_by(&name.to_owned().into()).await.unwrap();
        let holder = holder.unwrap();
        assert_eq!(holder.remaining, None);
        assert_eq!(holder.ends_with_session, name == "b");
        holder.owner
    };
    assert_eq!(owner("a").await, "a node without a session");
    assert!(owner("b").await.starts_with("session 0x"));
}

/// A call that is dropped before its answer: the lease is not held for as long as the session.
#[tokio::test]
async fn a_lease_whose_answer_was_dropped_runs_out() {
    let server = shared().await;
    let (hosts, root) = (server.hosts(), new_root());
    let (here, there) = (store(&hosts, &root, LONG), Process::new(&hosts, &root));
    let observer = client(&hosts).await;
    let owner = Owner::random();
    here.acquire(&owner, &[Wish::new("first", TTL)])
        .await
        .unwrap();
    let wishes = [Wish::new("key", Duration::from_secs(1))];
    let mut asks = here.acquire(&owner, &wishes);
    // The request is sent by the first poll.
    assert!(futures::poll!(&mut asks).is_pending());
    drop(asks);
    let path = format!("{root}/leases/kkey");
    until("the lease is granted", async || {
        observer.check_stat(&path).await.unwrap().is_some()
    })
    .await;
    assert!(there.is_taken("key").await);
    there.granted_at_last("key").await;
}

/// Each call comes from a runtime of its own, and the first of them ends.
#[test]
fn a_store_serves_several_runtimes() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let servers = runtime();
    let hosts = servers.block_on(async { shared().await.hosts() });
    let root = new_root();
    let here = Process::new(&hosts, &root);
    let token = runtime().block_on(here.granted("key"));
    // The runtime of the first call is gone.
    assert_eq!(runtime().block_on(here.renew("key", token)), Some(true));
    std::thread::scope(|scope| {
        for n in 0..4 {
            let here = &here;
            scope.spawn(move || {
                let key = format!("key-{n}");
                let token = runtime().block_on(here.granted(&key));
                runtime().block_on(here.release(&key, token));
            });
        }
    });
    assert_eq!(runtime().block_on(here.renew("key", token)), Some(true));
}

#[tokio::test]
async fn leases_are_kept_and_handed_on() {
    let server = shared().await;
    let (hosts, root) = (server.hosts(), new_root());
    // It must outlast a machine that stands still for a second or two.
    let ttl = TTL * 3;
    let open = || {
        let store = store(&hosts, &root, TIMEOUT * 3);
        Leases::open_with(store, Settings::new()).unwrap()
    };
    let (here, there) = (open(), open());
    let lease = here.acquire("key", ttl).await.unwrap();
    tokio::time::sleep(ttl * 2).await;
    lease.check().unwrap();
    assert!(there.try_acquire("key", ttl).await.is_err());
    let first = lease.token();
    lease.release().await;
    let next = timeout(PATIENCE, there.acquire("key", ttl)).await.unwrap();
    assert!(next.unwrap().token() > first);
}

/// The lanes of two dispatchers are exclusive.
#[tokio::test]
async fn lanes_are_leased() {
    let server = shared().await;
    let (hosts, root) = (server.hosts(), new_root());
    let running = Arc::new(AtomicUsize::new(0));
    let orders = || {
        let leases = Leases::open(store(&hosts, &root, TIMEOUT)).unwrap();
        let lanes = leases.lanes(TTL, |user: &u64| user.to_be_bytes()).unwrap();
        let running = Arc::clone(&running);
        Dispatcher::builder(|user: &u64| *user)
            .leased_by(lanes.linger(Duration::ZERO))
            .spawn(move |context: Context<u64>, _: u64| {
                let running = Arc::clone(&running);
                async move {
                    let before = running.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    Ok::<_, std::io::Error>((before, context.lease_token()))
                }
            })
            .unwrap()
    };
    let (here, there) = (orders(), orders());
    let mut receipts = Vec::new();
    for _ in 0..10 {
        receipts.push(here.submit(7).await.unwrap());
        receipts.push(there.submit(7).await.unwrap());
    }
    let mut tokens = HashSet::new();
    for receipt in receipts {
        let (before, token) = receipt.await.unwrap();
        assert_eq!(before, 0, "two at once");
        tokens.insert(token.expect("it has a lease"));
    }
    assert!(tokens.len() > 1, "both have had the lease");
    tokio::join!(here.drain(), there.drain());
}

/// An operator removes the nodes of a lease: its holder learns of it, and removes nothing of the
/// next one.
#[tokio::test]
async fn a_lease_that_an_operator_has_removed_is_lost() {
    let server = shared().await;
    let (hosts, root) = (server.hosts(), new_root());
    let (here, there) = (Process::new(&hosts, &root), Process::new(&hosts, &root));
    let operator = client(&hosts).await;
    let token = here.granted("key").await;
    let guard = here.store.guard("key", token).await.unwrap();
    operator.delete(&guard, None).await.unwrap();
    operator
        .delete(&format!("{root}/leases/kkey"), None)
        .await
        .unwrap();
    let next = there.granted("key").await;
    assert!(next > token);
    here.release("key", token).await;
    assert_eq!(here.renew("key", token).await, Some(false));
    assert_eq!(there.renew("key", next).await, Some(true));
    // Also the folders: the next call makes them anew.
    there.release("key", next).await;
    drop(here);
    let grants = format!("{root}/grants");
    until("the folder is removed", async || {
        for name in operator.list_children(&grants).await.unwrap_or_default() {
            let _ = operator.delete(&format!("{grants}/{name}"), None).await;
        }
        operator.delete(&grants, None).await == Err(Error::NoNode)
    })
    .await;
    assert_eq!(there.ask("key").await, None);
    assert!(there.granted("key").await > next);
}
