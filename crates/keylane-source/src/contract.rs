//! What a source has to do.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::decode::Decoded;
use super::delivery::{Deliveries, Generation};
use super::error::SourceError;
use super::features::Features;
use super::raw::RawMessage;
use super::settlement::{Outcome, Settlement, SourceLetter};
use crate::BoxError;

/// Where messages come from with the obligation to settle them.
///
/// One task, the driver, owns the source and calls it: one call at a time, so a source needs no lock.
/// A call that does not return within `stall_after`, returns
/// an error or panics ends all generations of the source, and [`open`](Self::open) is called again
/// after a pause. Dropping the source closes it.
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
    note = "the messages of the source must be those of the dispatcher: a source of raw bytes needs \
            `.decode(|raw| ...)`"
)]
pub trait Source: Send + 'static {
    /// What the dispatcher handles.
    type Message: Send + Sync + 'static;

    /// What names a delivery to this source.
    type Position: Clone + PartialEq + fmt::Debug + Send + Sync + 'static;

    /// A name for events and logs, without secrets.
    fn name(&self) -> String {
        "source".to_owned()
    }

    /// What this source can do. Asked once.
    fn features(&self) -> Features;

    /// Checks that the source can be consumed as it is. Called once, before anything else.
    ///
    /// # Errors
    ///
    /// What is missing. `consume` returns it.
    fn validate(&self) -> Result<(), SourceError> {
        Ok(())
    }

    /// Connects. Called first of all, and again after a failure or a stall: every generation from
    /// before is over then, and what was handed over in it and not confirmed comes again.
    ///
    /// # Errors
    ///
    /// The driver waits, twice as long each time up to
    /// `IntakeSettings::longest_pause`, and calls it again.
    ///
    /// # Cancel safety
    ///
    /// It may be dropped at an await: by a stop, and when it takes too long.
    fn open(&mut self) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// Waits for messages, or for other news, and returns at `into.until()` at the latest.
    ///
    /// Returns as soon as there is something: what is there goes into `into`, up to its room. With
    /// no room it waits for other news only.
    ///
    /// # Errors
    ///
    /// When the source has to be opened again.
    ///
    /// # Cancel safety
    ///
    /// It is dropped at an await whenever the driver has something else to do. What was pushed into
    /// `into` before is handed over; nothing else may be lost.
    fn receive(
        &mut self,
        into: &mut Deliveries<Self::Message, Self::Position>,
    ) -> impl Future<Output = Result<Received<Self::Position>, SourceError>> + Send;

    /// Takes settlements, in the order in which they happened. Each delivery settles once.
    ///
    /// It may return before the source's server has confirmed them: see
    /// [`confirm`](Self::confirm).
    ///
    /// # Errors
    ///
    /// When the source has to be opened again. What was to be settled counts as not confirmed.
    ///
    /// # Cancel safety
    ///
    /// Dropped only when it takes too long; then the source is opened again.
    fn settle(
        &mut self,
        settled: &[Settlement<Self::Position>],
    ) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// Waits until everything that was settled so far is confirmed: it will not come again.
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

    /// No work of these generations is here any more, and what settled in time was told: lets them
    /// go. Called after [`Received::Revoked`].
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

    /// Has the source hold these for another [`lease`](Features::lease).
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

    /// Reads these again, which were handed over before and not settled, and pushes them in this
    /// order. What is not there any more is left out.
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

    /// Keeps a dead letter. It is durable when this returns; the delivery itself settles
    /// afterwards, as [`Outcome::DeadLettered`].
    ///
    /// # Errors
    ///
    /// [`SourceError::unsupported`] without [`dead_letters`](Features::dead_letters); otherwise the
    /// letter is offered again later, and its key waits.
    fn dead_letter(
        &mut self,
        letter: SourceLetter<Self::Position>,
    ) -> impl Future<Output = Result<(), SourceError>> + Send {
        let _ = letter;
        async { Err(SourceError::unsupported("keep dead letters")) }
    }

    /// What is called before each attempt starts, if the source counts them as they start.
    fn start_guard(&self) -> Option<Arc<dyn StartGuard<Self::Position>>> {
        None
    }

    /// Nothing is held any more, and everything is confirmed or given back: leaves.
    ///
    /// # Errors
    ///
    /// Reported in the log.
    fn close(&mut self) -> impl Future<Output = Result<(), SourceError>> + Send {
        async { Ok(()) }
    }

    /// Decodes the messages of a source of raw ones.
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
        Decoded::new(self, decode)
    }
}

/// Why [`Source::receive`] has returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received<P> {
    /// Messages were handed over, perhaps none. What is said of [parts](Deliveries::part_failed) alone
    /// does not count as a sign that the source is well.
    Messages,
    /// Nothing has come, and the source is well.
    Idle,
    /// These generations end. The source waits for [`release`](Source::release), and takes
    /// settlements of them until then.
    Revoked(Vec<Generation>),
    /// These generations are over, and another process may have them already. Attempts in flight are
    /// dropped at once, and what settles of them is not told to the source.
    Lost(Vec<Generation>),
    /// The source wants these back, if they have not started. They settle as
    /// [`Outcome::Returned`]; those in flight settle as ever.
    Recalled(Vec<P>),
    /// There is no more to come, ever.
    End,
}

/// Why an attempt does not start now, and when it is asked for again.
///
/// Made of an error with `?` or `into`, it is 100 milliseconds later.
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
    /// How long a key waits at most: 100 milliseconds.
    pub const LONGEST: Duration = Duration::from_millis(100);

    /// The attempt is being noted somewhere else, which was said so many times before. A note takes
    /// about as long as a call of a server, so it is asked for again after 2 milliseconds, and after
    /// twice the time before from then on, up to [`LONGEST`](Self::LONGEST).
    pub fn until_noted(before: u32) -> Self {
        Self {
            why: "its start is being noted".into(),
            wait: Duration::from_millis(2 << before.min(6)).min(Self::LONGEST),
        }
    }

    /// After what time the attempt is asked for again.
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

/// Is told of the attempts of a source that [counts](Features::counts_attempts) them.
///
/// A *slot* is a small number that the driver gives to each held message, and gives to another one
/// afterwards. It is below the sum of `IntakeSettings::held`,
/// `IntakeSettings::deferred` and what a source hands over beyond
/// its room.
pub trait StartGuard<P>: Send + Sync {
    /// The n-th attempt for this message, counted from 1, starts when this returns. It runs in the
    /// runner's own task: it must not block for long.
    ///
    /// # Errors
    ///
    /// The attempt does not start. Its key waits, and the attempt is asked for again after the time
    /// that [`StartLater`] says. Where that is a fault, and not part of the plan, log it: the engine
    /// does so at the level `DEBUG` only.
    fn starts(&self, slot: u32, position: &P, attempt: u32) -> Result<(), StartLater>;

    /// The message has settled. Called before the next message of its key starts. Of a message that
    /// is [returned](Outcome::Returned), the number of attempts stands from now on: one that a revoke
    /// or a stop has dropped is told as started, and does not count.
    fn settles(&self, slot: u32, position: &P, outcome: Outcome);

    /// Whether no other process can have the message now. Asked every 20 milliseconds about attempts in
    /// flight whose generation is over, or ends: if it is not so, the attempt is dropped.
    ///
    /// A source that failed and is opened again, or is about to be, may still have the lease under which
    /// it handed a message over, or not any more. By default it has, and attempts may go on until
    /// `revoke_within` has passed.
    fn holds(&self, position: &P) -> bool {
        let _ = position;
        true
    }
}
