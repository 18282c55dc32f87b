//! Dropped calls, and processes and runtimes that end.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use keylane_redis::{Quota, SharedRate};
use testkit_servers::RedisKind;
use tokio::time::{sleep, timeout};

use crate::support::{builder, each_kind, new_name, shared};

const HOUR: Duration = Duration::from_secs(3_600);

/// Returns how many permits there are now.
async fn left(rate: &SharedRate) -> usize {
    let mut left = 0;
    while rate.try_acquire("key").await.is_ok() {
        left += 1;
    }
    left
}

/// This holds at each await: a permit that was granted to a dropped call goes to the next one.
#[tokio::test]
async fn a_call_that_is_dropped_takes_nothing() {
    each_kind(async |kind| {
        for borrow in [0, 5] {
            let server = shared(kind).await;
            let rate = builder(server, &new_name()).per_key(Quota::per(1, HOUR).burst(60));
            let rate = rate.borrow(borrow).build().unwrap();
            let (mut used, mut dropped) = (0, 0);
            while used < 20 {
                for polls in 1.. {
                    let mut call = Box::pin(rate.acquire("key"));
                    if polled(polls, call.as_mut()).await {
                        used += 1;
                        break;
                    }
                    // Half of them are dropped with an answer that they have not seen.
                    dropped += 1;
                    if dropped % 2 == 0 {
                        sleep(Duration::from_millis(5)).await;
                    }
                    drop(call);
                    if dropped % 3 == 0 {
                        sleep(Duration::from_millis(5)).await;
                    }
                }
            }
            println!("{kind}, {borrow} borrowed: {dropped} were dropped");
            assert_eq!(used + left(&rate).await, 60, "{kind}, {borrow} borrowed");
        }
    })
    .await;
}

/// Polls a call this many times. Returns whether it has ended.
async fn polled<T, E: std::fmt::Debug>(
    mut times: usize,
    mut call: Pin<&mut impl Future<Output = Result<T, E>>>,
) -> bool {
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

/// The others get all permits that it has not borrowed.
#[tokio::test]
async fn a_process_that_dies_loses_what_it_has_borrowed() {
    each_kind(async |kind| {
        let (server, name) = (shared(kind).await, new_name());
        let process = || {
            let rate = builder(server, &name).per_key(Quota::per(1, HOUR).burst(60));
            rate.borrow(7).build().unwrap()
        };
        let dies = process();
        for _ in 0..20 {
            dies.acquire("key").await.unwrap();
        }
        drop(dies);
        let left = left(&process()).await;
        println!("{kind}: {left} of 40 are left");
        assert!((33..=40).contains(&left), "{kind}: {left}");
        assert!(left < 40, "{kind}: it had borrowed some");
    })
    .await;
}

/// Borrowed permits are not used after the time for which they are kept.
#[tokio::test]
async fn what_was_borrowed_ends() {
    each_kind(async |kind| {
        let keep = Duration::from_secs(3);
        let rate = builder(shared(kind).await, &new_name()).per_key(Quota::per(1, HOUR).burst(20));
        let rate = rate.borrow(10).keep(keep).build().unwrap();
        let mut used = 0;
        // Until the whole burst is here or used.
        for _ in 0..15 {
            rate.acquire("key").await.unwrap();
            used += 1;
        }
        sleep(keep * 2).await;
        used += left(&rate).await;
        println!("{kind}: {used} of 20 were used");
        assert!((15..20).contains(&used), "{kind}: {used}");
    })
    .await;
}

/// No task stays behind, even if its next step was far away.
#[tokio::test]
async fn nothing_stays_of_a_rate_that_is_dropped() {
    let rate = builder(shared(RedisKind::Redis7).await, &new_name());
    let rate = rate.total(Quota::per(1, HOUR)).borrow(0).build().unwrap();
    rate.acquire("key").await.unwrap();
    let waits = timeout(Duration::from_millis(100), rate.acquire("key"));
    assert!(waits.await.is_err());
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    assert!(tasks() > 0);
    drop(rate);
    let ended = async {
        while tasks() > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let ended = timeout(Duration::from_secs(10), ended).await;
    assert!(ended.is_ok(), "{} tasks", tasks());
}

/// The runtime of the first caller, in which the server is asked, ends while others wait.
#[test]
fn a_runtime_that_ends_takes_no_one_along() {
    let one = || tokio::runtime::Runtime::new().unwrap();
    let (servers, first, second) = (one(), one(), one());
    let rate = servers.block_on(async {
        let rate = builder(shared(RedisKind::Redis7).await, &new_name());
        let rate = rate.total(Quota::per(1, Duration::from_secs(1)).burst(1));
        // They do not wait as long as this to detect it.
        rate.keep(Duration::from_secs(60)).build().unwrap()
    });
    let waits = |rate: &SharedRate| {
        let rate = rate.clone();
        async move { rate.acquire("key").await }
    };
    first.block_on(rate.acquire("key")).unwrap();
    let lost = first.spawn(waits(&rate));
    let waiting = second.spawn(waits(&rate));
    std::thread::sleep(Duration::from_millis(100));
    first.shutdown_background();
    let served = second.block_on(async { timeout(Duration::from_secs(20), waiting).await });
    served.unwrap().unwrap().unwrap();
    drop(lost);
}

/// The same, but the runtime does not end: it runs nothing any more.
#[test]
fn a_runtime_that_is_idle_holds_no_one_up() {
    let one = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let (servers, idle, other) = (one(), one(), one());
    let rate = servers.block_on(async {
        let rate = builder(shared(RedisKind::Redis7).await, &new_name());
        let rate = rate.total(Quota::per(1, Duration::from_secs(1)).burst(1));
        rate.keep(Duration::from_millis(300)).build().unwrap()
    });
    idle.block_on(async {
        rate.acquire("key").await.unwrap();
        let waits = timeout(Duration::from_millis(50), rate.acquire("key"));
        assert!(waits.await.is_err());
    });
    other.block_on(async {
        for _ in 0..2 {
            let served = timeout(Duration::from_secs(20), rate.acquire("key"));
            served.await.unwrap().unwrap();
        }
    });
    drop(idle);
}
