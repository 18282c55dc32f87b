//! Servers that are killed and paused, connections that are cut, silent and slow, and calls that
//! are dropped halfway.

use std::future::Future;
use std::task::Poll;
use std::time::Duration;

use futures::future::join_all;
use keylane_leases::Owner;
use keylane_leases::error::LeaseLost;
use keylane_leases::store::{Answer, Claim, LeaseStore, Wish};
use keylane_testkit::scenario::until_async as until;
use testkit_servers::EtcdKind;
use testkit_servers::proxy::Direction;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    LONG, SHORTEST, acquire, answered, by, client, each_kind, granted, kinds, leases,
    new_namespace, own, renew, shared, store, token_of,
};

/// Machines stand still for a second or two, and a lease ends here after nine tenths of it.
const TTL: Duration = Duration::from_secs(6);

#[derive(Clone, Copy, Debug)]
enum Cut {
    Both,
    ToServer,
    ToClient,
}

#[tokio::test]
async fn a_holder_that_is_cut_off_knows_it_before_another_can_have_the_key() {
    let cuts = [Cut::Both, Cut::ToServer, Cut::ToClient];
    each_kind(|kind| join_all(cuts.map(|cut| cut_off(kind, cut)))).await;
}

async fn cut_off(kind: EtcdKind, cut: Cut) {
    let (server, namespace) = (shared(kind).await, new_namespace());
    let proxy = server.proxy().await.unwrap();
    let here = leases(&by(&proxy), &namespace);
    let there = leases(&server.url(), &namespace);
    let lease = here.acquire("key", TTL).await.unwrap();
    sleep(TTL).await;
    lease.check().unwrap();
    match cut {
        Cut::Both => proxy.cut(),
        Cut::ToServer => proxy.cut_to_server(),
        Cut::ToClient => proxy.cut_to_client(),
    }
    let taken = tokio::spawn({
        let there = there.clone();
        async move {
            let lease = there.acquire("key", TTL).await.unwrap();
            (Instant::now(), lease)
        }
    });
    let lost = lease.lost().await;
    let lost_at = Instant::now();
    assert_eq!(lost, LeaseLost::RanOut, "{kind}, {cut:?}");
    let taken = timeout(Duration::from_secs(60), taken).await;
    let (taken_at, taken) = taken.unwrap().unwrap();
    assert!(lost_at < taken_at, "{kind}, {cut:?}");
    assert!(taken.token() > lease.token());
    // When all connections are well again, so is the one that was cut off.
    proxy.heal();
    drop(taken);
    let healed = Instant::now();
    let again = answered(|| here.acquire("key", TTL)).await.unwrap();
    println!(
        "{kind}, {cut:?}: acquired again after {:?}",
        healed.elapsed()
    );
    again.check().unwrap();
}

#[tokio::test]
async fn connections_that_are_reset_or_slow_cost_no_lease() {
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let proxy = server.proxy().await.unwrap();
        let here = leases(&by(&proxy), &namespace);
        let lease = here.acquire("key", TTL).await.unwrap();
        for _ in 0..4 {
            proxy.reset();
            sleep(TTL / 2).await;
            lease.check().unwrap();
        }
        for direction in [Direction::ToServer, Direction::ToClient] {
            proxy.delay(direction, Duration::from_millis(40));
        }
        assert_eq!(lease.run(sleep(TTL * 2)).await, Ok(()), "{kind}");
        assert!(here.try_acquire("another", TTL).await.is_ok());
    })
    .await;
}

/// A network that has forgotten its connections says nothing, for ever. The call that finds out is
/// given up, and the next one has a new connection.
#[tokio::test]
async fn a_connection_that_is_silent_for_good_is_replaced() {
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let proxy = server.proxy().await.unwrap();
        let here = leases(&by(&proxy), &namespace);
        let ttl = Duration::from_secs(15);
        let lease = here.acquire("key", ttl).await.unwrap();
        for _ in 0..2 {
            proxy.forget();
            assert_eq!(lease.run(sleep(ttl)).await, Ok(()), "{kind}");
        }
    })
    .await;
}

/// A server that is down for less than the lease costs nothing. The key stays its holder's.
#[tokio::test]
async fn a_server_that_is_killed_and_comes_back_costs_no_lease() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let ttl = Duration::from_secs(120);
        let here = leases(&server.url(), "leases");
        let lease = here.acquire("key", ttl).await.unwrap();
        let before = lease.token();
        for _ in 0..3 {
            server.kill().await.unwrap();
            server.start_again().await.unwrap();
            lease.check().unwrap();
        }
        let there = leases(&server.url(), "leases");
        let other = answered(|| there.try_acquire("another", ttl))
            .await
            .unwrap();
        assert!(other.token() > before, "{kind}");
        assert!(there.try_acquire("key", ttl).await.is_err(), "{kind}");
        // Through the new connection.
        let before = lease.held_until();
        until("it is renewed", async || lease.held_until() > before).await;
        lease.check().unwrap();
        lease.release().await;
        let taken = there.try_acquire("key", ttl).await.unwrap();
        assert!(taken.token() > other.token(), "{kind}");
    })
    .await;
}

