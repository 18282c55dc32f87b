//! One at a time per key, in the order of the calls; different keys beside each other.

use keylane_tower::KeyedLayer;
use tokio_test::{assert_pending, assert_ready_ok};
use tower::Layer;
use tower_test::mock;

use crate::support::{Key, answer, call, call_as, key, keyed, reached, semaphore};

#[test]
fn requests_of_one_key_reach_the_service_one_at_a_time() {
    let (mut service, mut handle) = keyed(semaphore());
    let mut first = call(&mut service, "alice", 1);
    let mut second = call(&mut service, "alice", 2);
    let (number, reply) = reached(&mut handle).unwrap();
    assert_eq!(number, 1);
    assert!(reached(&mut handle).is_none(), "the second one waits");
    assert_pending!(second.poll());
    reply.send_response(10);
    assert!(first.is_woken());
    assert_eq!(assert_ready_ok!(first.poll()), 10);
    assert!(second.is_woken(), "it has its permit");
    assert_pending!(second.poll());
    assert_eq!(answer(&mut handle), Some(2));
    assert_eq!(assert_ready_ok!(second.poll()), 2);
    assert_eq!(service.semaphore().lanes(), 0);
    assert_eq!(service.semaphore().len(), 0);
}

#[test]
fn the_order_is_that_of_the_calls_and_not_of_the_polls() {
    let (mut service, mut handle) = keyed(semaphore());
    let mut responses: Vec<_> = (0..20).map(|n| call(&mut service, "alice", n)).collect();
    for wanted in 0..20 {
        // From behind, so that responses that must wait are polled first.
        while let Some(woken) = responses
            .iter_mut()
            .rev()
            .find(|response| response.is_woken())
        {
            let _ = woken.poll();
        }
        assert_eq!(answer(&mut handle), Some(wanted));
        assert!(reached(&mut handle).is_none());
    }
}

#[test]
fn different_keys_run_beside_each_other() {
    let (mut service, mut handle) = keyed(semaphore());
    let _slow = call(&mut service, "alice", 1);
    let (_, _unanswered) = reached(&mut handle).unwrap();
    let mut other = call(&mut service, "bob", 2);
    assert_eq!(answer(&mut handle), Some(2));
    assert_eq!(assert_ready_ok!(other.poll()), 2);
}

#[test]
fn keyless_requests_pass() {
    let (mut service, mut handle) = keyed(semaphore());
    let _responses = [1, 2, 3].map(|n| call_as(&mut service, None, n));
    let reached = std::array::from_fn(|_| reached(&mut handle).unwrap().0);
    assert_eq!([1, 2, 3], reached);
}

#[test]
fn services_of_one_layer_share_its_lanes() {
    let layer = KeyedLayer::with_semaphore(semaphore(), key as Key);
    let [(one, mut to_one), (other, mut to_other)] = [mock::pair(), mock::pair()];
    to_one.allow(1);
    to_other.allow(1);
    let (mut one, mut other) = (layer.layer(one), layer.clone().layer(other));
    let first = call(&mut one, "alice", 1);
    let mut second = call(&mut other, "alice", 2);
    assert!(reached(&mut to_one).is_some());
    assert!(reached(&mut to_other).is_none());
    drop(first);
    assert_pending!(second.poll());
    assert!(reached(&mut to_other).is_some());
}
