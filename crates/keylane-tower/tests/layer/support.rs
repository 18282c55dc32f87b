//! A mock behind the layer.

use std::task::Poll;

use keylane_tower::{KeyedLayer, KeyedSemaphore, KeyedService};
use tokio_test::task::{Spawn, spawn};
use tower::{Layer, Service};
use tower_test::mock::{self, Handle, Mock};

/// The key and the number of the request; no key, no order.
pub(crate) type Request = (Option<&'static str>, u32);

pub(crate) type Key = fn(&Request) -> Option<&'static str>;

pub(crate) type Inner = Mock<Request, u32>;

pub(crate) type Keyed = KeyedService<Inner, Key, &'static str>;

pub(crate) type Response = Spawn<<Keyed as Service<Request>>::Future>;

pub(crate) fn key(request: &Request) -> Option<&'static str> {
    request.0
}

pub(crate) fn keyed(semaphore: KeyedSemaphore<&'static str>) -> (Keyed, Handle<Request, u32>) {
    let (inner, mut handle) = mock::pair();
    handle.allow(1_000);
    (
        KeyedLayer::with_semaphore(semaphore, key as Key).layer(inner),
        handle,
    )
}

pub(crate) fn semaphore() -> KeyedSemaphore<&'static str> {
    KeyedSemaphore::default()
}

/// Makes the service ready, which reserves capacity.
pub(crate) fn make_ready<S, F, K, D, R>(service: &mut KeyedService<S, F, K, D>)
where
    KeyedService<S, F, K, D>: Service<R>,
{
    let polled = spawn(()).enter(|cx, _| service.poll_ready(cx));
    assert!(matches!(polled, Poll::Ready(Ok(()))), "there is capacity");
}

/// Calls the service, which takes a place in the lane. The response is polled once.
pub(crate) fn call(service: &mut Keyed, key: &'static str, number: u32) -> Response {
    call_as(service, Some(key), number)
}

pub(crate) fn call_as(service: &mut Keyed, key: Option<&'static str>, number: u32) -> Response {
    assert!(
        spawn(()).enter(|cx, _| service.poll_ready(cx)).is_ready(),
        "there is capacity"
    );
    let mut response = spawn(service.call((key, number)));
    let _first = response.poll();
    response
}

/// What has reached the inner service, as far as it goes without waiting.
pub(crate) fn reached(handle: &mut Handle<Request, u32>) -> Option<(u32, mock::SendResponse<u32>)> {
    let mut next = spawn(handle.next_request());
    match next.poll() {
        Poll::Ready(request) => request.map(|((_, number), answer)| (number, answer)),
        Poll::Pending => None,
    }
}

/// The number of the next request that reached the inner service, answered with the same number.
pub(crate) fn answer(handle: &mut Handle<Request, u32>) -> Option<u32> {
    let (number, answer) = reached(handle)?;
    answer.send_response(number);
    Some(number)
}
