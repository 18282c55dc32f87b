//! A dispatcher as the end of a stream.

use std::fmt;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Sink;
use tokio_util::sync::ReusableBoxFuture;

use crate::dispatcher::Dispatcher;
use crate::error::SendError;

/// Takes the messages of a stream for a [`Dispatcher`]: [`Dispatcher::sink`].
///
/// It waits for room as [`send`](Dispatcher::send) does, at the capacity and at a full lane, and holds one
/// message meanwhile. A flush is over when that message is *accepted*, and not when it is handled. After
/// closing it takes no more; the dispatcher stays open, and so do other sinks of it.
///
/// As a handle does, a sink keeps the dispatcher's intake open.
///
/// # Errors
///
/// [`SendError`] gives the message back. One that had to wait comes back from the next call of whatever
/// kind. The sink can be used further: a message that is too large says nothing about the next one.
///
/// # Panics
///
/// If the dispatcher's key, size or priority function panics, or the key's `Hash`; the message is gone, and
/// the sink can be used further. Also `start_send`, if the sink was not ready.
///
/// # Cancel safety
///
/// Dropped, a sink drops the message that it holds, if it holds one: that one was not accepted. What was
/// flushed before is not touched. A dropped future of `send` or `feed` of `SinkExt` either drops its message
/// or leaves it in the sink, from where the next call goes on with it.
///
/// # Examples
///
/// ```
/// use futures::{SinkExt, StreamExt, stream};
/// use keylane::Dispatcher;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let orders = Dispatcher::builder(|order: &u64| order % 10)
///     .spawn(|order: u64| async move { Ok::<u64, std::io::Error>(order) })?;
///
/// stream::iter(0..100).map(Ok).forward(orders.sink()).await?;
/// orders.sink().send(100).await?;
///
/// let report = orders.drain().await;
/// assert_eq!(report.done, 101);
/// # Ok(())
/// # }
/// ```
#[must_use = "sinks do nothing unless polled"]
pub struct DispatcherSink<K, M, O = (), E = std::convert::Infallible> {
    dispatcher: Dispatcher<K, M, O, E>,
    /// Made for the first message, and used again for the others.
    sending: Option<ReusableBoxFuture<'static, Result<(), SendError<M>>>>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing is held.
    Ready,
    /// The message in `sending` waits for room.
    Sending,
    /// The message in `sending` waits for room, and no more is taken.
    Closing,
    /// Nothing is held, and no more is taken.
    Closed,
}

impl<K, M, O, E> Dispatcher<K, M, O, E>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    /// A [`Sink`] for messages, for `forward` and `send_all`. Each sink holds at most one.
    ///
    /// A stream of plain messages needs `map(Ok)` before `forward` and `send_all`, which take streams of
    /// `Result`s.
    ///
    /// # Examples
    ///
    /// [At the sink](DispatcherSink#examples).
    pub fn sink(&self) -> DispatcherSink<K, M, O, E> {
        DispatcherSink {
            dispatcher: self.clone(),
            sending: None,
            state: State::Ready,
        }
    }
}

impl<K, M, O, E> DispatcherSink<K, M, O, E> {
    /// Waits until nothing is held.
    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError<M>>> {
        let (before, after) = match self.state {
            State::Ready | State::Closed => return Poll::Ready(Ok(())),
            State::Sending => (State::Sending, State::Ready),
            State::Closing => (State::Closing, State::Closed),
        };
        let sending = self.sending.as_mut();
        let sending = sending.expect("a message that waits is in its future");
        // Should it panic, it is not to be polled again.
        self.state = after;
        let sent = sending.poll(cx);
        if sent.is_pending() {
            self.state = before;
            #[cfg(keylane_mutant = "stream-flush-early")]
            return Poll::Ready(Ok(()));
        }
        sent
    }
}

impl<K, M, O, E> Sink<M> for DispatcherSink<K, M, O, E>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    type Error = SendError<M>;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError<M>>> {
        self.get_mut().poll_sent(cx)
    }

    fn start_send(self: Pin<&mut Self>, message: M) -> Result<(), SendError<M>> {
        let this = self.get_mut();
        match this.state {
            State::Ready => {}
            State::Closed => return Err(SendError::Closed(message)),
            State::Sending | State::Closing => {
                panic!("`start_send` must wait until `poll_ready` is ready")
            }
        }
        let dispatcher = this.dispatcher.clone();
        let send = async move { dispatcher.send(message).await };
        match &mut this.sending {
            Some(sending) => sending.set(send),
            none => *none = Some(ReusableBoxFuture::new(send)),
        }
        this.state = State::Sending;
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError<M>>> {
        self.get_mut().poll_sent(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError<M>>> {
        let this = self.get_mut();
        this.state = match this.state {
            State::Ready | State::Closed => State::Closed,
            State::Sending | State::Closing => State::Closing,
        };
        this.poll_sent(cx)
    }
}

impl<K, M, O, E> fmt::Debug for DispatcherSink<K, M, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the message: it is the user's.
        f.debug_struct("DispatcherSink")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
