//! The handle: where messages come in.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use super::admission::Room;
use super::ending::Ending;
use super::lane::Lane;
use super::permit::Permit;
use super::receipt::Receipt;
use crate::clock::Instant;
use crate::discipline::Version;
use crate::engine::{Accepted, Debt, Engine, Reply, Stage};
use crate::error::{ReserveError, SendError, TrySendError};
use crate::lane::LaneView;
use crate::observe::Stats;
use crate::rt::{Arc, mpsc, oneshot};
use crate::types::Of;

/// Takes messages, keeps the order of each key, and runs the handler for them.
///
/// A handle is cheap to clone, and all clones feed the same lanes. When the last one is dropped
/// the dispatcher closes: no more comes in, and what was accepted is still handled, as long as the
/// runtime lives. Nobody gets a report then, and halted messages without a receipt are dropped. To
/// wait for the end and to know how it went, call [`drain`](Self::drain), [`close`](Self::close)
/// or [`abort`](Self::abort). A clone inside the handler keeps the dispatcher open.
///
/// Type parameters: the key, the message, the handler's answer, the handler's error. As a field of
/// yours it is `Dispatcher<AccountId, Payment, Booked, PayError>`; the defaults fit only a handler
/// that answers nothing and cannot fail.
///
/// # Examples
///
/// ```
/// use keylane::Dispatcher;
///
/// struct Order { user: u64, cents: u64 }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let orders = Dispatcher::builder(|order: &Order| order.user)
///     .spawn(|order: Order| async move { Ok::<u64, std::io::Error>(order.cents * 2) })?;
///
/// orders.send(Order { user: 7, cents: 100 }).await?;
/// let receipt = orders.submit(Order { user: 7, cents: 250 }).await?;
/// assert_eq!(receipt.await?, 500);
///
/// let report = orders.drain().await;
/// assert_eq!((report.accepted, report.done), (2, 2));
/// # Ok(())
/// # }
/// ```
pub struct Dispatcher<K, M, O = (), E = std::convert::Infallible> {
    pub(crate) engine: Arc<Engine<Of<K, M, O, E>>>,
    pub(super) channel: mpsc::UnboundedSender<Accepted<Of<K, M, O, E>>>,
    pub(super) address: Arc<Address<K, M>>,
}

/// How to find a message's key, its hash and its size: the user's functions, boxed once.
pub(super) struct Address<K, M> {
    /// The key, and its hash in the same call; 0 without a key.
    pub(super) locate: Locate<K, M>,
    pub(super) hash: Box<dyn Fn(&K) -> u64 + Send + Sync>,
    pub(super) weigh: Option<Weigh<M>>,
    pub(super) version: Option<Arc<Version<M>>>,
    pub(super) lifetime: Option<Lifetime<M>>,
    pub(super) class: Option<ClassOf<M>>,
    /// Whether any of the last three is there, to be asked of each message.
    pub(super) asks: bool,
}

/// How long a message may wait for its start.
pub(super) type Lifetime<M> = Box<dyn Fn(&M) -> Option<Duration> + Send + Sync>;

impl<K, M> Address<K, M> {
    /// The size of a message against the capacity in bytes; 0 where there is none.
    #[inline]
    pub(super) fn weigh(&self, message: &M, limit: Option<usize>) -> Result<u32, TooLarge> {
        let (Some(weigh), Some(limit)) = (&self.weigh, limit) else {
            return Ok(0);
        };
        let weight = weigh(message);
        match u32::try_from(weight) {
            Ok(fits) if weight <= limit => Ok(fits),
            _ => Err(TooLarge),
        }
    }
}

/// A message above the capacity in bytes, which would wait for ever.
pub(super) struct TooLarge;

pub(super) type Locate<K, M> = Box<dyn Fn(&M) -> (Option<K>, u64) + Send + Sync>;
/// The class of a message, which is one that exists.
pub(super) type ClassOf<M> = Box<dyn Fn(&M) -> u8 + Send + Sync>;
pub(super) type Weigh<M> = Box<dyn Fn(&M) -> usize + Send + Sync>;

