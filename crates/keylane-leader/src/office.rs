//! A candidate, as its process sees it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use keylane_leases::Owner;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::calls::{Caller, Holding};
use crate::career::{Career, Following};
use crate::elections::{Elections, key_of};
use crate::error::{CandidateError, CommandError};
use crate::events::{Event, Events, KEPT};
use crate::machine::Machine;
use crate::metrics::Record;
use crate::orders::{Order, Orders};
use crate::settings::{Lost, Settings};
use crate::store::{CandidateId, Entry};
use crate::task::Task;
use crate::watching::LeaderWatch;

/// A candidate of an election.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use keylane_leader::{Candidate, Career, Elections, End, Lost, MemoryElections, Stop, Term};
///
/// # struct Billing;
/// # impl Career for Billing {
/// #     type Error = std::io::Error;
/// #     async fn inaugurate(&mut self, _: &Term) -> Result<(), Self::Error> { Ok(()) }
/// #     async fn execute(&mut self, _: &Term, stop: Stop) -> Result<(), Self::Error> {
/// #         stop.requested().await;
/// #         Ok(())
/// #     }
/// #     async fn hand_over(&mut self, _: &Term, _: End) {}
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let elections = Elections::open(Arc::new(MemoryElections::new()))?;
/// let office = Candidate::builder(&elections, "billing")
///     .rank(1)
///     .lost(Lost::Wait(Duration::from_secs(5)))
///     .run(Billing)?;
/// let leader = office.leader().changed().await?;
/// # let _ = leader;
/// office.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Candidate(());

impl Candidate {
    /// Returns a builder of a candidate of this election.
    pub fn builder(elections: &Elections, election: impl Into<String>) -> CandidateBuilder {
        CandidateBuilder {
            elections: elections.clone(),
            election: election.into(),
            id: Owner::random().as_str().to_owned(),
            settings: Settings::new(),
        }
    }
}

/// The settings of a candidate. Every setting has a default.
#[derive(Clone, Debug)]
pub struct CandidateBuilder {
    elections: Elections,
    election: String,
    id: String,
    settings: Settings,
}

impl CandidateBuilder {
    /// Sets the id, which others see: unique, and 1 to 100 bytes of visible ASCII without `/`. By
    /// default the name of the host, the number of the process, and a random number. Two processes
    /// whose candidates have one id lead in turn all the same, but [`hand_to`](Office::hand_to)
    /// cannot choose between them.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// Sets the rank: 100 by default. A candidate of a lower rank comes before one of a higher
    /// rank, but never takes the term from a leader.
    #[must_use]
    pub fn rank(mut self, rank: u16) -> Self {
        self.settings.rank = rank;
        self
    }

    /// Sets what this candidate does after a leader that was lost: [`Lost::Fenced`] by default.
    #[must_use]
    pub fn lost(mut self, lost: Lost) -> Self {
        self.settings.lost = lost;
        self
    }

    /// Sets the time to live of a term: 10 seconds by default, 100 milliseconds to a day, or to
    /// what [the store grants](crate::ElectionStore::longest_ttl). When a
    /// leader dies, another one is elected after this time at most. It must outlast whatever
    /// blocks the runtime of the leader, which renews the term.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.ttl = ttl;
        self
    }

    /// Sets how long [`Career::prepare`] may take: 10 seconds by default. It is dropped then.
    #[must_use]
    pub fn prepare_limit(mut self, limit: Duration) -> Self {
        self.settings.prepare_limit = limit;
        self
    }

    /// Sets how long [`Career::inaugurate`] may take: 30 seconds by default. It is dropped then,
    /// and the term is given back.
    #[must_use]
    pub fn inaugurate_limit(mut self, limit: Duration) -> Self {
        self.settings.inaugurate_limit = limit;
        self
    }

    /// Sets how long [`Career::execute`] may take to stop: 10 seconds by default. It is dropped
    /// then.
    #[must_use]
    pub fn stop_limit(mut self, limit: Duration) -> Self {
        self.settings.stop_limit = limit;
        self
    }

    /// Sets how long [`Career::hand_over`] may take: 10 seconds by default. It is dropped then, and
    /// the successor takes the term for a lost one.
    #[must_use]
    pub fn hand_over_limit(mut self, limit: Duration) -> Self {
        self.settings.hand_over_limit = limit;
        self
    }

    /// Sets the pause before a candidate stands again after its term: 1 second by default. It
    /// doubles with each term in a row that fails, up to `longest`, 60 seconds by default.
    #[must_use]
    pub fn retry_after(mut self, pause: Duration, longest: Duration) -> Self {
        self.settings.retry = pause;
        self.settings.longest_pause = longest;
        self
    }

    /// Starts the candidate, in the runtime in which its elections were opened.
    ///
    /// # Errors
    ///
    /// [`CandidateError`] for a setting that is out of range, or an id that another candidate of
    /// these elections has.
    pub fn run(mut self, career: impl Career) -> Result<Office, CandidateError> {
        self.settings = self.settings.checked()?;
        let Some(id) = CandidateId::new(self.id.clone()) else {
            return Err(CandidateError::Id(self.id));
        };
        let (store, ttl) = (self.elections.store(), self.settings.ttl);
        let longest = store.longest_ttl();
        if ttl > longest {
            return Err(CandidateError::TtlOfStore { ttl, longest });
        }
        let every = store.enter_every(ttl);
        let key = key_of(&self.election);
        let candidates = self.elections.candidates();
        let takes_part = candidates.take_part(key.clone(), id.clone());
        let takes_part = takes_part.ok_or_else(|| CandidateError::IdTaken(id.clone()))?;
        self.settings.look_every = Some(every);
        let runtime = self.elections.runtime().clone();
        let (leader, seen) = watch::channel(None);
        let (events, first) = broadcast::channel(KEPT);
        let (_ended, has_ended) = watch::channel(());
        let orders = Arc::new(Orders::new());
        let task = Task {
            machine: Machine::new(self.settings.clone(), Instant::now()),
            history: self.elections.history(),
            closed: Some(self.elections.closed()),
            caller: Caller {
                key,
                elections: self.elections,
                ttl: self.settings.ttl,
                lost: self.settings.lost,
                entered_for: self.settings.entered_for(),
                entry: Entry {
                    id: id.clone(),
                    rank: self.settings.rank,
                },
            },
            orders: Arc::clone(&orders),
            events: events.clone(),
            leader,
            call: None,
            seen: None,
            holding: Holding::Nothing,
            stop: None,
            is_loss_reported: false,
            failed_calls: 0,
            record: Record::new(&self.election),
        };
        runtime.spawn(async move {
            let _ended = _ended;
            // Dropped before it is known that the candidate has ended.
            let _takes_part = takes_part;
            task.run(career).await;
        });
        Ok(Office {
            id,
            orders,
            events: events.downgrade(),
            first: Mutex::new(Some(first)),
            leader: LeaderWatch::of(seen),
            has_ended,
        })
    }
}

