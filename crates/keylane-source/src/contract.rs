//! The traits that a source implements.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::decode::Decoder;
use super::delivery::{Deliveries, Generation};
use super::describer::Describer;
use super::error::SourceError;
use super::features::Features;
use super::hold::Hold;
use super::raw::RawMessage;
use super::settlement::{Outcome, Settlement, SourceLetter};
use crate::BoxError;

/// A source of messages that must be settled.
///
/// One task, the driver, owns the source and calls it: one call at a time, so a source needs no
/// lock. A call that does not return within `stall_after`, returns an error or panics ends all
/// generations of the source. After a pause the driver calls [`open`](Self::open) again. Dropping
/// the source closes it.
///
/// # Examples
///
/// A source with a hundred numbers, which forgets what was settled:
///
/// ```
/// use keylane::source::{
///     Deliveries, Delivery, Features, Received, Settlement, Source, SourceError,
/// };
///
/// struct Numbers { next: u64 }
///
/// impl Source for Numbers {
///     type Message = u64;
///     type Position = u64;
///
///     fn features(&self) -> Features {
///         Features::new().finite()
///     }
///
///     async fn open(&mut self) -> Result<(), SourceError> {
///         Ok(())
///     }
///
///     async fn receive(
///         &mut self,
///         into: &mut Deliveries<u64, u64>,
///     ) -> Result<Received<u64>, SourceError> {
///         if self.next == 100 {
///             return Ok(Received::End);
///         }
///         while into.room() > 0 && self.next < 100 {
///             into.push(Delivery::new(self.next, self.next));
///             self.next += 1;
///         }
///         if into.is_empty() {
///             tokio::time::sleep_until(into.until()).await;
///             return Ok(Received::Idle);
///         }
///         Ok(Received::Messages)
///     }
///
///     async fn settle(&mut self, settled: &[Settlement<u64>]) -> Result<(), SourceError> {
///         assert!(settled.iter().all(|settlement| settlement.outcome.is_ack()));
///         Ok(())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use keylane::{Dispatcher, OnExhausted};
///
/// let numbers = Dispatcher::builder(|number: &u64| number % 10)
///     .on_exhausted(OnExhausted::Halt)
///     .spawn(|_: u64| async move { Ok::<(), std::io::Error>(()) })?;
/// let intake = numbers.consume(Numbers { next: 0 })?;
/// let report = intake.ended().await;
/// assert_eq!((report.received, report.acked), (100, 100));
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a source of messages",
    label = "not a `keylane::source::Source`",
    note = "implement it, or use the source of a connector such as `keylane-kafka`"
)]
pub trait Source: Send + 'static {
    /// The message that the dispatcher handles.
    type Message: Send + Sync + 'static;

    /// The position that identifies a delivery to this source.
    type Position: Clone + PartialEq + fmt::Debug + Send + Sync + 'static;

    /// Returns a name for events and logs, without secrets.
    fn name(&self) -> String {
        "source".to_owned()
    }

    /// Returns what says where a message is, as the lines of the log about it show it: the topic,
    /// the partition and the offset, or the number of a row. Called once, before the source is
    /// opened. The describer is asked when something has happened to a message that the log shows,
    /// and not for others; also while a call of the source is under way.
    ///
    /// The default is the `Debug` of the position.
    fn describer(&self) -> Describer<Self::Position> {
        Describer::default()
    }

    /// Returns what this source can do. Called once.
    fn features(&self) -> Features;

    /// Checks that the source can be consumed as it is. Called once, before anything else.
    ///
    /// # Errors
    ///
    /// Says what is missing. `consume` returns this error.
    fn validate(&self) -> Result<(), SourceError> {
        Ok(())
    }

    /// Connects the source. Called at the start, and again after a failure or a stall. All earlier
    /// generations are over then, and their messages that were not confirmed come again.
    ///
    /// # Errors
    ///
    /// After an error the driver waits, twice as long each time up to
    /// `IntakeSettings::longest_pause`, and calls this again.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at an await: by a stop, and when it takes too long.
    fn open(&mut self) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// Waits for messages, or for other news, and returns at `into.until()` at the latest.
    ///
    /// Returns as soon as there is something, and pushes what is there into `into`, up to its room.
    /// With no room it waits for other news only.
    ///
    /// # Errors
    ///
    /// After an error the driver opens the source again.
    ///
    /// # Cancel safety
    ///
    /// The driver drops the future at an await whenever it has something else to do. What was
    /// pushed into `into` before is handed over; nothing else may be lost.
    fn receive(
        &mut self,
        into: &mut Deliveries<Self::Message, Self::Position>,
    ) -> impl Future<Output = Result<Received<Self::Position>, SourceError>> + Send;

    /// Takes settlements, in the order in which they happened. Each delivery settles once.
    ///
    /// It may return before the source's server has confirmed them: see [`confirm`](Self::confirm).
    ///
    /// # Errors
    ///
    /// After an error the driver opens the source again. These settlements count as not confirmed.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped only when it takes too long; then the source is opened again.
    fn settle(
        &mut self,
        settled: &[Settlement<Self::Position>],
    ) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// Waits until all settlements so far are confirmed: these messages do not come again.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle).
    ///
    /// # Cancel safety
    ///
    /// As [`settle`](Self::settle).
    fn confirm(&mut self) -> impl Future<Output = Result<(), SourceError>> + Send {
        async { Ok(()) }
    }

    /// Releases these generations. Called after [`Received::Revoked`], when no message of them is
    /// here any more and the source has the settlements that came in time.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle).
    fn release(
        &mut self,
        generations: &[Generation],
    ) -> impl Future<Output = Result<(), SourceError>> + Send {
        let _ = generations;
        async { Ok(()) }
    }

    /// Extends the lease of these messages: the source holds them for another
    /// [`lease`](Features::lease).
    ///
    /// # Errors
    ///
    /// [`SourceError::unsupported`] without a lease; otherwise as [`settle`](Self::settle).
    fn extend(
        &mut self,
        held: &[Self::Position],
    ) -> impl Future<Output = Result<(), SourceError>> + Send {
        let _ = held;
        async { Err(SourceError::unsupported("extend a lease")) }
    }

    /// Reads these positions again and pushes their messages in this order. The messages were
    /// handed over before and are not settled. A message that does not exist any more is left out:
    /// it is returned to the source, which counts it and logs it.
    ///
    /// # Errors
    ///
    /// [`SourceError::unsupported`] without [`random_access`](Features::random_access); otherwise
    /// as [`settle`](Self::settle).
    fn reread(
        &mut self,
        positions: &[Self::Position],
        into: &mut Deliveries<Self::Message, Self::Position>,
    ) -> impl Future<Output = Result<(), SourceError>> + Send {
        let _ = (positions, into);
        async { Err(SourceError::unsupported("read a position again")) }
    }

    /// Keeps a dead letter. The letter is durable when this returns; the delivery itself settles
    /// afterwards, as [`Outcome::DeadLettered`].
    ///
    /// # Errors
    ///
    /// [`SourceError::unsupported`] without [`dead_letters`](Features::dead_letters), and
    /// [`SourceError::pending`] while the letter is on its way. Otherwise the letter is not kept.
    /// In each case it is offered again later, and its key waits.
    fn dead_letter(
        &mut self,
        letter: SourceLetter<Self::Position>,
    ) -> impl Future<Output = Result<(), SourceError>> + Send {
        let _ = letter;
        async { Err(SourceError::unsupported("keep dead letters")) }
    }

    /// Returns the guard that is called before each attempt starts, for a source that counts
    /// starts.
    fn start_guard(&self) -> Option<Arc<dyn StartGuard<Self::Position>>> {
        None
    }

    /// Closes the source. Called when it has no messages here any more, and everything is confirmed
    /// or given back.
    ///
    /// # Errors
    ///
    /// The driver logs the error.
    fn close(&mut self) -> impl Future<Output = Result<(), SourceError>> + Send {
        async { Ok(()) }
    }

    /// Decodes the messages of a source of raw messages.
    ///
    /// The function runs in the driver's task: it must not block. A message for which it returns an
    /// error or panics becomes a dead letter, in the order of its raw key: see [`Decoded`], and
    /// [`Decoded::letters`] for where it goes.
    ///
    /// # Examples
    ///
    /// An order is the number of a user and an amount, as text:
    ///
    /// ```
    /// use keylane::error::BoxError;
    /// use keylane::source::{RawLetter, RawLetterSink, RawMessage, Source};
    ///
    /// #[derive(Clone)]
    /// struct Order { user: u64, cents: u64 }
    ///
    /// fn order(raw: &RawMessage) -> Result<Order, BoxError> {
    ///     let text = std::str::from_utf8(&raw.payload)?;
    ///     let (user, cents) = text.split_once(' ').ok_or("an order is `user cents`")?;
    ///     Ok(Order { user: user.parse()?, cents: cents.parse()? })
    /// }
    ///
    /// /// Writes what is no order to the standard error: not durable, and enough for an example.
    /// struct Complain;
    ///
    /// #[keylane::async_trait]
    /// impl RawLetterSink for Complain {
    ///     async fn accept(&self, letter: &RawLetter) -> Result<(), BoxError> {
    ///         eprintln!("{:?}: {}", letter.raw.payload, letter.error);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// # use keylane::source::{Deliveries, Delivery, Features, Received, Settlement, SourceError};
    /// # struct Lines(std::vec::IntoIter<&'static str>);
    /// # impl Source for Lines {
    /// #     type Message = RawMessage;
    /// #     type Position = usize;
    /// #     fn features(&self) -> Features { Features::new().finite() }
    /// #     async fn open(&mut self) -> Result<(), SourceError> { Ok(()) }
    /// #     async fn receive(
    /// #         &mut self,
    /// #         into: &mut Deliveries<RawMessage, usize>,
    /// #     ) -> Result<Received<usize>, SourceError> {
    /// #         if self.0.len() == 0 { return Ok(Received::End); }
    /// #         while into.room() > 0 && let Some(line) = self.0.next() {
    /// #             let raw = RawMessage::new(line).key(line[..1].to_owned());
    /// #             into.push(Delivery::new(raw, self.0.len()));
    /// #         }
    /// #         if into.is_empty() { std::future::pending::<()>().await; }
    /// #         Ok(Received::Messages)
    /// #     }
    /// #     async fn settle(&mut self, _: &[Settlement<usize>]) -> Result<(), SourceError> {
    /// #         Ok(())
    /// #     }
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use keylane::{Dispatcher, OnExhausted};
    /// # let lines = Lines(vec!["1 250", "2 many", "2 300"].into_iter());
    /// let orders = Dispatcher::builder(|order: &Order| order.user)
    ///     .on_exhausted(OnExhausted::Halt)
    ///     .spawn(|order: Order| async move {
    ///         println!("user {} pays {}", order.user, order.cents);
    ///         Ok::<(), std::io::Error>(())
    ///     })?;
    /// // `lines` is a source of the raw messages `1 250`, `2 many` and `2 300`.
    /// let intake = orders.consume(lines.decode(order).letters(Complain))?;
    /// let report = intake.ended().await;
    /// assert_eq!((report.received, report.acked, report.dead_lettered), (3, 2, 1));
    /// # Ok(())
    /// # }
    /// ```
    fn decode<M, F>(self, decode: F) -> Decoded<Self, M, F>
    where
        Self: Source<Message = RawMessage> + Sized,
        F: Fn(&RawMessage) -> Result<M, BoxError> + Send + 'static,
        M: Send + Sync + 'static,
    {
        let about = (self.name(), self.features(), self.describer());
        Decoded {
            decoder: Decoder::new(self, about, decode),
        }
    }
}

