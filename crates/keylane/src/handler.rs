//! The trait that users implement: the work for one message.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use keylane_rt::Arc;
use keylane_rt::clock::Instant;
use tokio_util::sync::CancellationToken;

/// The context of one attempt.
#[derive(Clone)]
pub struct Context<K> {
    pub(crate) key: Option<K>,
    pub(crate) attempt: u32,
    details: Arc<Details>,
}

/// What is the same for all attempts of a dispatcher, unless it has deadlines, versions or leases.
///
/// Behind one pointer, because each handler in flight has a context.
#[derive(Debug)]
pub(crate) struct Details {
    cancel: CancellationToken,
    deadline: Option<Instant>,
    /// The version of the message, where lanes sequence.
    version: u64,
    is_leased: bool,
    /// Of the lease of the key. Written only where nothing else has these details.
    lease_token: AtomicU64,
    /// When it ends, as the engine says it.
    lease_end: AtomicU64,
}

impl Details {
    pub(crate) fn new(cancel: CancellationToken, is_leased: bool) -> Self {
        Self {
            cancel,
            deadline: None,
            version: 0,
            is_leased,
            lease_token: AtomicU64::new(0),
            lease_end: AtomicU64::new(0),
        }
    }
}

impl Clone for Details {
    fn clone(&self) -> Self {
        Self {
            cancel: self.cancel.clone(),
            deadline: self.deadline,
            version: self.version,
            is_leased: self.is_leased,
            lease_token: AtomicU64::new(self.lease_token.load(Ordering::Relaxed)),
            lease_end: AtomicU64::new(self.lease_end.load(Ordering::Relaxed)),
        }
    }
}

impl<K> Context<K> {
    /// The context of a runner that has no message yet.
    pub(crate) fn new(details: Arc<Details>) -> Self {
        Self {
            key: None,
            attempt: 0,
            details,
        }
    }

    /// Sets the deadline of the next attempt, in details of its own.
    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) {
        Arc::make_mut(&mut self.details).deadline = deadline;
    }

    pub(crate) fn instant_of_deadline(&self) -> Option<Instant> {
        self.details.deadline
    }

    /// Sets the version of the next message; 0 without one.
    #[inline]
    pub(crate) fn set_version(&mut self, version: u64) {
        if self.details.version != version {
            Arc::make_mut(&mut self.details).version = version;
        }
    }

    /// Sets the lease of the next attempt at a message that has a key: its fencing token, and when
    /// it ends.
    #[inline]
    pub(crate) fn set_lease(&mut self, token: u64, end: u64) {
        // A handler may have cloned the context, and goes on with its own token. To ask whether it
        // has takes a read; `Arc::make_mut` writes for it, and this is done for each message.
        if Arc::strong_count(&self.details) > 1 {
            self.details = Arc::new(Details::clone(&self.details));
        }
        // What other threads have read through their clones is behind us.
        fence(Ordering::Acquire);
        self.details.lease_token.store(token, Ordering::Relaxed);
        self.details.lease_end.store(end, Ordering::Relaxed);
    }

    /// What [`set_lease`](Self::set_lease) was told last.
    #[inline]
    pub(crate) fn lease(&self) -> (u64, u64) {
        let details = &self.details;
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        (load(&details.lease_token), load(&details.lease_end))
    }

    pub(crate) fn version(&self) -> u64 {
        self.details.version
    }

    /// Returns the key of the message, or `None` for a keyless message.
    pub fn key(&self) -> Option<&K> {
        self.key.as_ref()
    }

    /// Returns the number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the fencing token of the lease of the key, where lanes are
    /// [leased](crate::Builder::leased_by); `None` for a message without a key.
    ///
    /// The token is higher than the tokens of all earlier holders of the key. A process that was
    /// paused past its lease cannot know that. So a write that must not be late carries the token,
    /// and is refused where a higher token has been seen.
    pub fn lease_token(&self) -> Option<u64> {
        let is_leased = self.details.is_leased && self.key.is_some();
        is_leased.then(|| self.details.lease_token.load(Ordering::Relaxed))
    }

    /// Returns when the attempt is dropped, if there is an attempt time-out.
    pub fn deadline(&self) -> Option<tokio::time::Instant> {
        let deadline = self.instant_of_deadline();
        deadline.map(tokio::time::Instant::from_std)
    }

    /// Returns the time until the deadline, if there is one, by the clock of the calling thread's
    /// runtime. In the handler that is the dispatcher's runtime; elsewhere it differs only while a
    /// test pauses time.
    pub fn time_left(&self) -> Option<Duration> {
        self.instant_of_deadline()
            .map(|deadline| deadline.saturating_duration_since(keylane_rt::clock::now()))
    }

    /// Returns whether `close` or `abort` was called on the dispatcher, so that a long handler can
    /// stop at a good place instead of being dropped at a bad one. `drain` does not ask for it.
    pub fn is_cancelled(&self) -> bool {
        self.details.cancel.is_cancelled()
    }

    /// Waits until [`is_cancelled`](Self::is_cancelled).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does nothing.
    pub async fn cancelled(&self) {
        self.details.cancel.cancelled().await;
    }
}

