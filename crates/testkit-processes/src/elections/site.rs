//! What an election needs of a store: written for each of them.

use std::ffi::OsString;
use std::fmt;
use std::future::Future;

use keylane_leader::Term;

/// The servers of an election, with a proxy of its own for each worker. The test has it.
pub trait Site {
    /// Returns where the worker of this number finds the servers: by its proxy.
    fn address(&self, worker: usize) -> String;

    /// Cuts a worker off.
    fn cut(&self, worker: usize, cut: Cut);

    /// Ends that. What was sent meanwhile arrives.
    fn heal(&self, worker: usize);

    /// Returns variables for the process of a worker: those of a clock of its own, if it has one.
    fn variables(&self, worker: usize) -> Vec<(&'static str, OsString)> {
        let _ = worker;
        Vec::new()
    }

    /// Sets the clock of a worker to that of the machine plus so many seconds. Called for
    /// [`Fault::Clock`](super::Fault::Clock) only.
    fn set_clock(&self, worker: usize, seconds: i64) {
        let _ = (worker, seconds);
        panic!("the workers have the clock of the machine");
    }

    /// Kills the store, or the part of it that matters most, and starts it again. What it has
    /// confirmed is kept.
    fn restart(&self) -> impl Future<Output = ()>;

    /// Returns what the sinks have.
    fn written(&self) -> impl Future<Output = Written>;
}

/// How a worker is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// In both directions.
    Both,
    /// From the answers of the servers only.
    Answers,
}

/// What leaders write into. Each worker has one.
pub trait Sink: Send + Sync + 'static {
    /// Writes under the fence of the store.
    fn fenced(&self, term: &Term, write: Write) -> impl Future<Output = Answer> + Send;

    /// Writes the same into the twin that compares nothing.
    fn plain(&self, write: Write) -> impl Future<Output = ()> + Send;
}

/// The answer of the fenced sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is written.
    Accepted,
    /// The term is over, and nothing was written.
    Refused,
    /// It may be written.
    Unknown,
}

/// A write of a leader.
///
/// ```
/// use testkit_processes::elections::Write;
///
/// let write = Write { token: 7, number: 1 };
/// assert_eq!(Write::parse(&write.to_string()), Some(write));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Write {
    /// The token of its term.
    pub token: u64,
    /// Its number in the term: the first one is 1.
    pub number: u64,
}

/// What the sinks have, in the order in which they have accepted it.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// The fenced sink.
    pub fenced: Vec<Write>,
    /// Its twin.
    pub plain: Vec<Write>,
}

impl Write {
    /// Reads what `to_string` writes.
    pub fn parse(text: &str) -> Option<Self> {
        let (token, number) = text.split_once('/')?;
        let (token, number) = (token.parse().ok()?, number.parse().ok()?);
        Some(Self { token, number })
    }
}

/// The token and the number: `7/1`.
impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.token, self.number)
    }
}