/// A [`Source`] of these messages. Each source is one of its own messages, so nothing implements
/// this: it is the bound of what consumes a source, and makes the compiler say what to do about a
/// source of other messages.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a source of `{M}`",
    label = "hands over other messages than the dispatcher handles",
    note = "a source of raw bytes needs `.decode(|raw| ...)`, which makes a `{M}` of each message"
)]
pub trait SourceOf<M>: Source<Message = M> {}

#[diagnostic::do_not_recommend]
impl<M, S: Source<Message = M>> SourceOf<M> for S {}

/// A source of raw messages, with a function that decodes them: see [`Source::decode`].
///
/// A message that cannot be decoded, because the function returns an error or panics, becomes a
/// [`RawLetter`](super::RawLetter), in the order of its raw key:
///
/// 1. Its letter is delivered when all messages of the same raw key that were handed over before it
///    have settled. A message that goes back to its source has settled as well.
/// 2. Messages of that key behind it are decoded and handed over when its letter is durable.
/// 3. Other keys go on meanwhile. Raw messages without a key have no order.
/// 4. When the letter is durable, the message settles as [`Outcome::DeadLettered`].
///
/// The letters go to the sink given with [`letters`](Self::letters), or else to the inner source if
/// it [keeps dead letters](Features::dead_letters). With neither the source cannot be consumed.
///
/// Messages that wait for a letter count against the limit of `held` messages, and their leases are
/// extended. They are not in the `stats` until they are handed over or their letter is durable. A
/// stop does not wait for them: they go back.
///
/// The function must give the same answer for the same message. If a message was decoded before, is
/// [read again](Source::reread) and cannot be decoded then, the source is opened again, and the
/// message comes anew.
pub struct Decoded<S: Source<Message = RawMessage>, M, F> {
    pub(super) decoder: Decoder<S, S::Position, M, F>,
}

