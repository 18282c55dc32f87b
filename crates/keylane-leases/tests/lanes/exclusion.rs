//! One place at a time has a key, and each has its turn.

use std::time::Duration;

use keylane::watching::LaneState;
use keylane_leases::Settings;
use keylane_leases::error::AcquireError;
use tokio::time::{sleep, timeout};

use crate::rig::{Account, LINGER, TTL, name, order, orders, orders_lingering};
use crate::support::{Mood, Store, one_with, settle, two};

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn two_places_never_have_a_key_at_once() {
    let store = Store::new();
    let settings = || Settings::new().look_again(20 * MS);
    let leases = [one_with(&store, settings()), one_with(&store, settings())];
    let account = Account::default();
    let here = orders_lingering("here", &leases[0], &account, Duration::ZERO);
    let there = orders_lingering("there", &leases[1], &account, Duration::ZERO);
    let mut tasks = Vec::new();
    for (place, apart) in [(here.clone(), 7), (there.clone(), 11)] {
        tasks.push(tokio::spawn(async move {
            for number in 0..60 {
                let takes = MS * (number % 4) as u32;
                for user in 0..5 {
                    place.send(order(user, number, takes)).await.unwrap();
                }
                // Now and then the key is left.
                let pause = if number % 10 == 9 { 100 } else { apart };
                sleep(MS * pause).await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let done = [here.drain().await.done, there.drain().await.done];
    assert_eq!(done, [300, 300]);
    account.judge();
    for user in 0..5 {
        let starts = account.starts(user);
        let turns = starts.windows(2).filter(|two| two[0].place != two[1].place);
        assert!(turns.count() >= 6, "the key has not gone back and forth");
        assert_eq!(store.memory.holder(&name(user)), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_waits_names_the_other_holder() {
    let (store, leases, others) = two();
    let account = Account::default();
    let (here, there) = (
        orders("here", &leases, &account),
        orders("there", &others, &account),
    );
    there.send(order(7, 1, 60 * TTL)).await.unwrap();
    settle().await;
    here.send(order(7, 1, MS)).await.unwrap();
    settle().await;
    let lane = here.lane(&7);
    let state = lane.inspect().map(|view| view.state);
    assert_eq!(state, Some(LaneState::Leasing));
    let holder = lane.lease_holder().await.unwrap().expect("it is held");
    let (owner, token) = store.memory.holder(&name(7)).unwrap();
    assert_eq!((&*holder.owner, holder.token), (owner.as_str(), token.0));
    assert_eq!(owner, *others.owner());
    assert!(holder.remaining.is_some_and(|time| time <= TTL));
    // Whether or not the key has messages here.
    let same = there.lane(&7).lease_holder().await.unwrap();
    assert_eq!(same.map(|same| same.token), Some(token.0));
    assert_eq!(here.lane(&8).lease_holder().await.unwrap(), None);
    store.is(Mood::Fails);
    let failed = lane.lease_holder().await.unwrap_err();
    assert_eq!(failed.to_string(), "the lease store failed: told to fail");
}

#[tokio::test(start_paused = true)]
async fn an_idle_key_has_no_lease() {
    let (store, leases, other) = two();
    let account = Account::default();
    let here = orders("here", &leases, &account);
    here.submit(order(7, 1, MS)).await.unwrap().await.unwrap();
    let (owner, _) = store.memory.holder(&name(7)).expect("it lingers");
    assert_eq!(owner, *leases.owner());
    sleep(LINGER * 2 + MS).await;
    settle().await;
    assert_eq!(store.memory.holder(&name(7)), None);
    let there = orders("there", &other, &account);
    let token = there.submit(order(7, 2, MS)).await.unwrap();
    assert!(token.await.unwrap() > account.starts(7)[0].token);
    sleep(TTL * 10).await;
    let calls = |calls: &std::sync::Mutex<Vec<usize>>| calls.lock().unwrap().iter().sum::<usize>();
    let asked = calls(&store.asked);
    assert_eq!((asked, calls(&store.released)), (2, 2));
    assert_eq!(calls(&store.renewed), 0, "nothing is done for an idle key");
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_while_it_is_needed() {
    let (store, leases, other) = two();
    let account = Account::default();
    let (here, there) = (
        orders("here", &leases, &account),
        orders("there", &other, &account),
    );
    let slow = here.submit(order(7, 1, TTL * 10)).await.unwrap();
    settle().await;
    let waits = there.submit(order(7, 1, MS)).await.unwrap();
    let token = slow.await.unwrap();
    assert!(store.renewed.lock().unwrap().len() >= 29);
    assert!(waits.await.unwrap() > token);
    assert_eq!(account.starts(7).len(), 2);
    account.judge();
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_elsewhere_holds_up_no_other() {
    let (_store, leases, other) = two();
    let account = Account::default();
    let lease = other.acquire(name(7), TTL).await.unwrap();
    let here = orders("here", &leases, &account);
    let waits = here.submit(order(7, 1, MS)).await.unwrap();
    for number in 0..100 {
        let user = 8 + number % 3;
        let sent = here.submit(order(user, number, MS)).await.unwrap();
        sent.await.unwrap();
    }
    sleep(TTL * 3).await;
    let state = here.inspect(&7).unwrap().state;
    assert_eq!(state, LaneState::Leasing);
    assert_eq!(account.starts(7), []);
    lease.release().await;
    let token = timeout(Duration::from_secs(1), waits).await.unwrap();
    assert!(token.is_ok());
}

#[tokio::test(start_paused = true)]
async fn other_prefixes_have_nothing_to_do_with_each_other() {
    let (_store, leases, other) = two();
    let account = Account::default();
    let _lease = other.acquire(7_u64.to_be_bytes().to_vec(), TTL).await;
    let here = orders("here", &leases, &account);
    let sent = here.submit(order(7, 1, MS)).await.unwrap();
    timeout(MS * 10, sent).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_time_to_live_is_checked_at_once() {
    let (_store, leases, _) = two();
    for ttl in [Duration::ZERO, Duration::from_millis(99), Duration::MAX] {
        let lanes = leases.lanes(ttl, |user: &u64| user.to_be_bytes());
        assert!(matches!(lanes, Err(AcquireError::Ttl(shown)) if shown == ttl));
    }
}

#[tokio::test]
async fn debug_shows_no_key() {
    let (_store, leases, _) = two();
    let lanes = leases.lanes(TTL, |user: &u64| user.to_be_bytes()).unwrap();
    assert!(!format!("{:?}", lanes.prefix("secret")).contains("secret"));
}
