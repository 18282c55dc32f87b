//! Full lanes, a full semaphore, a closed one.

use keylane_tower::{Error, KeyedSemaphore, error};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task::spawn};
use tower::{BoxError, Service};

use crate::support::{answer, call, keyed, reached, semaphore};

#[test]
fn a_full_lane_refuses_and_other_keys_are_not_affected() {
    let semaphore = KeyedSemaphore::builder().lane_capacity(2).build().unwrap();
    let (mut service, mut handle) = keyed(semaphore);
    let mut first = call(&mut service, "alice", 1);
    let _second = call(&mut service, "alice", 2);
    let mut third = spawn(service.call_now("alice", 3));
    assert!(matches!(assert_ready_err!(third.poll()), Error::LaneFull));
    let _other = call(&mut service, "bob", 4);
    assert_eq!(answer(&mut handle), Some(1));
    assert_eq!(reached(&mut handle).unwrap().0, 4);
    assert_ready_ok!(first.poll());
    let _fits = call(&mut service, "alice", 5);
    assert_eq!(service.semaphore().len(), 3);
}

#[test]
fn at_the_capacity_poll_ready_waits() {
    let semaphore = KeyedSemaphore::builder().capacity(2).build().unwrap();
    let (mut service, mut handle) = keyed(semaphore);
    let first = call(&mut service, "alice", 1);
    let mut ready = service.clone();
    let _second = call(&mut service, "bob", 2);
    let mut third = spawn(());
    assert_pending!(third.enter(|cx, _| ready.poll_ready(cx)));
    let mut fourth = spawn(());
    let mut other = service.clone();
    assert_pending!(fourth.enter(|cx, _| other.poll_ready(cx)));
    // First come, first served. A clone that was dropped is skipped.
    drop(ready);
    drop(first);
    assert!(fourth.is_woken() && !third.is_woken());
    assert_ready_ok!(fourth.enter(|cx, _| other.poll_ready(cx)));
    let _third = spawn(other.call((Some("carol"), 3))).poll();
    assert!(reached(&mut handle).is_some());
}

#[test]
fn only_so_many_keys_run_at_once() {
    let semaphore = KeyedSemaphore::builder().concurrency(1).build().unwrap();
    let (mut service, mut handle) = keyed(semaphore);
    let mut first = call(&mut service, "alice", 1);
    let mut second = call(&mut service, "bob", 2);
    let mut third = call(&mut service, "alice", 3);
    assert_eq!(answer(&mut handle), Some(1));
    assert!(reached(&mut handle).is_none());
    assert_ready_ok!(first.poll());
    assert!(!third.is_woken(), "the other key has waited longer");
    assert_pending!(second.poll());
    assert_eq!(answer(&mut handle), Some(2));
    assert_ready_ok!(second.poll());
    assert_pending!(third.poll());
    assert_eq!(answer(&mut handle), Some(3));
    assert_ready_ok!(third.poll());
}

#[test]
fn a_closed_layer_fails_requests_that_wait_and_finishes_those_that_run() {
    let (mut service, mut handle) = keyed(semaphore());
    let mut first = call(&mut service, "alice", 1);
    let mut second = call(&mut service, "alice", 2);
    let (_, reply) = reached(&mut handle).unwrap();
    service.semaphore().close();
    assert!(second.is_woken());
    assert!(matches!(assert_ready_err!(second.poll()), Error::Closed));
    let mut late = spawn(());
    let ready: Result<(), _> = assert_ready!(late.enter(|cx, _| service.poll_ready(cx)));
    assert!(matches!(ready, Err(Error::Closed)));
    reply.send_response(1);
    assert_eq!(assert_ready_ok!(first.poll()), 1);
    drop(second);
    assert_eq!(service.semaphore().len(), 0);
    assert_eq!(service.semaphore().lanes(), 0);
}

#[test]
fn in_a_box_each_error_can_be_told_apart() {
    type Inner = std::io::Error;
    let full: BoxError = Error::<Inner>::LaneFull.into();
    assert!(full.is::<error::LaneFull>());
    let closed: BoxError = Error::<Inner>::Closed.into();
    assert!(closed.is::<error::Closed>());
    let inner: BoxError = Error::Inner(std::io::Error::other("disk")).into();
    assert!(inner.is::<std::io::Error>());
}

trait CallNow {
    type Future;
    fn call_now(&mut self, key: &'static str, number: u32) -> Self::Future;
}

impl CallNow for crate::support::Keyed {
    type Future = <Self as Service<crate::support::Request>>::Future;

    fn call_now(&mut self, key: &'static str, number: u32) -> Self::Future {
        let mut task = spawn(());
        assert!(task.enter(|cx, _| self.poll_ready(cx)).is_ready());
        self.call((Some(key), number))
    }
}
