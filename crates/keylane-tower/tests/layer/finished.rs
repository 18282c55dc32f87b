//! Requests that are finished although their response was dropped, and runtimes that shut down.

use std::convert::Infallible;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use keylane_tower::KeyedLayer;
use tokio_test::{assert_pending, task::spawn};
use tower::{Layer, Service};

use crate::support::make_ready;

/// Ready once it is let go. Says when it has finished, and when it was dropped.
#[derive(Clone, Default)]
struct Slow {
    let_go: Arc<AtomicBool>,
    finished: Arc<AtomicBool>,
    throws: bool,
}

impl Service<u32> for Slow {
    type Response = ();
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<(), Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: u32) -> Self::Future {
        let slow = self.clone();
        Box::pin(async move {
            while !slow.let_go.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
            assert!(!slow.throws, "in the task of its own");
            slow.finished.store(true, Ordering::SeqCst);
            Ok(())
        })
    }
}

fn current_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
}

#[test]
fn a_runtime_that_ends_drops_what_it_was_to_finish() {
    let slow = Slow::default();
    let layer = KeyedLayer::by_key(|_: &u32| Some(())).finish_dropped();
    let mut service = layer.layer(slow.clone());
    // Dropped while the runtime stands still, and by a thread that has none.
    let runtime = current_thread();
    make_ready(&mut service);
    let mut first = spawn(service.call(1));
    assert_pending!(runtime.block_on(async { first.poll() }));
    std::thread::spawn(move || drop(first)).join().unwrap();
    assert_eq!(layer.semaphore().len(), 1, "it is to be finished");
    drop(runtime);
    assert_eq!(layer.semaphore().len(), 0);
    // Dropped when the runtime has ended.
    let runtime = current_thread();
    make_ready(&mut service);
    let mut second = spawn(service.call(2));
    assert_pending!(runtime.block_on(async { second.poll() }));
    drop(runtime);
    drop(second);
    assert_eq!(layer.semaphore().len(), 0);
    // In a task that the end of its runtime drops, local or not.
    for local in [true, false] {
        let runtime = current_thread();
        let set = tokio::task::LocalSet::new();
        make_ready(&mut service);
        let third = service.call(3);
        if local {
            set.spawn_local(third);
            set.block_on(&runtime, tokio::task::yield_now());
        } else {
            runtime.spawn(third);
            runtime.block_on(tokio::task::yield_now());
        }
        assert_eq!(layer.semaphore().len(), 1);
        drop(runtime);
        drop(set);
        assert_eq!(layer.semaphore().len(), 0);
    }
    assert!(!slow.finished.load(Ordering::SeqCst));
}

#[test]
fn a_response_that_a_panic_drops_is_finished_too() {
    for throws in [false, true] {
        let slow = Slow {
            throws,
            ..Slow::default()
        };
        let layer = KeyedLayer::by_key(|_: &u32| Some(())).finish_dropped();
        let mut service = layer.layer(slow.clone());
        let runtime = current_thread();
        make_ready(&mut service);
        let mut first = spawn(service.call(1));
        assert_pending!(runtime.block_on(async { first.poll() }));
        let thrown = catch_unwind(AssertUnwindSafe(move || {
            let _first = first;
            panic!("of the caller");
        }));
        assert!(thrown.is_err());
        assert_eq!(layer.semaphore().len(), 1);
        slow.let_go.store(true, Ordering::SeqCst);
        runtime.block_on(async {
            while !layer.semaphore().is_empty() {
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(slow.finished.load(Ordering::SeqCst), !throws);
    }
}
