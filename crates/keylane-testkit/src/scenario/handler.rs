//! Handlers of one type, and the builder of the dispatchers that they run in.

use std::pin::Pin;

use bytes::Bytes;
use keylane::error::BoxError;
use keylane::source::RawMessage;
use keylane::{Builder, Dispatcher};

/// The type of the handlers that [`boxed`] returns.
///
/// Such a handler takes a message of type `M` and has no answer. It may fail with any error.
pub type BoxHandler<M> =
    Box<dyn Fn(M) -> Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>> + Send + Sync>;

/// Boxes a handler and its futures.
///
/// Each closure has a type of its own, and the compiler compiles the engine once for each set of
/// types that a dispatcher has. All boxed handlers of one type of message share one type,
/// [`BoxHandler`], and tests that share a type compile faster. A boxed handler allocates a future
/// for each attempt.
///
/// ```
/// use keylane::source::RawMessage;
/// use keylane_testkit::scenario::{boxed, by_key, paused};
///
/// paused().block_on(async {
///     let dispatcher = by_key()
///         .spawn(boxed(|message: RawMessage| async move {
///             if message.payload.is_empty() {
///                 return Err("the payload is empty".into());
///             }
///             Ok(())
///         }))
///         .unwrap();
///     dispatcher.send(RawMessage::new("paid").key("order 7")).await.unwrap();
///     assert_eq!(dispatcher.drain().await.done, 1);
/// });
/// ```
pub fn boxed<M, F>(handler: impl Fn(M) -> F + Send + Sync + 'static) -> BoxHandler<M>
where
    M: 'static,
    F: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    Box::new(move |message| Box::pin(handler(message)))
}

/// Returns the builder of a dispatcher of [`RawMessage`]s, with all settings at their defaults. The
/// dispatcher handles the messages of a key in order.
///
/// Each closure that reads a key has a type of its own, as each handler has. Tests that call this
/// function share one such type, and the compiler compiles what depends on it once.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use keylane::source::RawMessage;
/// use keylane_testkit::scenario::{boxed, by_key, paused};
///
/// paused().block_on(async {
///     let seen = Arc::new(Mutex::new(Vec::new()));
///     let theirs = Arc::clone(&seen);
///     let handler = boxed(move |message: RawMessage| {
///         theirs.lock().unwrap().push(message.payload);
///         async { Ok(()) }
///     });
///     let dispatcher = by_key().spawn(handler).unwrap();
///     for payload in ["created", "paid", "sent"] {
///         dispatcher.send(RawMessage::new(payload).key("order 7")).await.unwrap();
///     }
///     dispatcher.drain().await;
///     assert_eq!(*seen.lock().unwrap(), ["created", "paid", "sent"]);
/// });
/// ```
pub fn by_key() -> Builder<
    Bytes,
    RawMessage,
    BoxError,
    impl Fn(&RawMessage) -> Option<Bytes> + Send + Sync + 'static,
> {
    Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
}
