//! Writes that etcd itself refuses after the lease has ended, and processes that are paused past
//! their leases.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use keylane_etcd::etcd_client::{Client, Compare, CompareOp, GetOptions, Txn, TxnOp};
use keylane_etcd::{EtcdLeases, FenceError};
use keylane_leases::error::LeaseLost;
use keylane_leases::store::LeaseStore;
use keylane_leases::{Leases, Owner, Settings, Token};
use keylane_testkit::{Evidence, History, Rule};
use testkit_processes::{Process, end_with_parent, pause_in_turn};
use testkit_servers::EtcdKind;

use crate::support::{LONG, client, each_kind, granted, new_namespace, own, shared, store};

const TTL: Duration = Duration::from_secs(2);

const KEYS: usize = 4;

/// What a worker prints when it has acquired the key and written.
const HOLDS: &str = "holds";

fn put(key: &str, value: &str) -> Txn {
    Txn::new().and_then([TxnOp::put(key, value, None)])
}

#[tokio::test]
async fn etcd_refuses_the_writes_of_an_older_term() {
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let (store, mut operator) = (store(&server.url(), &namespace), client(server).await);
        let (first, second) = (Owner::random(), Owner::random());
        let target = format!("{namespace}-target");
        let old = granted(&store, &first, "key", LONG).await;
        let old_fence = store.fence("key", old.token);
        old_fence.commit(put(&target, "old")).await.unwrap();
        // Renewals change the key, and not the term.
        let mut shorter = old.clone();
        shorter.ttl = LONG / 2;
        assert_eq!(store.renew(&first, &[shorter]).await, Ok(vec![true]));
        old_fence.commit(put(&target, "old again")).await.unwrap();

        store
            .release(&first, std::slice::from_ref(&old))
            .await
            .unwrap();
        let stale = old_fence.commit(put(&target, "free")).await;
        let Err(FenceError::Fenced { token }) = stale else {
            panic!("{kind}: {stale:?}");
        };
        assert_eq!(token, old.token);

        let new = granted(&store, &second, "key", LONG).await;
        let new_fence = store.fence("key", new.token);
        let stale = old_fence.commit(put(&target, "stale")).await;
        assert!(matches!(stale, Err(FenceError::Fenced { .. })), "{stale:?}");
        new_fence.commit(put(&target, "new")).await.unwrap();
        for wrong in [Token(0), Token(new.token.0 + 1), Token(u64::MAX)] {
            let stale = store.fence("key", wrong).commit(put(&target, "x")).await;
            assert!(matches!(stale, Err(FenceError::Fenced { .. })), "{stale:?}");
        }
        let found = operator.get(target, None).await.unwrap();
        assert_eq!(found.kvs()[0].value(), b"new", "{kind}");
    })
    .await;
}

#[tokio::test]
async fn a_fenced_write_has_its_own_comparisons() {
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let (store, owner) = (store(&server.url(), &namespace), Owner::random());
        let target = format!("{namespace}-target");
        let claim = granted(&store, &owner, "key", LONG).await;
        let fence = store.fence("key", claim.token);
        let once = || {
            Txn::new()
                .when([Compare::create_revision(&*target, CompareOp::Equal, 0)])
                .and_then([TxnOp::put(&*target, "1", None)])
                .or_else([TxnOp::get(&*target, None)])
        };
        assert!(fence.commit(once()).await.unwrap().succeeded(), "{kind}");
        let answer = fence.commit(once()).await.unwrap();
        assert!(!answer.succeeded() && answer.op_responses().len() == 1);
    })
    .await;
}

#[tokio::test]
async fn a_fence_of_an_ended_lease_is_refused_whatever_ended_it() {
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let (store, mut operator) = (store(&server.url(), &namespace), client(server).await);
        let leases = Leases::open(store.clone()).unwrap();
        let lease = leases.acquire("key", Duration::from_secs(6)).await.unwrap();
        let fence = store.fence(lease.key(), lease.token());
        fence.commit(put("any", "1")).await.unwrap();
        let name = format!("{namespace}/keylane/leases/kkey");
        let found = operator.get(name, None).await.unwrap();
        operator.lease_revoke(found.kvs()[0].lease()).await.unwrap();
        // Before the holder knows it.
        let stale = fence.commit(put("any", "2")).await;
        assert!(
            matches!(stale, Err(FenceError::Fenced { .. })),
            "{kind}: {stale:?}"
        );
        assert_eq!(lease.lost().await, LeaseLost::TakenOver);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_refuses_what_a_paused_holder_writes() {
    each_kind(|kind| paused(kind, true)).await;
}

/// The same test without the comparison: the same pauses, and stale writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_comparison_a_paused_holder_overwrites() {
    paused(EtcdKind::Etcd34, false).await;
}

