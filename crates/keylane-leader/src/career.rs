//! What a leader does: written by the user.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keylane_leases::error::LeaseLost;
use keylane_leases::{Lease, Token};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::store::{CandidateId, History};

/// The work of a leader, in three phases: *inaugurate*, *execute*, *hand over*.
///
/// During a change two processes believe different things, so each phase has a rule:
///
/// | method | when | may it act? |
/// | --- | --- | --- |
/// | [`prepare`](Self::prepare) | the leader is leaving, and this candidate is next | no |
/// | [`inaugurate`](Self::inaugurate) | the term is granted | with the term's token |
/// | [`execute`](Self::execute) | after an `inaugurate` that returned `Ok` | with the term's token |
/// | [`hand_over`](Self::hand_over) | once after each of those | while [`Term::check`] is `Ok` |
///
/// `inaugurate` and `execute` are dropped before the term ends: another process may lead then.
/// Tasks that they have spawned are not. A call that blocks its thread cannot be dropped.
///
/// # Examples
///
/// ```
/// use keylane_leader::{Career, End, Stop, Term};
///
/// struct Billing;
///
/// impl Career for Billing {
///     type Error = std::io::Error;
///
///     async fn inaugurate(&mut self, term: &Term) -> Result<(), Self::Error> {
///         println!("billing leads, under token {}", term.token());
///         Ok(())
///     }
///
///     async fn execute(&mut self, _term: &Term, stop: Stop) -> Result<(), Self::Error> {
///         stop.requested().await;
///         Ok(())
///     }
///
///     async fn hand_over(&mut self, _term: &Term, why: End) {
///         println!("billing has ended: {why}");
///     }
/// }
/// ```
pub trait Career: Send + 'static {
    /// An error of a phase. It is logged, and is part of [`Event`](crate::Event).
    type Error: fmt::Display + Send;

    /// Prepares to lead, without effects: opens connections, fills caches.
    ///
    /// It is called when the leader says that it is leaving and this candidate is the next one. It
    /// is not called if the leader is lost. If it returns an error, panics, or takes longer than
    /// [`prepare_limit`](crate::CandidateBuilder::prepare_limit), the candidate goes on without.
    fn prepare(
        &mut self,
        leader: &Following,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = leader;
        async { Ok(()) }
    }

    /// Takes over. Work starts after it has returned `Ok`.
    ///
    /// If it returns an error, panics, or takes longer than
    /// [`inaugurate_limit`](crate::CandidateBuilder::inaugurate_limit), the term is given back, and
    /// the candidate stands again after a pause that doubles.
    fn inaugurate(&mut self, term: &Term) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Leads, until the work has ended or `stop` is requested.
    ///
    /// After a request to stop it has [`stop_limit`](crate::CandidateBuilder::stop_limit) to
    /// return, and is dropped then. It is dropped at once when the term is lost. `Ok` without a
    /// request ends the candidacy; after an error the candidate stands again, after a pause.
    ///
    /// The default calls [`step`](Self::step) again and again, until it is asked to stop.
    fn execute(
        &mut self,
        term: &Term,
        stop: Stop,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send {
        async move {
            while !stop.is_requested() {
                self.step(term).await?;
            }
            Ok(())
        }
    }

    /// Makes one step of the work. A leader that is leaving stops between two steps.
    ///
    /// The default waits until it is dropped.
    fn step(&mut self, term: &Term) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = term;
        std::future::pending()
    }

    /// Ends what `inaugurate` has begun. Called exactly once for each `inaugurate` that has
    /// returned `Ok`, also after a panic.
    ///
    /// In a voluntary change the term is still held: the successor begins when this has returned,
    /// or after [`hand_over_limit`](crate::CandidateBuilder::hand_over_limit). After a loss,
    /// another process may lead already: [`Term::check`] says so.
    fn hand_over(&mut self, term: &Term, why: End) -> impl Future<Output = ()> + Send;
}

/// The term of a leader: from its election to its end.
#[derive(Clone)]
pub struct Term {
    inner: Arc<Inner>,
}

