//! As many leases as there may be, and keys by the thousand.

use std::time::Duration;

use keylane::watching::LaneState;
use keylane_leases::Settings;
use tokio::time::{sleep, timeout};

use crate::rig::{Account, LINGER, order, orders_lingering};
use crate::support::{Store, one_with, settle};

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn where_there_is_no_room_idle_leases_go_first() {
    let store = Store::new();
    let leases = one_with(&store, Settings::new().most(2));
    let account = Account::default();
    let here = orders_lingering("here", &leases, &account, Duration::from_secs(3_600));
    let send = async |user, takes| here.submit(order(user, user, takes)).await.unwrap();
    send(1, MS).await.await.unwrap();
    let slow = send(2, Duration::from_secs(5)).await;
    let third = send(3, Duration::from_secs(3)).await;
    settle().await;
    sleep(20 * MS).await;
    assert_eq!(account.running(3), Some("here"), "the idle one has gone");
    let fourth = send(4, MS).await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(here.inspect(&4).unwrap().state, LaneState::Leasing);
    third.await.unwrap();
    timeout(50 * MS, fourth)
        .await
        .expect("there is room")
        .unwrap();
    slow.await.unwrap();
    account.judge();
}

#[tokio::test(start_paused = true)]
async fn keys_by_the_ten_thousand_leave_nothing_behind() {
    let store = Store::new();
    let leases = one_with(&store, Settings::new().most(500));
    let account = Account::default();
    let here = orders_lingering("here", &leases, &account, LINGER);
    for user in 0..10_000 {
        here.send(order(user, 1, Duration::ZERO)).await.unwrap();
        if user % 100 == 0 {
            sleep(MS).await;
        }
    }
    while here.stats().done < 10_000 {
        sleep(MS).await;
    }
    sleep(LINGER * 3).await;
    let sum = |calls: &std::sync::Mutex<Vec<usize>>| calls.lock().unwrap().iter().sum::<usize>();
    assert_eq!((sum(&store.asked), sum(&store.released)), (10_000, 10_000));
    let calls = store.asked.lock().unwrap().len();
    assert!(calls < 2_000, "{calls} calls");
    account.judge();
}
