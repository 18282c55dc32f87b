//! What a connector says about its system.

use std::error::Error;
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use keylane_source::{Features, RawMessage};

use crate::changes::Changes;
use crate::letter::Why;

/// A system that hands messages to workers under leases, in requests and answers.
///
/// A [`WorkerSource`](crate::WorkerSource) is the source of a dispatcher that is made of it. It has
/// one worker at a time. A worker enters, and then makes one [`exchange`](Self::exchange) after the
/// other: each reports what has settled, asks for messages, and renews the lease. All calls but
/// [`keep_letter`](Self::keep_letter) and [`reread`](Self::reread) come one after the other; these
/// two have a clone of the connection.
///
/// The system needs three things: a connection or a lease that owns messages; a number that says
/// whether another worker came between; and a place for the attempts that are noted.
///
/// # Cancel safety
///
/// Each of these futures may be dropped at an await. After a drop of `enter` or `exchange` the
/// connection is dropped as well, and the worker enters again; if the source closes, `leave` has
/// that connection. If it has none then, or `leave` fails there, the worker enters over a new one
/// and leaves. After a drop of another call the connection goes on. If an answer may still be
/// on its way there, let the next call fail.
pub trait System: Send + Sync + 'static {
    /// The name of a message while a worker has it. It is the same when the message comes again to
    /// that worker. Returned messages are asked for in the order of their names.
    type Id: Clone + Eq + Ord + Hash + fmt::Debug + Send + Sync + 'static;

    /// A worker: its name in the system, and what it has to remember between two exchanges. It
    /// outlives a connection.
    type Worker: Send + Sync + 'static;

    /// A connection. Clones share it.
    type Link: Clone + Send + Sync + 'static;

    /// The error of a call.
    type Error: Error + Clone + Send + Sync + 'static;

    /// Returns the name of the source for events and logs, without secrets.
    fn name(&self) -> String;

    /// Returns where a message is, for the lines of the log about it: see
    /// [`Source::describer`](keylane_source::Source::describer). The default is the `Debug` of its
    /// name.
    fn describe(&self, id: &Self::Id) -> String {
        format!("{id:?}")
    }

    /// Returns what the source can do. [`nack`](Features::nack) is always true. Do not declare
    /// [`lease`](Features::lease), which is about single messages.
    fn features(&self) -> Features;

    /// Checks the settings. Called once, before anything else.
    fn validate(&self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Returns how long the lease of a worker lasts without an exchange. It is renewed after each
    /// third of that, and counts as ended a tenth earlier, because clocks run at different speeds.
    fn lease(&self) -> Duration;

    /// Returns the most messages of one exchange; 1,000 by default. The dispatcher handles the
    /// earlier ones meanwhile.
    fn most(&self) -> usize {
        1_000
    }

    /// Creates a worker with a name that no worker has had. Sends nothing.
    fn worker(&self) -> Self::Worker;

    /// Connects.
    fn connect(&self) -> impl Future<Output = Result<Self::Link, Self::Error>> + Send;

    /// Lets a worker enter, or go on after a new connection. Its messages that have not settled
    /// come again in the next exchanges, before others. A worker that has to wait for its turn
    /// enters all the same, and its exchanges answer [`Rest::Blocked`].
    ///
    /// After [`End::Lost`] or [`End::Forgotten`] this is called again at once, with a new worker
    /// and the same connection: what that remembers of the worker before does not count.
    fn enter(
        &self,
        link: &mut Self::Link,
        worker: &Self::Worker,
        entry: Entry<'_, Self::Id>,
    ) -> impl Future<Output = Result<Memory, End<Self::Error>>> + Send;

    /// Applies these changes, and hands over up to `most` messages, perhaps none; more only of
    /// those that come again. Does not wait for them.
    fn exchange(
        &self,
        link: &mut Self::Link,
        worker: &Self::Worker,
        changes: &Changes<Self::Id>,
        most: usize,
    ) -> impl Future<Output = Result<Reply<Self::Id>, End<Self::Error>>> + Send;

    /// Waits until there may be new messages. `link` is the connection of the waits alone: `None`
    /// at first, and it is kept between two waits. Returns false if nothing has come in a time that
    /// the system chooses. Looks again after 200 milliseconds by default.
    fn wait(
        &self,
        link: &mut Option<Self::Link>,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send {
        let _ = link;
        async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            Ok(true)
        }
    }

    /// Reads messages of this worker again, in this order: at least the first one, up to all. A
    /// message that does not exist any more is `None`. For
    /// [`random_access`](Features::random_access).
    fn reread(
        &self,
        link: &mut Self::Link,
        worker: &Self::Worker,
        ids: &[Self::Id],
    ) -> impl Future<Output = Result<Vec<Option<(RawMessage, u32)>>, Self::Error>> + Send {
        let _ = (link, worker);
        let none = vec![None; ids.len()];
        async { Ok(none) }
    }

    /// Keeps a dead letter: it is durable when this returns. False: the worker does not have the
    /// message any more. The message settles afterwards, in [`Changes::gone`], and its letter
    /// stays. For [`dead_letters`](Features::dead_letters).
    fn keep_letter(
        &self,
        link: &mut Self::Link,
        worker: &Self::Worker,
        id: &Self::Id,
        why: &Why,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send {
        let _ = (link, worker, id, why);
        async { Ok(false) }
    }

    /// Gives back all messages of this worker at once.
    fn leave(
        &self,
        link: &mut Self::Link,
        worker: &Self::Worker,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// A worker enters its system.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a, I> {
    /// Whether the system has never known the worker. Otherwise it must know it: see
    /// [`End::Lost`].
    pub is_new: bool,
    /// Settlements that the system may not know.
    pub settled: &'a Changes<I>,
}

/// What a system knows of the changes that it has confirmed to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// All of them.
    Whole,
    /// Not all: it has an earlier state. The messages of the worker may have run meanwhile.
    Earlier,
}

/// The answer to an exchange.
#[derive(Debug)]
pub struct Reply<I> {
    /// The messages that are handed over, those that come again first.
    pub messages: Vec<Handed<I>>,
    /// How many of [`Changes::again`], from its front, the system has taken: they are among
    /// `messages`, or come in a later exchange by themselves. The others are sent again.
    pub came: usize,
    /// What the worker knows of the rest.
    pub rest: Rest,
}

/// Whether a system has more messages for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// There may be more: the worker asks again at once.
    More,
    /// There are none: the worker [waits](System::wait).
    Nothing,
    /// There are some, and none of them may be taken now: the worker asks again after 100
    /// milliseconds.
    Blocked,
}