struct Inner {
    candidate: CandidateId,
    history: History,
    lease: Arc<Lease>,
    /// The store is in another history, where the token of the lease may be another term's.
    is_of_the_past: AtomicBool,
}

impl Term {
    pub(crate) fn new(candidate: CandidateId, history: History, lease: Arc<Lease>) -> Self {
        Self {
            inner: Arc::new(Inner {
                candidate,
                history,
                lease,
                is_of_the_past: AtomicBool::new(false),
            }),
        }
    }

    /// Ends the term for its user: the store is in another history.
    pub(crate) fn end_in_history(&self) {
        self.inner.is_of_the_past.store(true, Ordering::Release);
    }

    fn is_of_the_past(&self) -> bool {
        self.inner.is_of_the_past.load(Ordering::Acquire)
    }

    /// Returns the fencing token: higher than those of all earlier terms of the election, within a
    /// [history](Self::history). Put it into each write, and let the target refuse a lower one.
    pub fn token(&self) -> Token {
        self.inner.lease.token()
    }

    /// Returns the history of the store in which the term was granted.
    pub fn history(&self) -> &History {
        &self.inner.history
    }

    /// Returns the candidate that leads.
    pub fn leader(&self) -> &CandidateId {
        &self.inner.candidate
    }

    /// Returns the key of the lease of this term, in the store.
    pub fn key(&self) -> &bytes::Bytes {
        self.inner.lease.key()
    }

    /// Checks that the term is held now, by the clock of this process.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`] gives the reason: [`TakenOver`](LeaseLost::TakenOver) also when the store is in
    /// another history, see [`End::OtherHistory`].
    pub fn check(&self) -> Result<(), LeaseLost> {
        match self.is_of_the_past() {
            true => Err(LeaseLost::TakenOver),
            false => self.inner.lease.check(),
        }
    }

    /// Returns how long the term lasts if it is not renewed again. Zero if it is over.
    pub fn remaining(&self) -> Duration {
        let until = self.inner.lease.held_until();
        let until = until.filter(|_| !self.is_of_the_past());
        until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        })
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.inner.lease
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term")
            .field("leader", self.leader())
            .field("token", &self.token())
            .field("history", self.history())
            .finish_non_exhaustive()
    }
}

/// The leader that a candidate follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Following {
    /// The leader.
    pub leader: CandidateId,
    /// The token of its term.
    pub token: Token,
    /// Whether it has said that it is leaving.
    pub is_leaving: bool,
}

/// Says when [`Career::execute`] is to stop.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    pub(crate) fn new() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    /// Returns whether the leader is to stop.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the leader is to stop.
    ///
    /// # Cancel safety
    ///
    /// The call only waits.
    pub async fn requested(&self) {
        let mut receiver = self.0.clone();
        // Without a sender the candidate is gone.
        let _ = receiver.wait_for(|is_requested| *is_requested).await;
    }
}

/// Why a term has ended.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// [`Office::resign`](crate::Office::resign) was called.
    Resigned,
    /// [`Office::hand_to`](crate::Office::hand_to) was called, with this candidate.
    HandedTo(CandidateId),
    /// The candidate was closed, or its handle was dropped.
    Closed,
    /// [`Career::execute`] has returned `Ok`.
    Finished,
    /// [`Career::execute`] has returned this error.
    Failed(String),
    /// [`Career::execute`] has panicked with this message.
    Panicked(String),
    /// The lease of the term was lost.
    Lost(LeaseLost),
    /// The store is in another history: it may have lost what it had confirmed.
    OtherHistory,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resigned => f.write_str("resigned"),
            Self::HandedTo(to) => write!(f, "handed to {to}"),
            Self::Closed => f.write_str("the candidate was closed"),
            Self::Finished => f.write_str("the work has ended"),
            Self::Failed(error) => write!(f, "the work failed: {error}"),
            Self::Panicked(message) => write!(f, "the work panicked: {message}"),
            Self::Lost(why) => write!(f, "the term was lost: {why}"),
            Self::OtherHistory => f.write_str("the store is in another history"),
        }
    }
}