/// A candidate that runs: it waits for its election, leads, and waits again, until it is closed.
///
/// When the handle is dropped, the candidate is closed in the background.
#[must_use = "a candidate is closed when its handle is dropped"]
pub struct Office {
    id: CandidateId,
    orders: Arc<Orders>,
    events: broadcast::WeakSender<Event>,
    /// The events since the start, for the first reader.
    first: Mutex<Option<broadcast::Receiver<Event>>>,
    leader: LeaderWatch,
    has_ended: watch::Receiver<()>,
}

impl Office {
    /// Returns the id of this candidate.
    pub fn id(&self) -> &CandidateId {
        &self.id
    }

    /// Returns whether this candidate leads: from its election until it is leaving. It may be over
    /// when this returns: work under [`Term::check`](crate::Term::check).
    pub fn leads(&self) -> bool {
        self.orders.leads()
    }

    /// Returns who leads, as far as this candidate knows.
    pub fn leader(&self) -> LeaderWatch {
        self.leader.clone()
    }

    /// Returns the current leader, if this candidate knows one.
    pub fn current(&self) -> Option<Following> {
        self.leader.leader()
    }

    /// Returns the events: the first call those since the candidate was started, and each later
    /// call those from then on.
    ///
    /// Of the events before the first call the last 256 are kept: see [`Events::next`].
    pub fn events(&self) -> Events {
        let first = self
            .first
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        Events(match (first, self.events.upgrade()) {
            (Some(first), _) => first,
            (None, Some(events)) => events.subscribe(),
            // The candidate is over: there are no more events.
            (None, None) => broadcast::channel(1).1,
        })
    }

    /// Lets the leader leave. It stands again after a pause, behind all others of its rank.
    ///
    /// # Errors
    ///
    /// [`CommandError`] if it does not lead.
    pub fn resign(&self) -> Result<(), CommandError> {
        self.orders.give(Order::Resign(None))
    }

    /// Lets the leader leave, for this successor. If that is no candidate by then, the next one
    /// succeeds.
    ///
    /// # Errors
    ///
    /// [`CommandError`] if it does not lead.
    pub fn hand_to(&self, successor: &CandidateId) -> Result<(), CommandError> {
        self.orders.give(Order::Resign(Some(successor.clone())))
    }

    /// Ends the candidate: a leader stops, hands over and releases its term. Returns when that is
    /// done. It takes at most the limits of `execute` and `hand_over`, and of three calls to the
    /// store.
    ///
    /// # Cancel safety
    ///
    /// The candidate ends even if the future is dropped.
    pub async fn close(self) {
        let mut has_ended = self.has_ended.clone();
        drop(self);
        while has_ended.changed().await.is_ok() {}
    }

    /// Waits until the candidate is over: [`Career::execute`] has ended by itself, or its runtime
    /// is gone.
    ///
    /// # Cancel safety
    ///
    /// The call only waits.
    pub async fn over(&self) {
        let mut has_ended = self.has_ended.clone();
        while has_ended.changed().await.is_ok() {}
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        // It may be over.
        let _ = self.orders.give(Order::Close);
    }
}

impl fmt::Debug for Office {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Office")
            .field("id", &self.id)
            .field("leads", &self.leads())
            .finish_non_exhaustive()
    }
}