/// Two processes for each of some keys. The holder of the key is paused until the other one has it,
/// and then goes on with its interrupted work.
async fn paused(kind: EtcdKind, is_fenced: bool) {
    let server = own(kind).await;
    let keys = (0..KEYS).map(|key| {
        let workers = [(); 2].map(|()| worker(&server, key, is_fenced));
        async move {
            let mut workers = workers;
            pause_in_turn(&mut workers, HOLDS, 5).await
        }
    });
    let longest = join_all(keys).await.into_iter().max().unwrap();
    let (history, mut writes) = (History::new(), 0);
    let mut operator = client(&server).await;
    for key in 0..KEYS {
        for token in writes_of(&mut operator, key).await {
            history.sink_write(key as u64, token, true);
            writes += 1;
        }
    }
    println!("{kind}: {writes} writes, taken over within {longest:?}");
    assert!(writes > 0);
    match history.check(&Evidence::new()) {
        Ok(verdict) => {
            verdict.assert_judged(&[Rule::Fencing]);
            assert!(is_fenced, "there are no stale writes");
        }
        Err(violations) => {
            println!("{} stale writes", violations.len());
            assert!(!is_fenced, "{violations:?}");
        }
    }
}

/// The tokens of all writes to a key, in the order in which etcd has executed them.
async fn writes_of(operator: &mut Client, key: usize) -> Vec<u64> {
    let all = GetOptions::new().with_prefix();
    let found = operator.get(format!("writes-{key}/"), Some(all)).await;
    let mut writes = Vec::from_iter(found.unwrap().kvs().iter().map(|write| {
        let token = write.value_str().unwrap().parse().unwrap();
        (write.create_revision(), token)
    }));
    writes.sort_unstable();
    writes.into_iter().map(|(_, token)| token).collect()
}

/// A process that waits for a key, writes under its lease until it is lost, and waits again.
fn worker(server: &testkit_servers::Etcd, key: usize, is_fenced: bool) -> Process {
    let fenced = if is_fenced { "fenced" } else { "" };
    let variables = [
        ("KEYLANE_LEASES_CHILD", server.url()),
        ("KEYLANE_LEASES_KEY", key.to_string()),
        ("KEYLANE_LEASES_FENCED", fenced.to_owned()),
    ];
    Process::start("fencing::child", variables)
}

/// A worker. It does nothing unless the tests above start it.
#[test]
fn child() {
    let Ok(url) = std::env::var("KEYLANE_LEASES_CHILD") else {
        return;
    };
    let variable = |name| std::env::var(name).unwrap();
    let key = variable("KEYLANE_LEASES_KEY");
    let is_fenced = !variable("KEYLANE_LEASES_FENCED").is_empty();
    end_with_parent();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(work(&url, &key, is_fenced));
}

async fn work(url: &str, key: &str, is_fenced: bool) {
    let settings = Settings::new().look_again(Duration::from_millis(100));
    let store = store(url, "leases");
    let leases = Leases::open_with(store.clone(), settings).unwrap();
    let client = Client::connect([url], None).await.unwrap();
    loop {
        let Ok(lease) = leases.acquire(format!("key {key}"), TTL).await else {
            continue;
        };
        let mut writes = 0;
        loop {
            let write = write(&store, &client, key, lease.token(), is_fenced);
            match lease.run(write).await {
                Ok(true) => {}
                Ok(false) | Err(_) => break,
            }
            writes += 1;
            // Not before its first write: the writes of a paused holder are stale then.
            if writes == 1 {
                println!("\n{HOLDS}");
            }
        }
    }
}

/// Works for a while, as a handler that computes, and then writes. A pause mostly falls between the
/// two. The write is a task of its own: it is sent although the lease has ended, as one that was
/// sent just before. Returns whether it was written.
async fn write(
    store: &Arc<EtcdLeases>,
    client: &Client,
    key: &str,
    token: Token,
    is_fenced: bool,
) -> bool {
    std::thread::sleep(Duration::from_millis(20));
    let number = Owner::random();
    let (name, value) = (format!("writes-{key}/{number}"), token.to_string());
    let fence = store.fence(format!("key {key}"), token);
    let mut client = client.clone();
    let writes = tokio::spawn(async move {
        if !is_fenced {
            return client.put(name, value, None).await.is_ok();
        }
        match fence.commit(put(&name, &value)).await {
            Ok(_) => true,
            Err(FenceError::Fenced { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    });
    writes.await.unwrap()
}
