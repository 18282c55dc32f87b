//! The future of a response.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use keylane_semaphore::{Acquire, KeyedPermit};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::error::Error;
use crate::on_drop::OnDrop;

pin_project! {
    /// The future of a response: waits for the permit of its key, makes the inner service ready,
    /// calls it, and polls the inner future.
    ///
    /// `call` has taken its place in the lane already. So a response future that is neither polled
    /// nor dropped blocks its key.
    ///
    /// # Errors
    ///
    /// [`Error::LaneFull`] or [`Error::Closed`] if the request was not called, and [`Error::Inner`]
    /// if the inner service failed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped
    /// - before it has its permit, the request leaves its lane at once, and those behind it move
    ///   up;
    /// - while the inner service is not ready, the request is not called, and its permit is given
    ///   back;
    /// - after the call, the inner future is dropped, and then the permit is given back. With
    ///   [`finish_dropped`](crate::KeyedLayer::finish_dropped) the inner future is finished first.
    ///
    /// # Panics
    ///
    /// A panic of the inner service, or of its future, panics in the poll of this future. The inner
    /// future is dropped and the permit is given back before that. If the inner future panics again
    /// while it is dropped, the first panic is the one that goes on. The future also panics if it
    /// is polled again after it was ready or has panicked.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, R, K, D>
    where
        S: Service<R>,
        K: Eq,
        K: Clone,
        D: OnDrop<S::Future, K>,
    {
        #[pin]
        state: ResponseState<S, R, K, D>,
    }
}

pin_project! {
    // Fields are dropped in this order: what the user gave is dropped before the permit, so that
    // the next request of the key starts after it.
    #[project = StateProjection]
    enum ResponseState<S, R, K, D>
    where
        S: Service<R>,
        K: Eq,
        K: Clone,
        D: OnDrop<S::Future, K>,
    {
        Acquiring { work: Option<(S, R)>, acquire: Acquire<K> },
        GettingReady { service: S, request: Option<R>, permit: Option<KeyedPermit<K>> },
        Running { #[pin] in_flight: D::InFlight },
        Failed { error: Option<Error<S::Error>> },
        Done,
    }
}

impl<S, R, K, D> ResponseFuture<S, R, K, D>
where
    S: Service<R>,
    K: Eq + Clone,
    D: OnDrop<S::Future, K>,
{
    pub(crate) fn acquiring(acquire: Acquire<K>, service: S, request: R) -> Self {
        let state = match acquire.try_into_permit() {
            Ok(permit) => ResponseState::GettingReady {
                service,
                request: Some(request),
                permit: Some(permit),
            },
            Err(acquire) => ResponseState::Acquiring {
                work: Some((service, request)),
                acquire,
            },
        };
        Self { state }
    }

    pub(crate) fn failed(error: Error<S::Error>) -> Self {
        let error = Some(error);
        Self {
            state: ResponseState::Failed { error },
        }
    }
}

type ResponseResult<S, R> = Result<<S as Service<R>>::Response, Error<<S as Service<R>>::Error>>;

impl<S, R, K, D> ResponseState<S, R, K, D>
where
    S: Service<R>,
    K: Eq + Clone,
    D: OnDrop<S::Future, K>,
{
    fn advance(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ResponseResult<S, R>> {
        loop {
            let next = match self.as_mut().project() {
                StateProjection::Acquiring { work, acquire } => {
                    let Ok(permit) = ready!(Pin::new(acquire).poll(cx)) else {
                        return Poll::Ready(Err(Error::Closed));
                    };
                    let (service, request) = work.take().expect("this state is left here");
                    ResponseState::GettingReady {
                        service,
                        request: Some(request),
                        permit: Some(permit),
                    }
                }
                StateProjection::GettingReady {
                    service,
                    request,
                    permit,
                } => {
                    if let Err(error) = ready!(service.poll_ready(cx)) {
                        return Poll::Ready(Err(Error::Inner(error)));
                    }
                    let request = request.take().expect("this state is left here");
                    let future = service.call(request);
                    let permit = permit.take().expect("this state is left here");
                    ResponseState::Running {
                        in_flight: D::start(future, permit),
                    }
                }
                StateProjection::Running { in_flight } => {
                    return in_flight.poll(cx).map_err(Error::Inner);
                }
                StateProjection::Failed { error } => {
                    let error = error.take().expect("this state is left here");
                    return Poll::Ready(Err(error));
                }
                StateProjection::Done => panic!("a response future was polled after it was done"),
            };
            self.set(next);
        }
    }
}

impl<S, R, K, D> Future for ResponseFuture<S, R, K, D>
where
    S: Service<R>,
    K: Eq + Clone,
    D: OnDrop<S::Future, K>,
{
    type Output = ResponseResult<S, R>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut finish = FinishOnDrop(self.project().state);
        let polled = finish.0.as_mut().advance(cx);
        if polled.is_pending() {
            std::mem::forget(finish);
        }
        polled
    }
}

/// Drops the inner future and then the permit, when a poll is ready or unwinds, before the caller
/// sees either.
struct FinishOnDrop<'a, S, R, K, D>(Pin<&'a mut ResponseState<S, R, K, D>>)
where
    S: Service<R>,
    K: Eq + Clone,
    D: OnDrop<S::Future, K>;

impl<S, R, K, D> Drop for FinishOnDrop<'_, S, R, K, D>
where
    S: Service<R>,
    K: Eq + Clone,
    D: OnDrop<S::Future, K>,
{
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return self.0.set(ResponseState::Done);
        }
        // A second panic that left this `Drop` would abort the process.
        let done = AssertUnwindSafe(|| self.0.set(ResponseState::Done));
        catch_unwind(done).unwrap_or_else(std::mem::forget);
    }
}

impl<S, R, K, D> fmt::Debug for ResponseFuture<S, R, K, D>
where
    S: Service<R>,
    K: Eq + Clone,
    D: OnDrop<S::Future, K>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            ResponseState::Acquiring { .. } => "acquiring",
            ResponseState::GettingReady { .. } => "getting ready",
            ResponseState::Running { .. } => "running",
            ResponseState::Failed { .. } => "failed",
            ResponseState::Done => "done",
        };
        f.debug_tuple("ResponseFuture").field(&state).finish()
    }
}