/// The holder counts on its own, and does not wait for a server that stands still.
#[tokio::test]
async fn a_server_that_is_paused_for_longer_than_the_lease_gives_no_second_holder() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let here = leases(&server.url(), "leases");
        let there = leases(&server.url(), "leases");
        let lease = here.acquire("key", TTL).await.unwrap();
        server.pause().await.unwrap();
        assert_eq!(lease.lost().await, LeaseLost::RanOut, "{kind}");
        let asks = async {
            let mut asked = 0;
            while there.try_acquire("key", TTL).await.is_err() {
                asked += 1;
                if asked == 1 {
                    server.resume().await.unwrap();
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(60), asks).await.unwrap();
        let again = answered(|| here.acquire("free", TTL)).await.unwrap();
        assert!(again.token() > lease.token(), "{kind}");
    })
    .await;
}

/// A call that is dropped halfway leaves no key behind for longer than its time to live, although
/// its owner keeps others.
#[tokio::test]
async fn calls_that_are_dropped_leave_no_key_behind() {
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let store = store(&server.url(), &namespace);
        let (owner, other) = (Owner::random(), Owner::random());
        let kept = granted(&store, &owner, "kept", TTL).await;
        let mut count = 0;
        for polls in 1.. {
            let name = format!("dropped-{polls}");
            let wishes = [Wish::new(name, TTL)];
            let mut call = store.acquire(&owner, &wishes);
            if polled(polls, &mut call).await {
                drop(call);
                // This one is known, and released.
                let claim = granted(&store, &owner, &format!("dropped-{polls}"), TTL).await;
                store.release(&owner, &[claim]).await.unwrap();
                break;
            }
            // What was sent is executed, and its answer is lost.
            sleep(Duration::from_millis(50)).await;
            drop(call);
            // The next call begins on a new connection.
            assert!(renew(&store, &owner, &kept).await);
            let claims = std::slice::from_ref(&kept);
            let mut call = store.renew(&owner, claims);
            let _ = polled(polls, &mut call).await;
            count += 1;
        }
        println!("{kind}: {count} calls were dropped");
        assert!(count > 2, "{kind}");
        let until = Instant::now() + TTL * 2 + Duration::from_secs(2);
        while Instant::now() < until {
            sleep(TTL / 4).await;
            assert!(renew(&store, &owner, &kept).await, "{kind}");
        }
        for polls in 1..=count {
            let name = format!("dropped-{polls}");
            let answer = acquire(&store, &other, &name, TTL).await;
            assert!(token_of(answer).is_some(), "{kind}: {name}: {answer:?}");
        }
        let answer = acquire(&store, &other, "kept", TTL).await;
        assert_eq!(token_of(answer), None, "{kind}");
    })
    .await;
}

/// Polls a future this many times at most. Returns whether it is ready.
async fn polled<T: std::fmt::Debug, E: std::fmt::Debug>(
    mut times: usize,
    call: &mut (impl Future<Output = Result<T, E>> + Unpin),
) -> bool {
    std::future::poll_fn(|cx| {
        times -= 1;
        match std::pin::Pin::new(&mut *call).poll(cx) {
            Poll::Ready(answer) => {
                answer.unwrap();
                Poll::Ready(true)
            }
            Poll::Pending if times == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Runtimes that have ended, and runtimes that stand still: each call has a connection that works.
#[test]
fn a_store_works_in_each_runtime() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let first = runtime();
    let server = first.block_on(own(EtcdKind::Etcd34));
    let (store, owner) = (store(&server.url(), "runtimes"), Owner::random());
    let mut still = vec![first];
    for number in 0..12 {
        let runtime = match number % 4 {
            3 => tokio::runtime::Runtime::new().unwrap(),
            _ => runtime(),
        };
        let key = number.to_string();
        let answer = runtime.block_on(acquire(&store, &owner, &key, LONG));
        assert!(token_of(answer).is_some(), "{answer:?}");
        if number % 3 == 0 {
            still.push(runtime);
        }
    }
}

/// Each call connects again by itself.
#[tokio::test]
async fn connections_that_are_lost_while_idle_cost_no_call() {
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let proxy = server.proxy().await.unwrap();
        let (store, owner) = (store(&by(&proxy), &namespace), Owner::random());
        for key in ["first", "second", "third"] {
            let claim = granted(&store, &owner, key, TTL).await;
            proxy.reset();
            until("it is closed", async || proxy.traffic().open == 0).await;
            assert!(renew(&store, &owner, &claim).await, "{kind}");
            proxy.reset();
            until("it is closed", async || proxy.traffic().open == 0).await;
            store.release(&owner, &[claim]).await.unwrap();
            proxy.reset();
        }
    })
    .await;
}

/// Only etcd's own lease carries a key: when that is gone, so is the key.
#[tokio::test]
async fn a_key_whose_lease_of_etcd_was_revoked_is_lost() {
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let here = leases(&server.url(), &namespace);
        let ttl = Duration::from_secs(6);
        let first = here.acquire("first", ttl).await.unwrap();
        let second = here.acquire("second", ttl).await.unwrap();
        let mut operator = client(server).await;
        let name = format!("{namespace}/keylane/leases/kfirst");
        let found = operator.get(name, None).await.unwrap();
        operator.lease_revoke(found.kvs()[0].lease()).await.unwrap();
        for lease in [&first, &second] {
            assert_eq!(lease.lost().await, LeaseLost::TakenOver, "{kind}");
        }
        let again = here.acquire("first", ttl).await.unwrap();
        assert!(again.token() > second.token(), "{kind}");
        assert_eq!(again.run(sleep(ttl)).await, Ok(()), "{kind}");
    })
    .await;
}