/// A message that is handed over.
#[derive(Debug)]
pub struct Handed<I> {
    /// The name of the message.
    pub id: I,
    /// The message.
    pub message: RawMessage,
    /// How many attempts the system knows. One that was noted, and had not failed in this process
    /// when the connection broke, does not count.
    pub attempts: u32,
    /// The last attempt that may start without a note. If it is `attempts`, each attempt is noted
    /// before it starts.
    pub noted: u32,
}

/// The end of a session.
///
/// | after | the worker | settlements on their way | attempts in flight |
/// | --- | --- | --- | --- |
/// | `Lost`, `Forgotten` | is a new one | are dropped | end |
/// | `Missed`, `Failed`, `Unable` | enters again, over a new connection | are sent again | go on |
/// | [`Memory::Earlier`] | goes on | are sent again | end |
#[derive(Clone)]
pub enum End<E> {
    /// The system does not know the worker any more: other workers have its messages.
    Lost,
    /// The system has handed over a message that this worker has not received, or does not have a
    /// message that the worker holds. The worker enters again.
    Missed,
    /// The system does not know changes that it has confirmed: it has an earlier state.
    Forgotten,
    /// Nothing was done, and the same call may succeed soon. The session goes on for as long as the
    /// lease lasts.
    Unable(E),
    /// The connection, or the call, has failed. It is not known whether anything was done.
    Failed(E),
}

impl<E: fmt::Display> fmt::Display for End<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost => {
                f.write_str("the lease of this worker has run out: other workers have its messages")
            }
            Self::Missed => {
                f.write_str("an answer of the server was lost: its messages are delivered again")
            }
            Self::Forgotten => {
                f.write_str("the server has an earlier state and has lost confirmed changes")
            }
            Self::Unable(error) | Self::Failed(error) => error.fmt(f),
        }
    }
}

keylane_rt::text_in_debug! { End<E: fmt::Display>: Lost, Missed, Forgotten, Unable, Failed }

impl<E: Error> Error for End<E> {}
