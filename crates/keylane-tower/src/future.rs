//! The future of a response.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use keylane::{Place, Turn};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::error::Error;
use crate::on_drop::OnDrop;

pin_project! {
    /// The future of a response: waits for the turn of its key, makes the inner service ready, calls it,
    /// and polls its response.
    ///
    /// Its place was taken by the `call`. So one that is neither polled nor dropped holds its key up.
    ///
    /// # Cancel safety
    ///
    /// Dropped before its turn has come, the request leaves its lane at once; those behind it move up.
    /// Dropped while the inner service is not ready, the request has not been called, and the next of its
    /// key has its turn. Dropped after the call, the inner future is dropped, and then the next has its
    /// turn; or it is finished first, with [`finish_dropped`](crate::KeyedLayer::finish_dropped).
    ///
    /// # Panics
    ///
    /// A panic of the inner service, or of its future, goes to whoever polls; the inner future is dropped
    /// and the next of the key has its turn before it does. Should it panic once more while it is
    /// dropped for that, the first panic goes on. Polled again after that, or after it was ready, it
    /// panics.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, R, K, D>
    where
        S: Service<R>,
        K: Eq,
        K: Clone,
        D: OnDrop<S::Future, K>,
    {
        #[pin]
        state: State<S, R, K, D>,
    }
}

pin_project! {
    // What the user gave is dropped before the turn: fields are dropped as they stand here.
    #[project = StateProjection]
    enum State<S, R, K, D>
    where
        S: Service<R>,
        K: Eq,
        K: Clone,
        D: OnDrop<S::Future, K>,
    {
        Waits { work: Option<(S, R)>, place: Place<K> },
        Readies { service: S, request: Option<R>, turn: Option<Turn<K>> },
        Runs { #[pin] flight: D::Flight },
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
    pub(crate) fn waits(place: Place<K>, service: S, request: R) -> Self {
        let state = match place.try_turn() {
            Ok(turn) => State::Readies {
                service,
                request: Some(request),
                turn: Some(turn),
            },
            Err(place) => State::Waits {
                work: Some((service, request)),
                place,
            },
        };
        Self { state }
    }

    pub(crate) fn failed(error: Error<S::Error>) -> Self {
        let error = Some(error);
        Self {
            state: State::Failed { error },
        }
    }
}

type Answer<S, R> = Result<<S as Service<R>>::Response, Error<<S as Service<R>>::Error>>;

impl<S, R, K, D> State<S, R, K, D>
where
    S: Service<R>,
    K: Eq + Clone,
    D: OnDrop<S::Future, K>,
{
    fn advance(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer<S, R>> {
        loop {
            let next = match self.as_mut().project() {
                StateProjection::Waits { work, place } => {
                    let Ok(turn) = ready!(Pin::new(place).poll(cx)) else {
                        return Poll::Ready(Err(Error::Closed));
                    };
                    let (service, request) = work.take().expect("it is called once");
                    State::Readies {
                        service,
                        request: Some(request),
                        turn: Some(turn),
                    }
                }
                StateProjection::Readies {
                    service,
                    request,
                    turn,
                } => {
                    if !cfg!(keylane_mutant = "called-unready")
                        && let Err(error) = ready!(service.poll_ready(cx))
                    {
                        return Poll::Ready(Err(Error::Inner(error)));
                    }
                    let request = request.take().expect("it is called once");
                    let future = service.call(request);
                    let turn = turn.take().expect("it has its turn");
                    State::Runs {
                        flight: D::start(future, turn),
                    }
                }
                StateProjection::Runs { flight } => {
                    return flight.poll(cx).map_err(Error::Inner);
                }
                StateProjection::Failed { error } => {
                    let error = error.take().expect("a response is had once");
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
    type Output = Answer<S, R>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut over = Over(self.project().state);
        let polled = over.0.as_mut().advance(cx);
        if polled.is_pending() || cfg!(keylane_mutant = "turn-kept") {
            std::mem::forget(over);
        }
        polled
    }
}

/// Whether it is ready or unwinds: what was under way is dropped, and then the turn, before anybody hears
/// of it.
struct Over<'a, S, R, K, D>(Pin<&'a mut State<S, R, K, D>>)
where
    S: Service<R>,
    K: Eq + Clone,
    D: OnDrop<S::Future, K>;

impl<S, R, K, D> Drop for Over<'_, S, R, K, D>
where
    S: Service<R>,
    K: Eq + Clone,
    D: OnDrop<S::Future, K>,
{
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return self.0.set(State::Done);
        }
        // A second panic that got out of here would end the process. The first one goes on.
        let done = AssertUnwindSafe(|| self.0.set(State::Done));
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
            State::Waits { .. } => "waits for its turn",
            State::Readies { .. } => "waits for the inner service",
            State::Runs { .. } => "runs",
            State::Failed { .. } => "failed",
            State::Done => "done",
        };
        f.debug_tuple("ResponseFuture").field(&state).finish()
    }
}