#[tokio::test]
async fn a_key_that_an_operator_has_deleted_is_lost_alone() {
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let here = leases(&server.url(), &namespace);
        let ttl = Duration::from_secs(6);
        let first = here.acquire("first", ttl).await.unwrap();
        let second = here.acquire("second", ttl).await.unwrap();
        let mut operator = client(server).await;
        let name = format!("{namespace}/keylane/leases/kfirst");
        operator.delete(name, None).await.unwrap();
        assert_eq!(first.lost().await, LeaseLost::TakenOver, "{kind}");
        assert_eq!(second.run(sleep(ttl)).await, Ok(()), "{kind}");
    })
    .await;
}

/// A process that has seen later data refuses earlier ones: tokens would repeat.
#[tokio::test]
async fn data_that_go_back_are_refused() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let (here, owner) = (store(&server.url(), "leases"), Owner::random());
        let before = granted(&here, &owner, "before", LONG).await;
        let saved = server.save().await.unwrap();
        let mut last = before.token;
        for number in 0..5 {
            let claim = granted(&here, &owner, &format!("after-{number}"), LONG).await;
            assert!(claim.token > last);
            last = claim.token;
        }
        server.put_back(&saved).await.unwrap();
        let error = here.renew(&owner, &[before]).await.unwrap_err();
        assert!(error.to_string().contains("went back"), "{kind}: {error}");
        let wish = [Wish::new("new", LONG)];
        let error = here.acquire(&owner, &wish).await.unwrap_err();
        assert!(error.to_string().contains("went back"), "{kind}: {error}");
        // A process that has seen nothing cannot know. This is what the documents warn of.
        let fresh = store(&server.url(), "leases");
        let repeated = granted(&fresh, &Owner::random(), "fresh", LONG).await;
        assert!(repeated.token <= last, "{kind}");
    })
    .await;
}

/// One lease of etcd for many keys, and none that stays.
#[tokio::test]
async fn an_owner_has_one_lease_of_etcd_for_each_time_to_live() {
    for kind in kinds() {
        let server = own(kind).await;
        let (store, owner) = (store(&server.url(), "leases"), Owner::random());
        let mut operator = client(&server).await;
        let mut claims: Vec<Claim> = Vec::new();
        for part in 0..5 {
            let names = (0..300).map(|number| format!("{part}/{number}"));
            let wishes = Vec::from_iter(names.map(|name| Wish::new(name, SHORTEST * 4)));
            let answers = store.acquire(&owner, &wishes).await.unwrap();
            claims.extend(wishes.iter().zip(answers).map(|(wish, answer)| {
                let Answer::Granted(token) = answer else {
                    panic!("{answer:?}")
                };
                Claim::new(wish.key.clone(), token, wish.ttl)
            }));
            assert!(
                store
                    .renew(&owner, &claims)
                    .await
                    .unwrap()
                    .iter()
                    .all(|held| *held)
            );
            assert_eq!(operator.leases().await.unwrap().leases().len(), 1, "{kind}");
        }
        store.release(&owner, &claims).await.unwrap();
        until("the lease ends by itself", async || {
            operator.leases().await.unwrap().leases().is_empty()
        })
        .await;
        let left = keylane_etcd::etcd_client::GetOptions::new().with_all_keys();
        assert_eq!(
            operator.get("", Some(left)).await.unwrap().count(),
            0,
            "{kind}"
        );
    }
}

/// A key that another program wrote, without a lease of etcd, is not ours to take.
#[tokio::test]
async fn a_key_that_another_program_wrote_is_taken() {
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let (store, owner) = (store(&server.url(), &namespace), Owner::random());
        let mut operator = client(server).await;
        let name = format!("{namespace}/keylane/leases/kforeign");
        operator.put(name.clone(), "x", None).await.unwrap();
        let answer = acquire(&store, &owner, "foreign", TTL).await;
        assert_eq!(token_of(answer), None, "{kind}");
        operator.delete(name, None).await.unwrap();
        let _ = granted(&store, &owner, "foreign", TTL).await;
    })
    .await;
}
