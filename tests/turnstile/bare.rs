//! No runtime, and nothing that has to be `Send`.

use std::cell::RefCell;
use std::rc::Rc;

use futures::executor::{LocalPool, block_on};
use futures::future::join_all;
use futures::task::LocalSpawnExt;
use keylane::Turnstile;

use crate::rig::assert_idle;

#[test]
fn blocked_on_without_a_runtime() {
    let gates = Turnstile::<String>::builder().build().unwrap();
    block_on(async {
        let turn = gates.turn("a".into()).await.unwrap();
        let next = gates.try_enter("a".into()).unwrap();
        drop(turn);
        drop(next.await.unwrap());
    });
    assert_idle(&gates);
}

#[test]
fn keys_and_work_that_stay_on_one_thread() {
    let gates = Turnstile::<Rc<str>>::builder()
        .concurrency(2)
        .build()
        .unwrap();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let mut pool = LocalPool::new();
    let keys: [Rc<str>; 3] = ["a", "b", "c"].map(Rc::from);
    for number in 0..30 {
        let key = Rc::clone(&keys[number % 3]);
        let (gates, seen) = (gates.clone(), Rc::clone(&seen));
        let place = gates.try_enter(key).unwrap();
        pool.spawner()
            .spawn_local(async move {
                let turn = place.await.unwrap();
                yields(number as u32 % 3).await;
                seen.borrow_mut()
                    .push((Rc::clone(turn.key().unwrap()), number));
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
    assert_idle(&gates);
}

/// In one task, beside each other, as a service polls its requests.
#[test]
fn many_in_one_task() {
    let gates = Turnstile::<u32>::builder()
        .capacity(8)
        .concurrency(3)
        .build()
        .unwrap();
    let running = RefCell::new(Vec::new());
    block_on(join_all((0..200_u32).map(|number| {
        let (gates, running) = (&gates, &running);
        async move {
            let room = gates.reserve().await.unwrap();
            let Ok(place) = room.enter(number % 5) else {
                return;
            };
            let _turn = place.await.unwrap();
            assert!(!running.borrow().contains(&(number % 5)));
            running.borrow_mut().push(number % 5);
            assert!(running.borrow().len() <= 3);
            yields(number % 3).await;
            running.borrow_mut().retain(|key| *key != number % 5);
        }
    })));
    assert_idle(&gates);
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