/// The reason why [`Source::receive`] returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received<P> {
    /// Messages were handed over, perhaps none. News of [parts](Deliveries::part_failed) alone does
    /// not count as a sign that the source is well.
    Messages,
    /// Nothing has come, and the source is well.
    Idle,
    /// These generations end. The source waits for [`release`](Source::release), and takes
    /// settlements of them until then.
    Revoked(Vec<Generation>),
    /// These generations are over, and another process may have them already. Attempts in flight
    /// are dropped at once, and the source is not told how their messages settle.
    Lost(Vec<Generation>),
    /// The source wants these messages back, if they have not started. They settle as
    /// [`Outcome::Returned`]; messages in flight settle as usual.
    Recalled(Vec<P>),
    /// The source is at its end: no more messages come.
    End,
}

/// The reason why an attempt does not start now, and the wait before the engine asks again.
///
/// An error becomes a `StartLater` with `?` or `into`; the wait is then 100 milliseconds.
///
/// ```
/// use keylane::source::StartLater;
///
/// fn starts(is_open: bool) -> Result<(), StartLater> {
///     match is_open {
///         true => Ok(()),
///         false => Err("the log is not open".into()),
///     }
/// }
/// assert_eq!(starts(false).unwrap_err().wait(), StartLater::LONGEST);
/// ```
#[derive(Debug)]
pub struct StartLater {
    why: BoxError,
    wait: Duration,
}

