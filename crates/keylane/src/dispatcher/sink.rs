//! A dispatcher as a sink.

use std::fmt;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Sink;
use tokio_util::sync::ReusableBoxFuture;

use crate::dispatcher::Dispatcher;
use crate::error::SendError;

/// A [`Sink`] that sends its items to a [`Dispatcher`]: see [`Dispatcher::sink`].
///
/// At the capacity and at a full lane it waits for room as [`send`](Dispatcher::send) does, and
/// holds one message meanwhile. A flush is complete when that message is *accepted*, not when it is
/// handled. A closed sink takes no more messages; the dispatcher and its other sinks stay open.
///
/// Like a handle, a sink keeps the dispatcher's intake open.
///
/// # Errors
///
/// [`SendError`] gives the message back. A message that had to wait is given back by the next call,
/// whichever it is. The sink stays usable: after a message that is too large, the next one may fit.
///
/// # Panics
///
/// If the dispatcher's key, size or priority function panics, or the key's `Hash`. The message is
/// lost, and the sink stays usable. `start_send` panics also if the sink was not ready.
///
/// # Cancel safety
///
/// If a sink is dropped, the message that it holds, if any, is dropped too: it was not accepted.
/// Messages that were flushed before are not affected. If a future of `send` or `feed` of `SinkExt`
/// is dropped, its message is either dropped or stays in the sink, and the next call continues with
/// it.
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
    /// Allocated for the first message, and reused for the others.
    sending: Option<ReusableBoxFuture<'static, Result<(), SendError<M>>>>,
    state: SinkState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SinkState {
    /// It holds no message.
    Ready,
    /// The message in `sending` waits for room.
    Sending,
    /// The message in `sending` waits for room, and no further message is taken.
    Closing,
    /// It holds no message and takes none.
    Closed,
}

impl<K, M, O, E> Dispatcher<K, M, O, E>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    /// Returns a [`Sink`] for messages, for `forward` and `send_all`. Each sink holds at most one
    /// message.
    ///
    /// A stream of plain messages needs `map(Ok)` before `forward` and `send_all`, which take
    /// streams of `Result`s.
    ///
    /// # Examples
    ///
    /// [See `DispatcherSink`](DispatcherSink#examples).
    pub fn sink(&self) -> DispatcherSink<K, M, O, E> {
        DispatcherSink {
            dispatcher: self.clone(),
            sending: None,
            state: SinkState::Ready,
        }
    }
}

impl<K, M, O, E> DispatcherSink<K, M, O, E> {
    /// Waits until the sink holds no message.
    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError<M>>> {
        let (before, after) = match self.state {
            SinkState::Ready | SinkState::Closed => return Poll::Ready(Ok(())),
            SinkState::Sending => (SinkState::Sending, SinkState::Ready),
            SinkState::Closing => (SinkState::Closing, SinkState::Closed),
        };
        let sending = self.sending.as_mut();
        let sending = sending.expect("a message that waits is in its future");
        // Set before the poll: a future that panics must not be polled again.
        self.state = after;
        let sent = sending.poll(cx);
        if sent.is_pending() {
            self.state = before;
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
            SinkState::Ready => {}
            SinkState::Closed => return Err(SendError::Closed(message)),
            SinkState::Sending | SinkState::Closing => {
                panic!("`start_send` must wait until `poll_ready` is ready")
            }
        }
        let dispatcher = this.dispatcher.clone();
        let send = async move { dispatcher.send(message).await };
        match &mut this.sending {
            Some(sending) => sending.set(send),
            none => *none = Some(ReusableBoxFuture::new(send)),
        }
        this.state = SinkState::Sending;
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError<M>>> {
        self.get_mut().poll_sent(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError<M>>> {
        let this = self.get_mut();
        this.state = match this.state {
            SinkState::Ready | SinkState::Closed => SinkState::Closed,
            SinkState::Sending | SinkState::Closing => SinkState::Closing,
        };
        this.poll_sent(cx)
    }
}

impl<K, M, O, E> fmt::Debug for DispatcherSink<K, M, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The message is the user's and is not shown.
        f.debug_struct("DispatcherSink")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
