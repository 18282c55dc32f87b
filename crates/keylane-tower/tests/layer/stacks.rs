//! tower's own layers, above and below.

use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane_tower::{KeyedLayer, KeyedSemaphore};
use tower::load_shed::error::Overloaded;
use tower::retry::Policy;
use tower::timeout::error::Elapsed;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, service_fn};

const SECOND: Duration = Duration::from_secs(1);

type Log = Arc<Mutex<Vec<u32>>>;

/// Takes three seconds, and says when it begins.
fn slow(
    log: &Log,
) -> impl Service<u32, Response = u32, Error = BoxError, Future: Send> + Clone + Send + use<> {
    let log = Arc::clone(log);
    service_fn(move |number: u32| {
        let log = Arc::clone(&log);
        async move {
            log.lock().unwrap().push(number);
            tokio::time::sleep(3 * SECOND).await;
            Ok::<_, BoxError>(number)
        }
    })
}

fn one_key(_: &u32) -> Option<()> {
    Some(())
}

#[tokio::test(start_paused = true)]
async fn a_timeout_outside_counts_the_wait_in_the_lane() {
    let log = Log::default();
    let service = ServiceBuilder::new()
        .timeout(4 * SECOND)
        .layer(KeyedLayer::by_key(one_key))
        .service(slow(&log));
    let [one, two, three] = [1, 2, 3].map(|n| tokio::spawn(service.clone().oneshot(n)));
    assert_eq!(one.await.unwrap().unwrap(), 1);
    // It had its permit after three seconds, and the one that was left was not enough.
    assert!(two.await.unwrap().unwrap_err().is::<Elapsed>());
    assert!(three.await.unwrap().unwrap_err().is::<Elapsed>());
    // The second one left at four seconds, and so did the third, which may have had its permit.
    assert_eq!(log.lock().unwrap()[..2], [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_inside_counts_from_the_permit() {
    let log = Log::default();
    let service = ServiceBuilder::new()
        .layer(KeyedLayer::by_key(one_key))
        .timeout(4 * SECOND)
        .service(slow(&log));
    let all = [1, 2, 3].map(|n| tokio::spawn(service.clone().oneshot(n)));
    for (wanted, response) in (1..).zip(all) {
        assert_eq!(response.await.unwrap().unwrap(), wanted);
    }
    assert_eq!(*log.lock().unwrap(), [1, 2, 3]);
}

/// Once more, at once.
#[derive(Clone)]
struct OnceMore(bool);

impl Policy<u32, u32, BoxError> for OnceMore {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut u32, result: &mut Result<u32, BoxError>) -> Option<Ready<()>> {
        let again = result.is_err() && std::mem::take(&mut self.0);
        again.then(|| ready(()))
    }

    fn clone_request(&mut self, request: &u32) -> Option<u32> {
        Some(*request)
    }
}

/// Waits a little, and fails the first request the first time.
fn shaky(
    log: &Log,
) -> impl Service<u32, Response = u32, Error = BoxError, Future: Send> + Clone + Send + use<> {
    let log = Arc::clone(log);
    service_fn(move |number: u32| {
        let log = Arc::clone(&log);
        async move {
            tokio::time::sleep(SECOND).await;
            let mut log = log.lock().unwrap();
            let fails = number == 1 && !log.contains(&1);
            log.push(number);
            if fails {
                Err("shaky".into())
            } else {
                Ok(number)
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn retries_inside_keep_the_order_of_requests() {
    let log = Log::default();
    let service = ServiceBuilder::new()
        .layer(KeyedLayer::by_key(one_key))
        .retry(OnceMore(true))
        .service(shaky(&log));
    for response in [1, 2].map(|n| tokio::spawn(service.clone().oneshot(n))) {
        response.await.unwrap().unwrap();
    }
    assert_eq!(*log.lock().unwrap(), [1, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn retries_outside_go_to_the_end_of_the_lane() {
    let log = Log::default();
    let service = ServiceBuilder::new()
        .retry(OnceMore(true))
        .map_err(BoxError::from)
        .layer(KeyedLayer::by_key(one_key))
        .service(shaky(&log));
    for response in [1, 2].map(|n| tokio::spawn(service.clone().oneshot(n))) {
        response.await.unwrap().unwrap();
    }
    assert_eq!(*log.lock().unwrap(), [1, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn load_is_shed_at_the_capacity() {
    let log = Log::default();
    let semaphore = KeyedSemaphore::builder()
        .capacity(2)
        .lane_capacity(2)
        .build()
        .unwrap();
    let service = ServiceBuilder::new()
        .load_shed()
        .layer(KeyedLayer::with_semaphore(semaphore, one_key))
        .service(slow(&log));
    let all = [1, 2, 3].map(|n| tokio::spawn(service.clone().oneshot(n)));
    let [one, two, three] = all;
    assert!(three.await.unwrap().unwrap_err().is::<Overloaded>());
    assert_eq!(one.await.unwrap().unwrap(), 1);
    assert_eq!(two.await.unwrap().unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_buffer_keeps_the_order_on_either_side() {
    for outside in [true, false] {
        let log = Log::default();
        let keyed = KeyedLayer::by_key(one_key);
        let inner = slow(&log);
        let call = |n: u32| {
            let (keyed, inner) = (keyed.clone(), inner.clone());
            if outside {
                let stack = ServiceBuilder::new().buffer(8).layer(keyed).service(inner);
                tokio::spawn(stack.oneshot(n))
            } else {
                let stack = ServiceBuilder::new().layer(keyed).buffer(8).service(inner);
                tokio::spawn(async move { Ok(stack.oneshot(n).await?) })
            }
        };
        for response in [1, 2, 3].map(call) {
            response.await.unwrap().unwrap();
        }
        assert_eq!(*log.lock().unwrap(), [1, 2, 3]);
    }
}
