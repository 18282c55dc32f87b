//! The service.

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use keylane::{Reserve, Room, Turnstile};
use tower_service::Service;

use crate::error::Error;
use crate::future::ResponseFuture;
use crate::on_drop::{Cancel, OnDrop};

/// Requests of one key reach the inner service one at a time, in the order of their `call`s.
///
/// Made by a [`KeyedLayer`](crate::KeyedLayer). Each request is polled where its response future is:
/// nothing is spawned, boxed or sent to another task.
///
/// # Readiness
///
/// `poll_ready` waits for room for one more request, below the capacity, and keeps it for the next
/// `call` of *this* clone; another clone has to ask for itself. A clone that asked and is not called keeps
/// its room, or its place in the line for it, until it is dropped.
///
/// The inner service is not asked: a request may wait long for its turn, and should not keep one of the
/// inner service's places meanwhile. When its turn has come, the response future makes a clone of the
/// inner service ready and calls that.
pub struct KeyedService<S, F, K, D = Cancel> {
    inner: S,
    key: F,
    turnstile: Turnstile<K>,
    ready: Ready<K>,
    on_drop: PhantomData<fn() -> D>,
}

/// Whether the next `call` has its room.
enum Ready<K> {
    NotAsked,
    Waits(Reserve<K>),
    Has(Room<K>),
}

impl<S, F, K, D> KeyedService<S, F, K, D> {
    pub(crate) fn new(inner: S, key: F, turnstile: Turnstile<K>) -> Self {
        Self {
            inner,
            key,
            turnstile,
            ready: Ready::NotAsked,
            on_drop: PhantomData,
        }
    }

    /// The lanes: to see how full they are, and to close them.
    pub fn turnstile(&self) -> &Turnstile<K> {
        &self.turnstile
    }

    /// The service behind the lanes.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service behind the lanes.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The service behind the lanes. Requests under way are not concerned.
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

    /// Waits for room.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] once the turnstile is closed.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        loop {
            self.ready = match &mut self.ready {
                Ready::Has(_) => return Poll::Ready(Ok(())),
                Ready::NotAsked => match self.turnstile.try_reserve() {
                    Some(room) => Ready::Has(room),
                    None => Ready::Waits(self.turnstile.reserve()),
                },
                Ready::Waits(reserve) => match ready!(Pin::new(reserve).poll(cx)) {
                    Ok(room) => Ready::Has(room),
                    Err(_) => {
                        self.ready = Ready::NotAsked;
                        return Poll::Ready(Err(Error::Closed));
                    }
                },
            };
        }
    }

    /// Takes a place in the lane of the request's key, behind all that were called before.
    ///
    /// # Panics
    ///
    /// If `poll_ready` was not ready before, or the key function panics: then no place is taken.
    fn call(&mut self, request: R) -> Self::Future {
        let Ready::Has(room) = std::mem::replace(&mut self.ready, Ready::NotAsked) else {
            panic!(
                "`call` without a `poll_ready` that was ready: use `ready().await`, or `oneshot`"
            );
        };
        let entered = match (self.key)(&request) {
            Some(key) => room.enter(key).map_err(Error::from),
            None => room.enter_keyless().map_err(Error::from),
        };
        match entered {
            Ok(place) => ResponseFuture::waits(place, self.inner.clone(), request),
            Err(error) => ResponseFuture::failed(error),
        }
    }
}

/// The clone has to become ready for itself.
impl<S: Clone, F: Clone, K, D> Clone for KeyedService<S, F, K, D> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), self.key.clone(), self.turnstile.clone())
    }
}

impl<S: fmt::Debug, F, K, D> fmt::Debug for KeyedService<S, F, K, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedService")
            .field("inner", &self.inner)
            .field("turnstile", &self.turnstile)
            .finish_non_exhaustive()
    }
}
