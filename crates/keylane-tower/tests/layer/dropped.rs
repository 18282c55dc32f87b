//! Responses that are dropped, and services that fail or panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use keylane_tower::{Error, KeyedLayer};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task::spawn};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_test::mock;

use crate::support::{Key, answer, call, key, keyed, reached, semaphore};

#[test]
fn a_request_that_waits_leaves_its_lane_at_once() {
    let (mut service, mut handle) = keyed(semaphore());
    let mut first = call(&mut service, "alice", 1);
    let second = call(&mut service, "alice", 2);
    let mut third = call(&mut service, "alice", 3);
    assert_eq!(service.semaphore().len(), 3);
    drop(second);
    assert_eq!(service.semaphore().len(), 2);
    assert_eq!(answer(&mut handle), Some(1));
    assert_ready_ok!(first.poll());
    assert_pending!(third.poll());
    assert_eq!(answer(&mut handle), Some(3), "and never the second");
    assert_ready_ok!(third.poll());
}

#[test]
fn a_request_that_was_granted_unseen_gives_its_permit_on() {
    let (mut service, mut handle) = keyed(semaphore());
    let mut first = call(&mut service, "alice", 1);
    let second = call(&mut service, "alice", 2);
    let mut third = call(&mut service, "alice", 3);
    answer(&mut handle);
    assert_ready_ok!(first.poll());
    assert!(!third.is_woken());
    drop(second);
    assert!(third.is_woken());
    assert_pending!(third.poll());
    assert_eq!(answer(&mut handle), Some(3));
}

#[test]
fn what_runs_is_dropped_with_its_response() {
    let (mut service, mut handle) = keyed(semaphore());
    let first = call(&mut service, "alice", 1);
    let mut second = call(&mut service, "alice", 2);
    let _unanswered = reached(&mut handle).unwrap();
    drop(first);
    assert_pending!(second.poll());
    assert_eq!(answer(&mut handle), Some(2));
    assert_ready_ok!(second.poll());
}

#[tokio::test]
async fn or_it_is_finished_first_and_its_key_waits() {
    let (inner, mut handle) = mock::pair();
    handle.allow(2);
    let layer = KeyedLayer::with_semaphore(semaphore(), key as Key).finish_dropped();
    let mut service = layer.layer(inner);
    let mut first = spawn(service.ready().await.unwrap().call((Some("alice"), 1)));
    assert_pending!(first.poll());
    let (_, reply) = reached(&mut handle).unwrap();
    let mut second = spawn(service.ready().await.unwrap().call((Some("alice"), 2)));
    assert_pending!(second.poll());
    drop(first);
    tokio::task::yield_now().await;
    assert!(!second.is_woken(), "the first one goes on");
    assert!(reached(&mut handle).is_none());
    reply.send_response(1);
    while !second.is_woken() {
        tokio::task::yield_now().await;
    }
    assert_pending!(second.poll());
    assert_eq!(answer(&mut handle), Some(2));
    assert_ready_ok!(second.poll());
    assert_eq!(service.semaphore().len(), 0);
}

#[tokio::test]
async fn a_request_that_has_not_started_is_not_finished() {
    let (inner, mut handle) = mock::pair();
    handle.allow(2);
    let layer = KeyedLayer::with_semaphore(semaphore(), key as Key).finish_dropped();
    let mut service = layer.layer(inner);
    let mut first = spawn(service.ready().await.unwrap().call((Some("alice"), 1)));
    assert_pending!(first.poll());
    let second = service.ready().await.unwrap().call((Some("alice"), 2));
    drop(second);
    answer(&mut handle);
    assert_ready_ok!(first.poll());
    tokio::task::yield_now().await;
    assert!(reached(&mut handle).is_none());
    assert_eq!(service.semaphore().lanes(), 0);
}

#[test]
fn a_service_that_fails_to_be_ready_blocks_no_key() {
    let (mut service, mut handle) = keyed(semaphore());
    let mut first = call(&mut service, "alice", 1);
    let mut second = call(&mut service, "alice", 2);
    let mut third = call(&mut service, "alice", 3);
    let (_, reply) = reached(&mut handle).unwrap();
    handle.send_error("out of order");
    reply.send_response(1);
    assert_ready_ok!(first.poll());
    assert!(second.is_woken());
    let error = assert_ready_err!(second.poll());
    assert!(matches!(error, Error::Inner(_)));
    assert_eq!(error.to_string(), "out of order");
    assert!(third.is_woken(), "it asks for itself");
    assert_pending!(third.poll());
    assert_eq!(answer(&mut handle), Some(3));
    assert_ready_ok!(third.poll());
    assert_eq!(service.semaphore().len(), 0);
}

#[test]
fn an_error_of_a_request_is_its_own() {
    let (mut service, mut handle) = keyed(semaphore());
    let mut first = call(&mut service, "alice", 1);
    let mut second = call(&mut service, "alice", 2);
    reached(&mut handle).unwrap().1.send_error("no tea");
    assert_eq!(assert_ready_err!(first.poll()).to_string(), "no tea");
    assert_pending!(second.poll());
    assert_eq!(answer(&mut handle), Some(2));
}

/// Says when it is dropped.
struct Witness(Arc<Mutex<Vec<&'static str>>>);

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.lock().unwrap().push("dropped");
    }
}

#[test]
fn a_panic_of_the_call_or_of_the_future_gives_the_permit_back() {
    for in_call in [true, false] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let inner = service_fn(move |number: u32| {
            let witness = Witness(Arc::clone(&log));
            assert!(!(in_call && number == 1), "a call that panics");
            let log = Arc::clone(&log);
            async move {
                let _witness = witness;
                assert!(number != 1, "a future that panics");
                log.lock().unwrap().push("second");
                Ok::<_, std::io::Error>(number)
            }
        });
        let layer = KeyedLayer::with_semaphore(semaphore(), |_: &u32| Some("alice"));
        let mut service = layer.layer(inner);
        let mut ready = |number| {
            assert!(
                spawn(())
                    .enter(|cx, _| Service::<u32>::poll_ready(&mut service, cx))
                    .is_ready()
            );
            service.call(number)
        };
        let mut first = spawn(ready(1));
        let mut second = spawn(ready(2));
        assert_pending!(second.poll());
        assert!(catch_unwind(AssertUnwindSafe(|| first.poll())).is_err());
        // The response is not dropped yet, and the permit is given back all the same.
        assert!(second.is_woken());
        assert_eq!(assert_ready_ok!(second.poll()), 2);
        assert_eq!(*seen.lock().unwrap(), ["dropped", "second", "dropped"]);
        drop(first);
    }
}
