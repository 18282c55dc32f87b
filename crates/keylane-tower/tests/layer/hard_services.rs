//! Services and callers that do what they should not, or what is rare.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use keylane_tower::{Error, KeyedLayer, KeyedSemaphore, OnDrop};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task::spawn};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{answer, call, keyed, make_ready, reached, semaphore};

/// What of it panics, for the request 1.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Clone,
    Ready,
    Drop,
    PollAndDrop,
}

struct Hard {
    part: Part,
    lit: Rc<RefCell<bool>>,
}

struct HardFuture {
    number: u32,
    part: Part,
}

impl Clone for Hard {
    fn clone(&self) -> Self {
        assert!(
            self.part != Part::Clone || !self.lit.replace(false),
            "in clone"
        );
        let lit = Rc::clone(&self.lit);
        Self {
            part: self.part,
            lit,
        }
    }
}

impl Service<u32> for Hard {
    type Response = u32;
    type Error = Infallible;
    type Future = HardFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        assert!(
            self.part != Part::Ready || !self.lit.replace(false),
            "in poll_ready"
        );
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, number: u32) -> HardFuture {
        let part = self.part;
        HardFuture { number, part }
    }
}

impl Future for HardFuture {
    type Output = Result<u32, Infallible>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(
            self.part != Part::PollAndDrop || self.number != 1,
            "in poll"
        );
        Poll::Ready(Ok(self.number))
    }
}

impl Drop for HardFuture {
    fn drop(&mut self) {
        let drops = matches!(self.part, Part::Drop | Part::PollAndDrop);
        assert!(!drops || self.number != 1, "in drop");
    }
}

#[test]
fn whatever_panics_the_next_of_the_key_runs() {
    for part in [Part::Clone, Part::Ready, Part::Drop, Part::PollAndDrop] {
        let lit = Rc::new(RefCell::new(false));
        let layer = KeyedLayer::by_key(|_: &u32| Some("alice"));
        let mut service = layer.layer(Hard {
            part,
            lit: Rc::clone(&lit),
        });
        lit.replace(true);
        let broken = catch_unwind(AssertUnwindSafe(|| {
            make_ready(&mut service);
            let mut first = spawn(service.call(1));
            let _answer = first.poll();
        }));
        assert!(broken.is_err());
        assert_eq!(layer.semaphore().len(), 0);
        assert_eq!(layer.semaphore().lanes(), 0);
        make_ready(&mut service);
        assert_eq!(assert_ready_ok!(spawn(service.call(2)).poll()), 2);
    }
}

/// As the test before, with a request that waits, and checked before the response is dropped.
fn panics_twice<D: OnDrop<HardFuture, &'static str>>(
    layer: &KeyedLayer<impl Fn(&u32) -> Option<&'static str> + Clone, &'static str, D>,
) {
    let mut service = layer.layer(Hard {
        part: Part::PollAndDrop,
        lit: Rc::default(),
    });
    make_ready(&mut service);
    let mut first = spawn(service.call(1));
    make_ready(&mut service);
    let mut second = spawn(service.call(2));
    assert_pending!(second.poll());
    let thrown = catch_unwind(AssertUnwindSafe(|| first.poll())).unwrap_err();
    assert_eq!(thrown.downcast_ref(), Some(&"in poll"));
    assert!(second.is_woken());
    assert_ready_ok!(second.poll());
}

#[tokio::test]
async fn a_future_that_panics_twice_gives_its_permit_back() {
    let layer = KeyedLayer::by_key(|_: &u32| Some("alice"));
    panics_twice(&layer);
    panics_twice(&layer.finish_dropped());
}

#[test]
fn inside_itself_a_key_waits_for_itself_until_a_request_leaves() {
    let semaphore = KeyedSemaphore::default();
    let by_all = |_: &u32| Some(());
    let ready = service_fn(|n: u32| async move { Ok::<_, Infallible>(n) });
    let inner = KeyedLayer::with_semaphore(semaphore.clone(), by_all).layer(ready);
    let mut outer = KeyedLayer::with_semaphore(semaphore.clone(), by_all).layer(inner);
    make_ready(&mut outer);
    let mut stuck = spawn(outer.call(1));
    assert_pending!(stuck.poll());
    assert_pending!(stuck.poll());
    assert_eq!(semaphore.len(), 2);
    make_ready(&mut outer);
    let behind = spawn(outer.call(2));
    drop(stuck);
    drop(behind);
    assert_eq!((semaphore.len(), semaphore.lanes()), (0, 0));
}

