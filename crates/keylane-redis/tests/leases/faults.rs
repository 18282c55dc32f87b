//! Connections that are cut, reset, slow or killed, and calls that are dropped halfway.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::future::join_all;
use keylane_leases::Owner;
use keylane_leases::error::LeaseLost;
use keylane_leases::store::{Answer, Claim, LeaseStore, Wish};
use keylane_redis::{Redis, RedisLeases};
use keylane_testkit::scenario::until_async as until;
use testkit_servers::RedisKind;
use testkit_servers::proxy::Direction;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    ByProxy, answered, each_kind, execute, leases, new_namespace, own, proxy, shared, store,
};

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

async fn cut_off(kind: RedisKind, cut: Cut) {
    let place = ByProxy::start(kind).await;
    let (proxy, here, there) = (&place.proxy, &place.here, &place.there);
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
    let taken = timeout(Duration::from_secs(30), taken).await;
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
async fn connections_that_are_reset_cost_no_lease() {
    each_kind(async |kind| {
        let place = ByProxy::start(kind).await;
        let lease = place.here.acquire("key", TTL).await.unwrap();
        for _ in 0..4 {
            place.proxy.reset();
            sleep(TTL / 2).await;
            lease.check().unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_slow_network_costs_no_lease() {
    each_kind(async |kind| {
        let place = ByProxy::start(kind).await;
        for direction in [Direction::ToServer, Direction::ToClient] {
            place.proxy.delay(direction, Duration::from_millis(60));
        }
        let lease = place.here.acquire("key", TTL).await.unwrap();
        let ran = lease.run(sleep(TTL * 2)).await;
        assert_eq!(ran, Ok(()), "{kind}");
    })
    .await;
}

/// Connections are killed at random while 8 tasks acquire and release as fast as they can, two
/// tasks for each key. No lease is lost, and no key has two holders.
#[tokio::test]
async fn connections_that_are_killed_cost_no_lease() {
    for kind in RedisKind::ALL {
        let server = own(kind).await;
        let all = [(); 2].map(|()| leases(&server.url(), "leases"));
        let held = all[0].acquire("held", TTL).await.unwrap();
        let holders = Arc::new([const { AtomicUsize::new(0) }; 4]);
        let mut workers = tokio::task::JoinSet::new();
        for n in 0..8 {
            let (leases, holders) = (all[n % 2].clone(), Arc::clone(&holders));
            workers.spawn(async move {
                let (mut grants, key) = (0, n / 2);
                loop {
                    let call = || leases.acquire(format!("key-{key}"), TTL);
                    let lease = answered(call).await.unwrap();
                    let before = holders[key].fetch_add(1, Ordering::SeqCst);
                    assert_eq!(before, 0, "two holders");
                    tokio::task::yield_now().await;
                    holders[key].fetch_sub(1, Ordering::SeqCst);
                    lease.release().await;
                    grants += 1;
                    if grants == 20 {
                        return;
                    }
                }
            });
        }
        let mut kills = 0;
        while !workers.is_empty() {
            let pause = Duration::from_millis(5 + 17 * kills % 40);
            tokio::select! {
                Some(done) = workers.join_next() => done.unwrap(),
                () = sleep(pause) => {
                    execute(&server, "CLIENT KILL TYPE normal SKIPME yes").await;
                    kills += 1;
                }
            }
            held.check().unwrap();
        }
        println!("{kind}: {kills} times all connections");
        assert!(kills > 3, "{kind}");
    }
}

/// A server that was restarted has forgotten all scripts, and so has one after `SCRIPT FLUSH`.
#[tokio::test]
async fn scripts_that_are_forgotten_cost_nothing() {
    for kind in RedisKind::ALL {
        let server = own(kind).await;
        let (store, owner) = (store(&server.url(), "leases"), Owner::random());
        let mut last = None;
        for round in 0..10 {
            execute(&server, "SCRIPT FLUSH").await;
            let wishes = [Wish::new("key", TTL)];
            let answer = store.acquire(&owner, &wishes).await.unwrap()[0];
            let Answer::Granted(token) = answer else {
                panic!("{answer:?}");
            };
            assert!(Some(token) > last);
            last = Some(token);
            let claims = [Claim::new("key", token, TTL)];
            execute(&server, "SCRIPT FLUSH").await;
            assert_eq!(store.renew(&owner, &claims).await, Ok(vec![true]));
            if round % 2 == 0 {
                execute(&server, "SCRIPT FLUSH").await;
                store.release(&owner, &claims).await.unwrap();
                assert_eq!(store.renew(&owner, &claims).await, Ok(vec![false]));
            }
        }
    }
}

/// A call that is dropped halfway disturbs no other one: each gets its own answers.
#[tokio::test]
async fn calls_that_are_dropped_do_no_harm() {
    for kind in RedisKind::ALL {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let store = store(&server.url(), &namespace);
        let (owner, other) = (Owner::random(), Owner::random());
        let dropped = Vec::from_iter((0..20).map(|n| Wish::new(format!("dropped-{n}"), TTL)));
        for round in 0..20 {
            for polls in 1.. {
                if polled(polls, store.acquire(&owner, &dropped)).await {
                    break;
                }
                // It shares the connection, and has several answers of different kinds.
                let key = format!("key-{round}-{polls}");
                let wishes = [Wish::new(key.clone(), TTL), Wish::new("dropped-7", TTL)];
                let answers = store.acquire(&other, &wishes).await.unwrap();
                let [Answer::Granted(token), second] = answers[..] else {
                    panic!("{answers:?}");
                };
                let claims = [Claim::new(key, token, TTL)];
                assert_eq!(store.renew(&other, &claims).await, Ok(vec![true]));
                if let Answer::Granted(token) = second {
                    let claims = [Claim::new("dropped-7", token, TTL)];
                    store.release(&other, &claims).await.unwrap();
                }
            }
        }
    }
}

/// Polls a call this many times, and drops it. Returns whether it has ended.
async fn polled<T, E: std::fmt::Debug>(
    mut times: usize,
    call: impl Future<Output = Result<T, E>>,
) -> bool {
    let mut call = std::pin::pin!(call);
    std::future::poll_fn(|cx| {
        times -= 1;
        match call.as_mut().poll(cx) {
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
    let server = first.block_on(own(RedisKind::Redis7));
    let (store, owner) = (store(&server.url(), "runtimes"), Owner::random());
    let mut still = vec![first];
    for number in 0..12 {
        let runtime = runtime();
        let wish = Wish::new(number.to_string(), TTL);
        let answers = runtime.block_on(store.acquire(&owner, &[wish]));
        let answers = answers.unwrap_or_else(|error| panic!("{number}: {error}"));
        assert!(matches!(answers[..], [Answer::Granted(_)]), "{answers:?}");
        if number % 3 == 0 {
            still.push(runtime);
        }
    }
}

/// Each call connects again by itself.
#[tokio::test]
async fn connections_that_are_lost_while_idle_cost_no_call() {
    each_kind(async |kind| {
        let server = own(kind).await;
        execute(&server, "CONFIG SET timeout 1").await;
        let proxy = proxy(server.port()).await;
        let redis = Redis::at(&format!("redis://127.0.0.1:{}/", proxy.port())).unwrap();
        let redis = redis.response_timeout(Duration::from_secs(5));
        let store = RedisLeases::open(&redis, "idle").unwrap();
        let owner = Owner::random();
        let granted = async |key: &'static str| {
            let answers = store.acquire(&owner, &[Wish::new(key, TTL)]).await;
            let answers = answers.unwrap_or_else(|error| panic!("{kind}, {key}: {error}"));
            assert!(matches!(answers[..], [Answer::Granted(_)]), "{answers:?}");
        };
        granted("first").await;
        until("the server has closed it", async || {
            proxy.traffic().open == 0
        })
        .await;
        granted("closed").await;
        proxy.reset();
        granted("reset").await;
        sleep(Duration::from_millis(200)).await;
        proxy.forget();
        granted("forgotten").await;
    })
    .await;
}
