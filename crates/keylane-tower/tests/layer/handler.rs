//! Services as handlers of a dispatcher.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use keylane::error::Failure;
use keylane::{Dispatcher, Retry};
use keylane_tower::{Delivery, ServiceHandler};
use tower::{Service, ServiceBuilder, service_fn};
use tower_test::mock;

#[tokio::test]
async fn a_service_handles_messages() {
    let service = service_fn(|n: u64| async move { Ok::<_, String>(n * 2) });
    let numbers = Dispatcher::builder(|n: &u64| *n)
        .spawn(ServiceHandler::new(service))
        .unwrap();
    assert_eq!(numbers.submit(21).await.unwrap().await.unwrap(), 42);
    assert_eq!(numbers.drain().await.done, 1);
}

#[tokio::test]
async fn readiness_is_back_pressure() {
    let (service, mut handle) = mock::pair::<u64, u64>();
    handle.allow(0);
    let service = ServiceBuilder::new()
        .map_err(|error: tower::BoxError| error.to_string())
        .service(service);
    let numbers = Dispatcher::builder(|n: &u64| *n)
        .capacity(4)
        .concurrency(2)
        .lane_capacity(4, keylane::Overflow::Wait)
        .spawn(ServiceHandler::new(service))
        .unwrap();
    for n in 0..4 {
        numbers.send(n).await.unwrap();
    }
    // Two are in flight and not called, two wait, and the next sender does.
    let fifth = tokio::spawn({
        let numbers = numbers.clone();
        async move { numbers.send(4).await }
    });
    while numbers.stats().in_flight < 2 {
        tokio::task::yield_now().await;
    }
    assert!(numbers.try_send(9).is_err());
    assert!(!fifth.is_finished());
    handle.allow(5);
    for _ in 0..5 {
        let (n, reply) = handle.next_request().await.unwrap();
        reply.send_response(n);
    }
    fifth.await.unwrap().unwrap();
    assert_eq!(numbers.drain().await.done, 5);
}

#[tokio::test(start_paused = true)]
async fn a_service_may_know_which_attempt_it_is() {
    let service = service_fn(|delivery: Delivery<u64, u64>| async move {
        let Delivery { context, message } = delivery;
        assert_eq!(context.key(), Some(&message));
        match context.attempt() {
            3 => Ok(message),
            attempt => Err(format!("attempt {attempt}")),
        }
    });
    let numbers = Dispatcher::builder(|n: &u64| *n)
        .retry(Retry::exponential(std::time::Duration::from_millis(1)).max_attempts(3))
        .spawn(ServiceHandler::new(service).with_context())
        .unwrap();
    assert_eq!(numbers.submit(7).await.unwrap().await.unwrap(), 7);
    assert_eq!(numbers.stats().retries, 2);
}

#[tokio::test]
async fn a_service_that_fails_to_be_ready_is_a_failed_attempt() {
    let (service, mut handle) = mock::pair::<u64, u64>();
    handle.send_error("gone");
    let service = ServiceBuilder::new()
        .map_err(|error: tower::BoxError| error.to_string())
        .service(service);
    let numbers = Dispatcher::builder(|n: &u64| *n)
        .spawn(ServiceHandler::new(service))
        .unwrap();
    let failed = numbers.submit(1).await.unwrap().await.unwrap_err();
    assert!(matches!(
        failed,
        keylane::error::ReceiptError::Failed(Failure::Error(text)) if text == "gone"
    ));
}

/// Its first clone panics.
struct Unclonable(Arc<AtomicBool>);

impl Clone for Unclonable {
    fn clone(&self) -> Self {
        assert!(self.0.swap(true, Ordering::SeqCst), "in clone");
        Self(Arc::clone(&self.0))
    }
}

impl Service<u64> for Unclonable {
    type Response = u64;
    type Error = String;
    type Future = Ready<Result<u64, String>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), String>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, number: u64) -> Self::Future {
        ready(Ok(number))
    }
}

#[tokio::test]
async fn a_handler_whose_clone_panics_costs_one_attempt() {
    let handler = ServiceHandler::new(Unclonable(Arc::default()));
    let numbers = Dispatcher::builder(|_: &u64| 1_u64).spawn(handler).unwrap();
    let [first, second] = [1, 2].map(|n| numbers.try_submit(n).unwrap());
    let failed = first.await.unwrap_err();
    assert!(matches!(
        failed,
        keylane::error::ReceiptError::Failed(Failure::Panicked(_))
    ));
    assert_eq!(second.await.unwrap(), 2);
}