impl<K, M, O, E> Dispatcher<K, M, O, E>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    /// Waits for room, then puts the message into the lane of its key.
    ///
    /// With `Ok` the message is *accepted*: it will settle exactly once. Messages that one task
    /// sends one after the other are accepted in that order.
    ///
    /// # Errors
    ///
    /// [`SendError::Closed`] after `drain`, `close` or `abort`, or when the runtime is gone;
    /// [`SendError::LaneFull`] if the lane is full and the policy is to reject;
    /// [`SendError::TooLarge`] for a message above the capacity in bytes. Each gives it back.
    ///
    /// # Panics
    ///
    /// If the key, size or priority function or the key's `Hash` panics. Nothing is accepted.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is ready, nothing was accepted, no room is taken, and the message is
    /// dropped with the future. To keep the message, [`reserve`](Self::reserve) first.
    pub async fn send(&self, message: M) -> Result<(), SendError<M>> {
        self.post(message, None, || None).await
    }

    /// Like [`send`](Self::send), for a message that is not to start before `at`.
    ///
    /// It is accepted now and takes up room. What the messages behind it do is the setting
    /// [`delayed`](crate::Builder::delayed). [`drain`](Self::drain) waits for it.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    ///
    /// # Panics
    ///
    /// As [`send`](Self::send).
    ///
    /// # Cancel safety
    ///
    /// As [`send`](Self::send).
    pub async fn send_at(&self, message: M, at: tokio::time::Instant) -> Result<(), SendError<M>> {
        self.post(message, None, || Some(at.into_std())).await
    }

    /// Like [`send_at`](Self::send_at), for a message that is not to start before `delay` has passed.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and [`SendError::TooFar`] for a time that does not exist.
    ///
    /// # Panics
    ///
    /// As [`send`](Self::send).
    ///
    /// # Cancel safety
    ///
    /// As [`send`](Self::send).
    pub async fn send_after(&self, message: M, delay: Duration) -> Result<(), SendError<M>> {
        match crate::clock::now().checked_add(delay) {
            Some(at) => self.post(message, None, || Some(at)).await,
            None => Err(SendError::TooFar(message)),
        }
    }

    /// Like [`send_after`](Self::send_after), and returns a receipt.
    ///
    /// # Errors
    ///
    /// As [`send_after`](Self::send_after).
    ///
    /// # Panics
    ///
    /// As [`send`](Self::send).
    ///
    /// # Cancel safety
    ///
    /// As [`send`](Self::send).
    pub async fn submit_after(
        &self,
        message: M,
        delay: Duration,
    ) -> Result<Receipt<M, O, E>, SendError<M>> {
        let Some(at) = crate::clock::now().checked_add(delay) else {
            return Err(SendError::TooFar(message));
        };
        let (reply, answer) = oneshot::channel();
        self.post(message, Some(reply), || Some(at)).await?;
        Ok(Receipt { answer })
    }

    /// Like [`send`](Self::send), and returns a receipt that resolves with the handler's answer.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    ///
    /// # Panics
    ///
    /// As [`send`](Self::send).
    ///
    /// # Cancel safety
    ///
    /// As [`send`](Self::send).
    pub async fn submit(&self, message: M) -> Result<Receipt<M, O, E>, SendError<M>> {
        let (reply, answer) = oneshot::channel();
        self.post(message, Some(reply), || None).await?;
        Ok(Receipt { answer })
    }

    /// Accepts the message if there is room at once.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and [`TrySendError::Full`] at capacity. Each gives it back.
    ///
    /// # Panics
    ///
    /// As [`send`](Self::send).
    pub fn try_send(&self, message: M) -> Result<(), TrySendError<M>> {
        self.try_post(message, None)
    }

    /// Like [`try_send`](Self::try_send), and returns a receipt.
    ///
    /// # Errors
    ///
    /// As [`try_send`](Self::try_send).
    ///
    /// # Panics
    ///
    /// As [`send`](Self::send).
    pub fn try_submit(&self, message: M) -> Result<Receipt<M, O, E>, TrySendError<M>> {
        let (reply, answer) = oneshot::channel();
        self.try_post(message, Some(reply))?;
        Ok(Receipt { answer })
    }

    /// Waits for room for one message, before there is a message.
    ///
    /// # Errors
    ///
    /// [`ReserveError`] when the dispatcher takes no more messages.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is ready, no room is taken; the place in the queue for room is lost.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use keylane::Dispatcher;
    /// # let orders = Dispatcher::builder(|order: &u64| order % 10)
    /// #     .spawn(|_: u64| async move { Ok::<(), std::io::Error>(()) })?;
    /// # let mut source = vec![1, 2, 3];
    /// // Take a message from its source only when there is room for it.
    /// let permit = orders.reserve().await?;
    /// if let Some(order) = source.pop() {
    ///     permit.send(order)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn reserve(&self) -> Result<Permit<'_, K, M, O, E>, ReserveError> {
        match self.engine.capacity.acquire().await {
            Ok(count) => Ok(Permit {
                dispatcher: self,
                count,
            }),
            Err(_) => Err(ReserveError),
        }
    }

    /// No more in; what is in is handled to its end, retries included.
    ///
    /// Halted and paused lanes cannot come to an end and are handed back. Without a deadline
    /// ([`Ending::within`]) this waits as long as the handlers, the retries and the dead-letter
    /// sink take, and for messages that are delayed, keys above their rate, and the
    /// [`gap_timeout`](crate::Sequence::gap_timeout) of missing versions.
    pub fn drain(&self) -> Ending<K, M, O, E> {
        Ending::new(Arc::clone(&self.engine), Stage::Draining)
    }

    /// No more in; what is in flight is finished, the rest is handed back unhandled.
    ///
    /// Handlers are asked to finish early through [`Context::cancelled`](crate::Context).
    pub fn close(&self) -> Ending<K, M, O, E> {
        Ending::new(Arc::clone(&self.engine), Stage::Closing)
    }

    /// No more in; handlers in flight are dropped, everything is handed back.
    pub fn abort(&self) -> Ending<K, M, O, E> {
        Ending::new(Arc::clone(&self.engine), Stage::Aborting)
    }

    /// Whether the dispatcher takes no more messages.
    pub fn is_closed(&self) -> bool {
        self.engine.shutdown.stage() > Stage::Open
    }

    /// Counters and gauges. Never a walk over the lanes.
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// The lane of a key, to look at or to act on. The lane need not exist.
    pub fn lane(&self, key: &K) -> Lane<K, M, O, E> {
        let hash = (self.address.hash)(key);
        Lane {
            engine: Arc::clone(&self.engine),
            address: Arc::clone(&self.address),
            key: key.clone(),
            hash,
        }
    }

    /// How deep the lane of a key is, and why it waits; `None` if nothing of this key is here.
    pub fn inspect(&self, key: &K) -> Option<LaneView> {
        self.lane(key).inspect()
    }

    async fn post(
        &self,
        message: M,
        reply: Option<Reply<Of<K, M, O, E>>>,
        not_before: impl FnOnce() -> Option<Instant>,
    ) -> Result<(), SendError<M>> {
        let (key, hash) = (self.address.locate)(&message);
        match self.room(key.as_ref(), hash, &message).await {
            Ok(room) => self
                .put(room, key, hash, message, reply, not_before())
                .map_err(SendError::Closed),
            Err(refusal) => Err(refusal.of_waiting(message)),
        }
    }

    fn try_post(
        &self,
        message: M,
        reply: Option<Reply<Of<K, M, O, E>>>,
    ) -> Result<(), TrySendError<M>> {
        let (key, hash) = (self.address.locate)(&message);
        match self.try_room(key.as_ref(), hash, &message) {
            Ok(room) => self
                .put(room, key, hash, message, reply, None)
                .map_err(TrySendError::Closed),
            Err(refusal) => Err(refusal.of(message)),
        }
    }

    /// From here on the message is accepted, or comes back at once: there is no await in between.
    #[inline]
    pub(super) fn put(
        &self,
        room: Room<'_>,
        key: Option<K>,
        hash: u64,
        message: M,
        reply: Option<Reply<Of<K, M, O, E>>>,
        not_before: Option<Instant>,
    ) -> Result<(), M> {
        let mut debt = Debt::new(room.weight, reply);
        if self.address.asks || not_before.is_some() {
            self.set_terms(&message, not_before, &mut debt);
        }
        let accepted = Accepted {
            key,
            hash,
            message,
            debt,
        };
        match self.channel.send(accepted) {
            Ok(()) => {
                room.keep();
                Ok(())
            }
            Err(refused) => Err(refused.0.message),
        }
    }

    /// Writes down what this message asks for beyond its turn.
    #[cold]
    fn set_terms(&self, message: &M, not_before: Option<Instant>, debt: &mut Debt<Of<K, M, O, E>>) {
        let address = &self.address;
        if let Some(class) = &address.class {
            debt.load_mut().class = class(message);
        }
        let version = address.version.as_ref().map(|version| version(message));
        let lifetime = address.lifetime.as_ref().and_then(|of| of(message));
        let expires_at = lifetime.and_then(|lifetime| crate::clock::now().checked_add(lifetime));
        if version.is_some() || expires_at.is_some() || not_before.is_some() {
            self.engine.expect_terms();
            let terms = debt.terms_mut();
            terms.version = version.unwrap_or_default();
            terms.expires_at = expires_at;
            terms.not_before = not_before;
        }
    }
}

impl<K, M, O, E> Clone for Dispatcher<K, M, O, E> {
    fn clone(&self) -> Self {
        Self {
            engine: Arc::clone(&self.engine),
            channel: self.channel.clone(),
            address: Arc::clone(&self.address),
        }
    }
}

impl<K, M, O, E> fmt::Debug for Dispatcher<K, M, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher")
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}
