//! Handlers that wait until the test answers them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Handlers that wait until the test answers them. Each has a name: an id, or a key.
///
/// A handle: clones hold the same handlers. A [`Gate`](crate::Gate) only lets handlers go on. This
/// also gives each handler an answer.
///
/// ```
/// # use keylane_testkit::scenario::Held;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let held = Held::new();
/// let handler = tokio::spawn(held.wait(7));
/// tokio::task::yield_now().await;
/// assert_eq!(held.names(), [7]);
/// assert!(held.answer(&7, "go on"));
/// assert_eq!(handler.await.unwrap(), Some("go on"));
/// # }
/// ```
pub struct Held<N, A> {
    waiting: Arc<Mutex<BTreeMap<N, oneshot::Sender<A>>>>,
}

impl<N: Ord + Clone, A> Held<N, A> {
    /// Starts without handlers.
    pub fn new() -> Self {
        Self {
            waiting: Arc::default(),
        }
    }

    /// Waits for the answer, from this call on. Returns `None` if a later handler waits under this
    /// name, or if all handlers were released.
    pub fn wait(&self, name: N) -> impl Future<Output = Option<A>> + Send + use<N, A>
    where
        A: Send,
    {
        let (sender, answer) = oneshot::channel();
        self.lock().insert(name, sender);
        async { answer.await.ok() }
    }

    /// Returns the names of the waiting handlers, in order. Dropped handlers are not among them.
    pub fn names(&self) -> Vec<N> {
        let mut waiting = self.lock();
        waiting.retain(|_, handler| !handler.is_closed());
        waiting.keys().cloned().collect()
    }

    /// Answers one handler. Returns false if no handler waits under this name.
    pub fn answer(&self, name: &N, answer: A) -> bool {
        let handler = self.lock().remove(name);
        handler.is_some_and(|handler| handler.send(answer).is_ok())
    }

    /// Gives the same answer to all waiting handlers.
    pub fn answer_all(&self, answer: A)
    where
        A: Clone,
    {
        let waiting = std::mem::take(&mut *self.lock());
        for handler in waiting.into_values() {
            // A handler that was dropped needs no answer.
            let _ = handler.send(answer.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<N, oneshot::Sender<A>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<N: Ord + Clone, A> Default for Held<N, A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<N, A> Clone for Held<N, A> {
    fn clone(&self) -> Self {
        Self {
            waiting: Arc::clone(&self.waiting),
        }
    }
}

impl<N: fmt::Debug + Ord + Clone, A> fmt::Debug for Held<N, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.names()).finish()
    }
}
