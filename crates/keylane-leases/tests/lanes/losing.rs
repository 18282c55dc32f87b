//! Leases that are lost, and stores that fail.

use std::time::Duration;

use futures::{FutureExt, StreamExt};
use keylane::error::ReceiptError;
use keylane::watching::{Event, LaneState};
use keylane_leases::store::{Claim, LeaseStore};
use tokio::time::{Instant, sleep, timeout};

use crate::rig::{Account, TTL, name, order, orders};
use crate::support::{Mood, Store, one, settle, two};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(20);

/// The store stops answering: what runs is dropped before another place can have the key, and runs
/// again under a higher token.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_ends_the_attempt_in_time() {
    for mood in [Mood::Hangs, Mood::Fails, Mood::Panics] {
        let (store, leases, other) = two();
        let account = Account::default();
        let here = orders("here", &leases, &account);
        let slow = here.submit(order(7, 1, LONG)).await.unwrap();
        settle().await;
        let since = Instant::now();
        store.is(mood);
        while account.running(7).is_some() {
            sleep(MS).await;
        }
        let lasted = since.elapsed();
        if mood == Mood::Hangs {
            // Done, and not answered: the store counts from the last renewal.
            assert!(store.memory.holder(&name(7)).is_some());
        }
        assert!(
            lasted >= TTL * 8 / 10 && lasted < TTL,
            "{mood:?}: {lasted:?}"
        );
        assert!(
            store.memory.holder(&name(7)).is_some(),
            "it ends here first"
        );
        assert_eq!(here.inspect(&7).unwrap().state, LaneState::Leasing);
        sleep(TTL * 3).await;
        assert_eq!(account.starts(7).len(), 1, "nothing starts without a lease");

        store.is(Mood::Well);
        let there = orders("there", &other, &account);
        let next = there.submit(order(7, 1, LONG)).await.unwrap();
        slow.await.unwrap();
        next.await.unwrap();
        account.judge();
        let starts = account.starts(7);
        assert_eq!(starts.len(), 3);
        assert!(starts[1].token > starts[0].token && starts[2].token > starts[1].token);
        assert!(starts.iter().all(|start| start.attempt == 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_taken_over_ends_the_attempt() {
    let (store, leases, other) = two();
    let account = Account::default();
    let here = orders("here", &leases, &account);
    let slow = here.submit(order(7, 1, LONG)).await.unwrap();
    settle().await;
    let (owner, token) = store.memory.holder(&name(7)).unwrap();
    let claim = Claim::new(name(7), token, TTL);
    store.memory.release(&owner, &[claim]).await.unwrap();
    let lease = other.acquire(name(7), TTL).await.unwrap();
    // The next renewal says so.
    sleep(TTL / 3 + 10 * MS).await;
    assert_eq!(account.running(7), None);
    assert_eq!(here.inspect(&7).unwrap().state, LaneState::Leasing);
    let between = lease.token().0;
    lease.release().await;
    assert!(slow.await.unwrap() > between);
    account.judge();
}

#[tokio::test(start_paused = true)]
async fn keys_wait_for_a_store_and_go_on_by_themselves() {
    let store = Store::new();
    let (leases, account) = (one(&store), Account::default());
    let here = orders("here", &leases, &account);
    let mut events = here.events();
    store.is(Mood::Fails);
    let mut receipts = Vec::new();
    for user in 0..50 {
        receipts.push(here.submit(order(user, 1, MS)).await.unwrap());
    }
    sleep(Duration::from_secs(25)).await;
    assert_eq!(here.stats().in_flight, 0);
    let mut told = 0;
    while let Some(Some(event)) = events.next().now_or_never() {
        assert!(matches!(event, Event::Unleased { .. }), "{event:?}");
        told += 1;
    }
    assert!((2..=3).contains(&told), "{told} in 25 seconds");
    store.is(Mood::Well);
    let back = Instant::now();
    for receipt in receipts {
        receipt.await.unwrap();
    }
    assert!(back.elapsed() < Duration::from_secs(3));
    let calls = store.asked.lock().unwrap().len();
    assert!(calls < 100, "{calls} calls: keys do not share them");
}

#[tokio::test(start_paused = true)]
async fn leases_are_closed_while_heads_wait_and_run() {
    let (_store, leases, other) = two();
    let account = Account::default();
    let _lease = other.acquire(name(8), TTL).await.unwrap();
    let here = orders("here", &leases, &account);
    let runs = here.submit(order(7, 1, LONG)).await.unwrap();
    let waits = here.submit(order(8, 1, MS)).await.unwrap();
    settle().await;
    assert_eq!(account.running(7), Some("here"));
    leases.close().await;
    settle().await;
    assert_eq!(account.running(7), None, "its lease has ended");
    let report = timeout(Duration::from_secs(5), here.drain().into_future()).await;
    assert_eq!(report.expect("it ends").handed_back, 2);
    for receipt in [runs, waits] {
        let answer = receipt.await;
        assert!(
            matches!(answer, Err(ReceiptError::HandedBack { .. })),
            "{answer:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_releases_all_that_is_held() {
    let (store, leases, other) = two();
    let account = Account::default();
    let _elsewhere = other.acquire(name(9), TTL).await.unwrap();
    let here = orders("here", &leases, &account);
    here.submit(order(7, 1, MS)).await.unwrap().await.unwrap();
    here.send(order(8, 1, LONG)).await.unwrap();
    here.send(order(9, 1, LONG)).await.unwrap();
    settle().await;
    let report = here.abort().await;
    assert_eq!((report.done, report.handed_back), (1, 2));
    settle().await;
    assert_eq!(store.memory.holder(&name(7)), None);
    assert_eq!(store.memory.holder(&name(8)), None);
    // The handle is still here, and the leases are open.
    drop(leases.acquire(name(8), TTL).await.unwrap());
}

/// The runtime of a dispatcher goes away, and that of its leases stays.
#[test]
fn a_runtime_that_is_dropped_leaves_no_lease() {
    let of = || tokio::runtime::Runtime::new().unwrap();
    let (keeps, runs) = (of(), of());
    let (store, leases) = keeps.block_on(async {
        let store = Store::new();
        (store.clone(), one(&store))
    });
    let account = Account::default();
    let here = runs.block_on(async {
        let here = orders("here", &leases, &account);
        here.send(order(7, 1, LONG)).await.unwrap();
        while account.running(7).is_none() {
            sleep(MS).await;
        }
        here
    });
    assert!(store.memory.holder(&name(7)).is_some());
    drop(runs);
    assert_eq!(account.running(7), None);
    keeps.block_on(async {
        while store.memory.holder(&name(7)).is_some() {
            sleep(MS).await;
        }
    });
    assert_eq!(here.stats().lanes, 0);
}

/// A call to the store is dropped at each of its steps, with the message that it was for.
#[tokio::test(start_paused = true)]
async fn a_message_that_goes_leaves_no_lease_whenever_it_goes() {
    for after in 0..40 {
        let store = Store::new();
        let (leases, account) = (one(&store), Account::default());
        store.is(if after % 2 == 0 {
            Mood::Delayed(5 * MS)
        } else {
            Mood::Late(5 * MS)
        });
        let here = orders("here", &leases, &account);
        let _receipt = here.submit(order(7, 1, MS)).await.unwrap();
        for _ in 0..after {
            tokio::task::yield_now().await;
        }
        sleep(MS * (after / 4)).await;
        here.lane(&7).purge();
        sleep(TTL).await;
        assert_eq!(store.memory.holder(&name(7)), None, "after {after}");
        assert_eq!(here.stats().lanes, 0);
    }
}
