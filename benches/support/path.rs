//! What is put on the clock: a flood of messages, or round trips.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use keylane::Dispatcher;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::batch::{Keys, Message, handle, handled, until_handled};

/// A way through a dispatcher or a floor.
pub(crate) trait Path: Send + Sync + 'static {
    /// Messages in one round.
    const MESSAGES: u64;

    /// Goes that way, and says how long it took.
    fn walk(&self, rounds: u64) -> impl Future<Output = Duration> + Send;
}

/// Batches, as fast as they go in; each timed until its last message is handled.
pub(crate) struct Flood<I> {
    intake: I,
    keys: Keys,
    /// Where the next batch begins.
    sent: AtomicU64,
}

/// Messages that each wait for the answer to the one before.
pub(crate) struct RoundTrips<I>(pub(crate) I);

/// What takes messages.
pub(crate) trait Intake: Send + Sync + 'static {
    fn put(&self, message: Message) -> impl Future<Output = ()> + Send;
}

/// What answers messages.
pub(crate) trait Answers: Send + Sync + 'static {
    fn ask(&self, message: Message) -> impl Future<Output = ()> + Send;
}

pub(crate) type Lanes = Dispatcher<u64, Message, (), Infallible>;

/// A task per message, behind a semaphore, that is pending once.
pub(crate) struct Spawns(pub(crate) Arc<Semaphore>);

/// A task per message, and a channel for its answer.
pub(crate) struct SpawnsAndAnswers;

impl<I> Flood<I> {
    pub(crate) fn new(intake: I, keys: Keys) -> Self {
        Self {
            intake,
            keys,
            sent: AtomicU64::new(0),
        }
    }
}

impl<I: Intake> Path for Flood<I> {
    const MESSAGES: u64 = 50_000;

    async fn walk(&self, rounds: u64) -> Duration {
        let mut took = Duration::ZERO;
        for _ in 0..rounds {
            let first = self.sent.fetch_add(Self::MESSAGES, Ordering::Relaxed);
            let all = handled() + Self::MESSAGES;
            let begin = Instant::now();
            for n in first..first + Self::MESSAGES {
                self.intake.put(Message::new(self.keys, n)).await;
            }
            until_handled(all).await;
            took += begin.elapsed();
        }
        took
    }
}

impl<I: Answers> Path for RoundTrips<I> {
    const MESSAGES: u64 = 1_000;

    async fn walk(&self, rounds: u64) -> Duration {
        let begin = Instant::now();
        for n in 0..rounds * Self::MESSAGES {
            self.0.ask(Message::new(Keys::Cycle(1_000), n)).await;
        }
        begin.elapsed()
    }
}

impl Intake for Lanes {
    async fn put(&self, message: Message) {
        // It is closed only when the runtime is gone.
        let _ = self.send(message).await;
    }
}

impl Intake for mpsc::Sender<Message> {
    async fn put(&self, message: Message) {
        let _ = self.send(message).await;
    }
}

impl Intake for Spawns {
    async fn put(&self, message: Message) {
        let permit = Arc::clone(&self.0).acquire_owned().await;
        tokio::spawn(async move {
            let Ok(()) = handle_pending_once(message).await;
            drop(permit);
        });
    }
}

impl Answers for Lanes {
    async fn ask(&self, message: Message) {
        let receipt = self.submit(message).await.expect("it is open");
        receipt.await.expect("the handler does not fail");
    }
}

impl Answers for SpawnsAndAnswers {
    async fn ask(&self, message: Message) {
        let (reply, answer) = oneshot::channel();
        tokio::spawn(async move {
            let Ok(()) = handle(message).await;
            // The asking task is waiting for it.
            let _ = reply.send(());
        });
        answer.await.expect("the task answers");
    }
}

/// A handler that needs a task of its own: it is pending once, and woken at once.
pub(crate) async fn handle_pending_once(message: Message) -> Result<(), Infallible> {
    let mut woken = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut woken, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    handle(message).await
}
