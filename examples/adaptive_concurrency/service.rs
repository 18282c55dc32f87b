//! What the handler asks: a service with so many places, which change.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

/// Clones are the same service.
#[derive(Clone)]
pub(crate) struct Service(Arc<Inner>);

struct Inner {
    places: Arc<Semaphore>,
    open: AtomicUsize,
    /// Calls since it was last asked, and their time together.
    calls: Mutex<(u32, Duration)>,
}

impl Service {
    pub(crate) fn new(places: usize) -> Self {
        Self(Arc::new(Inner {
            places: Arc::new(Semaphore::new(places)),
            open: AtomicUsize::new(places),
            calls: Mutex::default(),
        }))
    }

    /// Waits for a place, and holds it for a while.
    pub(crate) async fn call(&self, lasts: Duration) {
        let called = Instant::now();
        if let Ok(place) = self.0.places.acquire().await {
            sleep(lasts).await;
            drop(place);
        }
        let mut calls = self.0.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.0 += 1;
        calls.1 += called.elapsed();
    }

    /// Has so many places from now on. Calls that have one keep it to their end.
    pub(crate) fn set_places(&self, places: usize) {
        let open = self.0.open.swap(places, Ordering::Relaxed);
        if places >= open {
            self.0.places.add_permits(places - open);
            return;
        }
        let semaphore = Arc::clone(&self.0.places);
        tokio::spawn(async move {
            if let Ok(taken) = semaphore.acquire_many((open - places) as u32).await {
                taken.forget();
            }
        });
    }

    /// The mean latency of the calls that ended since this was last asked; zero if there were none.
    pub(crate) fn take_latency(&self) -> Duration {
        let mut calls = self.0.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, time) = std::mem::take(&mut *calls);
        time.checked_div(count).unwrap_or_default()
    }
}
