//! Without a runtime, and with keys and work that are not `Send`.

use std::cell::RefCell;
use std::rc::Rc;

use futures::executor::{LocalPool, block_on};
use futures::future::join_all;
use futures::task::LocalSpawnExt;
use keylane_semaphore::KeyedSemaphore;

use crate::support::{acquire, assert_idle};

#[test]
fn blocked_on_without_a_runtime() {
    let semaphore = KeyedSemaphore::<String>::builder().build().unwrap();
    block_on(async {
        let permit = semaphore.acquire("a".into()).await.unwrap();
        let next = acquire(&semaphore, "a".into());
        drop(permit);
        drop(next.await.unwrap());
    });
    assert_idle(&semaphore);
}

#[test]
fn keys_and_work_that_stay_on_one_thread() {
    let semaphore = KeyedSemaphore::<Rc<str>>::builder()
        .concurrency(2)
        .build()
        .unwrap();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let mut pool = LocalPool::new();
    let keys: [Rc<str>; 3] = ["a", "b", "c"].map(Rc::from);
    for number in 0..30 {
        let key = Rc::clone(&keys[number % 3]);
        let (semaphore, seen) = (semaphore.clone(), Rc::clone(&seen));
        let waiter = acquire(&semaphore, key);
        pool.spawner()
            .spawn_local(async move {
                let permit = waiter.await.unwrap();
                yields(number as u32 % 3).await;
                seen.borrow_mut()
                    .push((Rc::clone(permit.key().unwrap()), number));
            })
            .unwrap();
    }
    pool.run();
    for key in &keys {
        let seen = seen.borrow();
        let numbers: Vec<_> = seen.iter().filter(|seen| seen.0 == *key).collect();
        assert_eq!(numbers.len(), 10);
        assert!(numbers.is_sorted_by_key(|seen| seen.1));
    }
    assert_idle(&semaphore);
}

/// Concurrently in one task, as a service polls its requests.
#[test]
fn many_in_one_task() {
    let semaphore = KeyedSemaphore::<u32>::builder()
        .capacity(8)
        .concurrency(3)
        .build()
        .unwrap();
    let running = RefCell::new(Vec::new());
    block_on(join_all((0..200_u32).map(|number| {
        let (semaphore, running) = (&semaphore, &running);
        async move {
            let reservation = semaphore.reserve().await.unwrap();
            let Ok(waiter) = reservation.acquire(number % 5) else {
                return;
            };
            let _turn = waiter.await.unwrap();
            assert!(!running.borrow().contains(&(number % 5)));
            running.borrow_mut().push(number % 5);
            assert!(running.borrow().len() <= 3);
            yields(number % 3).await;
            running.borrow_mut().retain(|key| *key != number % 5);
        }
    })));
    assert_idle(&semaphore);
}

async fn yields(times: u32) {
    for _ in 0..times {
        let mut polled = false;
        std::future::poll_fn(|cx| {
            if std::mem::replace(&mut polled, true) {
                return std::task::Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            std::task::Poll::Pending
        })
        .await;
    }
}