#[test]
fn two_layers_with_semaphores_of_their_own_may_share_a_key() {
    let by_all = |_: &u32| Some(());
    let ready = service_fn(|n: u32| async move { Ok::<_, Infallible>(n) });
    let inner = KeyedLayer::by_key(by_all).layer(ready);
    let outer = KeyedLayer::by_key(by_all).layer(inner);
    assert_ready_ok!(spawn(outer.oneshot(1)).poll());
}

#[test]
fn a_future_whose_drop_calls_again_stands_behind_all_others() {
    type Again = Rc<RefCell<Option<Box<dyn FnOnce()>>>>;

    struct OnDrop(Again);

    impl Drop for OnDrop {
        fn drop(&mut self) {
            let again = self.0.take();
            again.into_iter().for_each(|again| again());
        }
    }

    let again = Again::default();
    let order = Rc::new(RefCell::new(Vec::new()));
    let inner = service_fn({
        let (again, order) = (Rc::clone(&again), Rc::clone(&order));
        move |n: u32| {
            order.borrow_mut().push(n);
            let on_drop = (n == 1).then(|| OnDrop(Rc::clone(&again)));
            async move {
                std::future::poll_fn(|_| match n {
                    1 => Poll::Pending,
                    _ => Poll::Ready(()),
                })
                .await;
                drop(on_drop);
                Ok::<_, Infallible>(n)
            }
        }
    });
    let mut service = KeyedLayer::by_key(|_: &u32| Some(())).layer(inner);
    make_ready(&mut service);
    let mut first = spawn(service.call(1));
    assert_pending!(first.poll());
    make_ready(&mut service);
    let mut second = spawn(service.call(2));
    let called = Rc::new(RefCell::new(None));
    let mut other = service.clone();
    let place = Rc::clone(&called);
    again.replace(Some(Box::new(move || {
        make_ready(&mut other);
        let mut third = spawn(other.call(3));
        assert_pending!(third.poll());
        place.replace(Some(third));
    })));
    drop(first);
    assert_ready_ok!(second.poll());
    let mut third = called.take().unwrap();
    assert_ready_ok!(third.poll());
    assert_eq!(*order.borrow(), [1, 2, 3]);
    drop((service, again.take()));
}

#[test]
fn a_response_that_is_forgotten_costs_its_key_alone() {
    let (mut service, mut handle) = keyed(semaphore());
    let first = call(&mut service, "alice", 1);
    reached(&mut handle).unwrap().1.send_response(1);
    std::mem::forget(first);
    let mut second = call(&mut service, "alice", 2);
    let mut other = call(&mut service, "bob", 3);
    assert_eq!(answer(&mut handle), Some(3));
    assert_ready_ok!(other.poll());
    assert_pending!(second.poll());
    // Requests behind it can leave, and fail by the close.
    drop(call(&mut service, "alice", 4));
    service.semaphore().close();
    assert!(matches!(assert_ready_err!(second.poll()), Error::Closed));
    assert_eq!(service.semaphore().len(), 1);
}

#[test]
fn a_response_may_move_to_another_task_while_it_waits() {
    let (mut service, mut handle) = keyed(semaphore());
    let mut first = call(&mut service, "alice", 1);
    let mut second = call(&mut service, "alice", 2);
    let [mut one, mut other] = [spawn(()), spawn(())];
    assert_pending!(one.enter(|cx, _| Pin::new(&mut *second).poll(cx)));
    assert_pending!(other.enter(|cx, _| Pin::new(&mut *second).poll(cx)));
    assert_eq!(answer(&mut handle), Some(1));
    assert_ready_ok!(first.poll());
    assert!(other.is_woken() && !one.is_woken() && !second.is_woken());
    assert_pending!(one.enter(|cx, _| Pin::new(&mut *second).poll(cx)));
    assert_eq!(answer(&mut handle), Some(2));
    assert!(one.is_woken());
    assert_ready_ok!(one.enter(|cx, _| Pin::new(&mut *second).poll(cx)));
}

/// Documented: the place in the line belongs to the clone that was polled.
#[test]
fn a_clone_that_was_polled_keeps_its_place_in_the_line_until_it_is_dropped() {
    let semaphore = KeyedSemaphore::builder().capacity(1).build().unwrap();
    let (mut service, mut handle) = keyed(semaphore);
    let [mut shed, mut late] = [service.clone(), service.clone()];
    let mut first = call(&mut service, "alice", 1);
    assert_pending!(spawn(()).enter(|cx, _| shed.poll_ready(cx)));
    answer(&mut handle);
    assert_ready_ok!(first.poll());
    let mut task = spawn(());
    assert_pending!(task.enter(|cx, _| late.poll_ready(cx)));
    drop(shed);
    assert!(task.is_woken());
    assert_ready_ok!(task.enter(|cx, _| late.poll_ready(cx)));
}
