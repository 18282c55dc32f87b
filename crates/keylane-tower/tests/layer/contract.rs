//! tower's contract, and what the layer asks of others.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::rc::Rc;
use std::task::{Context, Poll};

use keylane_tower::{KeyedLayer, KeyedSemaphore};
use tokio_test::{assert_pending, assert_ready_ok, task::spawn};
use tower::{Layer, Service, ServiceExt};

use crate::support::{keyed, semaphore};

/// Insists on being called by the very clone that was ready. Neither `Sync` nor shared.
struct Strict {
    ready: Cell<bool>,
    asked: u32,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self {
            ready: Cell::new(false),
            asked: 0,
        }
    }
}

impl Service<u32> for Strict {
    type Response = u32;
    type Error = Infallible;
    type Future = Ready<Result<u32, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.asked += 1;
        if self.asked < 3 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.ready.set(true);
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u32) -> Self::Future {
        assert!(self.ready.take(), "a clone was called that was not ready");
        ready(Ok(request))
    }
}

fn strict() -> Strict {
    Strict {
        ready: Cell::new(false),
        asked: 0,
    }
}

#[tokio::test]
async fn the_clone_that_is_ready_is_the_one_that_is_called() {
    let mut service = KeyedLayer::by_key(|n: &u32| Some(n % 3)).layer(strict());
    for number in 0..30 {
        let called = service.ready().await.unwrap().call(number);
        let by_clone = service.clone().oneshot(number + 100);
        assert_eq!(called.await.unwrap(), number);
        assert_eq!(by_clone.await.unwrap(), number + 100);
    }
}

#[test]
fn a_service_that_is_not_ready_makes_only_its_head_wait() {
    let mut service = KeyedLayer::by_key(|n: &u32| Some(n % 2)).layer(strict());
    let mut task = spawn(());
    assert_ready_ok!(task.enter(|cx, _| service.poll_ready(cx)));
    let mut response = spawn(service.call(1));
    assert_pending!(response.poll());
    assert_pending!(response.poll());
    assert_ready_ok!(response.poll());
}

#[test]
fn a_reservation_belongs_to_the_clone_that_was_polled() {
    let semaphore = KeyedSemaphore::builder().capacity(1).build().unwrap();
    let (mut service, _handle) = keyed(semaphore);
    let mut other = service.clone();
    let mut task = spawn(());
    assert_ready_ok!(task.enter(|cx, _| service.poll_ready(cx)));
    assert_ready_ok!(task.enter(|cx, _| service.poll_ready(cx)));
    assert_eq!(service.semaphore().len(), 1, "polled twice, reserved once");
    let mut task = spawn(());
    assert_pending!(task.enter(|cx, _| other.poll_ready(cx)));
    drop(service);
    assert!(task.is_woken());
    assert_ready_ok!(task.enter(|cx, _| other.poll_ready(cx)));
}

#[test]
#[should_panic(expected = "`poll_ready` must be ready before `call`")]
fn to_call_without_being_ready_panics() {
    let (mut service, _handle) = keyed(semaphore());
    drop(service.call((Some("alice"), 1)));
}

#[test]
fn a_key_function_that_panics_takes_no_place_in_a_lane() {
    let layer = KeyedLayer::by_key(|n: &u32| {
        assert!(*n != 1, "no key");
        Some(*n)
    });
    let mut service = layer.layer(strict());
    let mut task = spawn(());
    assert_ready_ok!(task.enter(|cx, _| service.poll_ready(cx)));
    let call = std::panic::AssertUnwindSafe(|| drop(service.call(1)));
    assert!(std::panic::catch_unwind(call).is_err());
    assert_eq!(layer.semaphore().len(), 0);
}

#[test]
fn what_is_sent_between_threads_can_be() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    fn is_sync<T: Sync>(_: &T) {}
    // `Strict` is not `Sync`, and does not have to be.
    let layer = is_send(KeyedLayer::by_key(|n: &u32| Some(*n)));
    is_sync(&layer);
    let mut service = is_send(layer.layer(strict()));
    let mut task = spawn(());
    assert_ready_ok!(task.enter(|cx, _| service.poll_ready(cx)));
    drop(is_send(service.call(1)));
}

/// No runtime, nothing `Send`, nothing `'static`.
#[test]
fn what_stays_in_one_thread_may() {
    let log = Rc::new(Cell::new(0));
    let sum = &Cell::new(0);
    let inner = tower::service_fn(|n: u32| {
        let log = Rc::clone(&log);
        async move {
            log.set(log.get() + 1);
            sum.set(sum.get() + n);
            Ok::<_, Infallible>(n)
        }
    });
    let service = KeyedLayer::by_key(|n: &u32| Some(Rc::new(n % 2))).layer(inner);
    let mut all: Vec<_> = (0..10).map(|n| spawn(service.clone().oneshot(n))).collect();
    for response in &mut all {
        assert_ready_ok!(response.poll());
    }
    assert_eq!((log.get(), sum.get()), (10, 45));
}