impl<K> fmt::Debug for Context<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("attempt", &self.attempt)
            .field("deadline", &self.details.deadline)
            .field("cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// The work for one message.
///
/// A closure is enough, with or without the context; a type implements the trait when it has state
/// or a name. The handler returns a `Result`: [`Retry`](crate::Retry) and
/// [`OnExhausted`](crate::OnExhausted) decide what happens after an error. Ignore the type
/// parameter `Args`: it distinguishes the kinds of closures.
///
/// The handler is never run for two messages of one key at the same time. Its future is dropped
/// at the time-out of an attempt and on `abort`, at whichever await it has reached.
///
/// A handler that blocks its thread keeps one of the runtime's workers from every other key. Use
/// `spawn_blocking` and await that; or `block_in_place`, and set
/// [`Builder::blocking_handlers`](crate::Builder::blocking_handlers).
///
/// # Examples
///
/// ```
/// use keylane::{Context, Handler};
///
/// struct Biller;
///
/// impl Handler<u64, String> for Biller {
///     type Output = usize;
///     type Error = std::io::Error;
///
///     async fn handle(&self, ctx: &Context<u64>, order: String) -> Result<usize, Self::Error> {
///         println!("attempt {} for user {:?}", ctx.attempt(), ctx.key());
///         Ok(order.len())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot handle messages of type `{M}` with keys of type `{K}`",
    label = "not a handler for this dispatcher",
    note = "a handler is an async closure over the message that returns a `Result`: \
            `|message: {M}| async move {{ Ok::<_, MyError>(()) }}`",
    note = "with the context it takes two arguments: \
            `|ctx: Context<{K}>, message: {M}| async move {{ Ok::<_, MyError>(()) }}`",
    note = "its future must be `Send`: no `Rc`, `RefCell` guard or `std::sync::MutexGuard` may be \
            alive across an `.await`",
    note = "both arguments are taken by value, the context first; the error is \
            `Debug + Send + Sync + 'static` (for a boxed one: `Box<dyn Error + Send + Sync>`)"
)]
pub trait Handler<K, M, Args = ()>: Send + Sync + 'static {
    /// The answer of the handler; a receipt resolves with it.
    type Output: Send + 'static;

    /// The error of a failed attempt.
    type Error: fmt::Debug + Send + Sync + 'static;

    /// Handles one message, once.
    fn handle(
        &self,
        context: &Context<K>,
        message: M,
    ) -> impl Future<Output = Result<Self::Output, Self::Error>> + Send;
}

/// Marks closures that take the message.
#[doc(hidden)]
#[derive(Debug)]
pub struct OfMessage;

/// Marks closures that take the context and the message.
#[doc(hidden)]
#[derive(Debug)]
pub struct OfContextAndMessage;

impl<K, M, F, Fut, O, E> Handler<K, M, OfMessage> for F
where
    F: Fn(M) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, E>> + Send,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    type Output = O;
    type Error = E;

    fn handle(&self, _: &Context<K>, message: M) -> impl Future<Output = Result<O, E>> + Send {
        self(message)
    }
}

impl<K, M, F, Fut, O, E> Handler<K, M, OfContextAndMessage> for F
where
    K: Clone,
    F: Fn(Context<K>, M) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, E>> + Send,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    type Output = O;
    type Error = E;

    fn handle(
        &self,
        context: &Context<K>,
        message: M,
    ) -> impl Future<Output = Result<O, E>> + Send {
        self(context.clone(), message)
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;

    #[test]
    fn a_clone_keeps_the_token_of_its_attempt() {
        let details = Arc::new(Details::new(CancellationToken::new(), true));
        let mut context = Context::new(Arc::clone(&details));
        context.key = Some("key");
        context.set_lease(7, 0);
        let kept = context.clone();
        context.set_lease(8, 0);
        assert_eq!(
            (kept.lease_token(), context.lease_token()),
            (Some(7), Some(8))
        );
        assert_eq!(Context::<()>::new(details).lease_token(), None);
    }
}