impl StartLater {
    /// The longest wait of a key: 100 milliseconds.
    pub const LONGEST: Duration = Duration::from_millis(100);

    /// Returns the wait for an attempt that is being noted somewhere else. The guard has said so
    /// `before` times already. A note takes about as long as a call of a server, so the first wait
    /// is 2 milliseconds, and each further wait is twice the one before, up to
    /// [`LONGEST`](Self::LONGEST).
    pub fn until_noted(before: u32) -> Self {
        Self {
            why: "its start is being noted".into(),
            wait: Duration::from_millis(2 << before.min(6)).min(Self::LONGEST),
        }
    }

    /// Returns the wait before the attempt is asked for again.
    pub fn wait(&self) -> Duration {
        self.wait
    }
}

impl<E: Into<BoxError>> From<E> for StartLater {
    fn from(why: E) -> Self {
        Self {
            why: why.into(),
            wait: Self::LONGEST,
        }
    }
}

impl fmt::Display for StartLater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

/// A guard that is called for the attempts of a source that [counts](Features::counts_attempts)
/// them.
///
/// A *slot* is a small number that the driver gives to each held message, and to another message
/// afterwards. It is below the sum of `IntakeSettings::held`, `IntakeSettings::deferred` and what a
/// source hands over beyond its room.
pub trait StartGuard<P>: Send + Sync {
    /// Called before each attempt: the n-th attempt at this message, counted from 1, starts when
    /// this returns. It runs in the runner's own task: it must not block for long.
    ///
    /// # Errors
    ///
    /// The attempt does not start. Its key waits, and the engine asks for the attempt again after
    /// the time of [`StartLater`]. If the error is a fault and not planned, log it: the engine logs
    /// it at the level `DEBUG` only.
    fn starts(&self, slot: u32, position: &P, attempt: u32) -> Result<(), StartLater>;

    /// Called when the message has settled, before the next message of its key starts. When a
    /// message is [returned](Outcome::Returned), its number of attempts is final: an attempt that a
    /// revoke or a stop has dropped was reported as started, and does not count.
    fn settles(&self, slot: u32, position: &P, outcome: Outcome);

    /// Returns whether no other process can have the message now. The engine asks every 20
    /// milliseconds about attempts in flight whose generation is over, or ends, and drops the
    /// attempt if the answer is `false`.
    ///
    /// A source that failed and is opened again, or is about to be, may still have the lease under
    /// which it handed a message over, or may have lost it. The default answer is `true`: attempts
    /// may go on until `revoke_within` has passed.
    fn holds(&self, position: &P) -> bool {
        let _ = position;
        true
    }

    /// Returns for how long the messages that are here are held, as `IntakeStats::hold` shows it;
    /// `None` if no time ends it, or if it is not known now. The default is `None`.
    ///
    /// A source with a [lease](Features::lease) need not return it: the driver extends that, and
    /// knows. It must not block.
    fn hold(&self) -> Option<Hold> {
        None
    }
}
