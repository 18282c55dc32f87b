//! The service.

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use keylane_semaphore::{KeyedSemaphore, Reservation, Reserve};
use tower_service::Service;

use crate::error::Error;
use crate::future::ResponseFuture;
use crate::on_drop::{Cancel, OnDrop};

/// A service that calls the inner service with the requests of one key one at a time, in the order
/// of their `call`s.
///
/// A [`KeyedLayer`](crate::KeyedLayer) makes it. A request is polled where its response future is
/// polled: nothing is spawned, boxed or sent to another task.
/// polled: nothing is spawned, boxed or sent to another task.
///
/// # Readiness
///
/// `poll_ready` reserves capacity for one request, and keeps it for the next `call` of *this*
/// clone; another clone reserves its own. A clone that was polled and is not called keeps its
/// reservation, or its place in the line for one, until it is dropped.
///
/// `poll_ready` does not poll the inner service, because a request may wait long for its key and
/// would keep a slot of the inner service meanwhile. When a request has its permit, the response
/// future makes a clone of the inner service ready and calls that clone.
pub struct KeyedService<S, F, K, D = Cancel> {
    inner: S,
    key: F,
    semaphore: KeyedSemaphore<K>,
    readiness: Readiness<K>,
    on_drop: PhantomData<fn() -> D>,
}

/// Whether the next `call` has its reservation.
enum Readiness<K> {
    NotReady,
    Reserving(Reserve<K>),
    Ready(Reservation<K>),
}

impl<S, F, K, D> KeyedService<S, F, K, D> {
    pub(crate) fn new(inner: S, key: F, semaphore: KeyedSemaphore<K>) -> Self {
        Self {
            inner,
            key,
            semaphore,
            readiness: Readiness::NotReady,
            on_drop: PhantomData,
        }
    }

    /// Returns the semaphore of the layer, to see how much of it is used, and to close it.
    pub fn semaphore(&self) -> &KeyedSemaphore<K> {
        &self.semaphore
    }

    /// Returns the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service. Requests that were called before are not affected.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, F, K, D, R> Service<R> for KeyedService<S, F, K, D>
where
    S: Service<R> + Clone,
    F: Fn(&R) -> Option<K>,
    K: Hash + Eq + Clone,
    D: OnDrop<S::Future, K>,
{
    type Response = S::Response;
    type Error = Error<S::Error>;
    type Future = ResponseFuture<S, R, K, D>;

    /// Waits for capacity.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] once the semaphore is closed.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        loop {
            self.readiness = match &mut self.readiness {
                Readiness::Ready(_) => return Poll::Ready(Ok(())),
                Readiness::NotReady => match self.semaphore.try_reserve() {
                    Ok(reservation) => Readiness::Ready(reservation),
                    Err(_) => Readiness::Reserving(self.semaphore.reserve()),
                },
                Readiness::Reserving(reserve) => match ready!(Pin::new(reserve).poll(cx)) {
                    Ok(reservation) => Readiness::Ready(reservation),
                    Err(_) => {
                        self.readiness = Readiness::NotReady;
                        return Poll::Ready(Err(Error::Closed));
                    }
                },
            };
        }
    }

    /// Takes a place in the lane of the request's key, behind all requests that were called before.
    ///
    /// # Panics
    ///
    /// If `poll_ready` was not ready before, or if the key function panics. No place is taken then.
    fn call(&mut self, request: R) -> Self::Future {
        let Readiness::Ready(reservation) =
            std::mem::replace(&mut self.readiness, Readiness::NotReady)
        else {
            panic!("`poll_ready` must be ready before `call`: use `ready().await`, or `oneshot`");
        };
        let acquire = match (self.key)(&request) {
            Some(key) => reservation.acquire(key).map_err(Error::from),
            None => reservation.acquire_keyless().map_err(Error::from),
        };
        match acquire {
            Ok(acquire) => ResponseFuture::acquiring(acquire, self.inner.clone(), request),
            Err(error) => ResponseFuture::failed(error),
        }
    }
}

/// The clone is not ready: it reserves capacity for itself.
impl<S: Clone, F: Clone, K, D> Clone for KeyedService<S, F, K, D> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), self.key.clone(), self.semaphore.clone())
    }
}

impl<S: fmt::Debug, F, K, D> fmt::Debug for KeyedService<S, F, K, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedService")
            .field("inner", &self.inner)
            .field("semaphore", &self.semaphore)
            .finish_non_exhaustive()
    }
}
