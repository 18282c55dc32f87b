//! A career that writes down what is called, and a store whose answers are under control.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use keylane_leader::error::StoreError;
use keylane_leader::store::{
    CandidateId, Election, ElectionStore, Entry, History, Recorded, Stage, TermRecord,
};
use keylane_leader::{
    Candidate, CandidateBuilder, Career, Elections, End, Event, Events, Following, MemoryElections,
    Office, Stop, Term,
};
use keylane_leases::store::{Answer, Claim, Wish};
use keylane_leases::{LeaseStore, Owner};

/// A second: times to live and limits in tests are a few of them, and time is paused.
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// The longest time to live that [`Faulty`] grants.
pub(crate) const LONGEST: Duration = Duration::from_secs(3_600);

/// What careers have done, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn add(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, part: &str) -> usize {
        let lines = self.lines();
        lines.iter().filter(|line| line.contains(part)).count()
    }

    /// Waits until there is a line with this part.
    pub(crate) async fn until(&self, part: &str) {
        self.until_count(part, 1).await;
    }

    pub(crate) async fn until_count(&self, part: &str, count: usize) {
        let waits = async {
            while self.count(part) < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let came = tokio::time::timeout(300 * SECOND, waits).await;
        assert!(
            came.is_ok(),
            "no `{part}` {count} times in {:#?}",
            self.lines()
        );
    }
}

/// What a phase of the career does.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Ok,
    Fail,
    Panic,
    /// Never returns.
    Hang,
    /// Takes so long.
    Take(Duration),
}

impl Act {
    async fn play(self, what: &'static str) -> Result<(), String> {
        match self {
            Self::Ok => Ok(()),
            Self::Fail => Err(format!("{what} fails")),
            Self::Panic => panic!("{what} panics"),
            Self::Hang => std::future::pending().await,
            Self::Take(time) => {
                tokio::time::sleep(time).await;
                Ok(())
            }
        }
    }
}

/// A career that does what it is told, once each, and then what is usual.
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) log: Log,
    pub(crate) prepare: VecDeque<Act>,
    pub(crate) inaugurate: VecDeque<Act>,
    /// Instead of waiting for a stop.
    pub(crate) execute: VecDeque<Act>,
    pub(crate) hand_over: VecDeque<Act>,
}

impl Script {
    pub(crate) fn new(name: &'static str, log: &Log) -> Self {
        Self {
            name,
            log: log.clone(),
            prepare: VecDeque::new(),
            inaugurate: VecDeque::new(),
            execute: VecDeque::new(),
            hand_over: VecDeque::new(),
        }
    }

    fn note(&self, what: &str) {
        self.log.add(format!("{} {what}", self.name));
    }
}

/// Says that a phase was dropped, or has returned.
struct Left(Log, String);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.add(self.1.clone());
    }
}

impl Career for Script {
    type Error = String;

    async fn prepare(&mut self, leader: &Following) -> Result<(), String> {
        self.note(&format!("prepares after {}", leader.leader));
        let act = self.prepare.pop_front().unwrap_or(Act::Ok);
        act.play("prepare").await
    }

    async fn inaugurate(&mut self, _term: &Term) -> Result<(), String> {
        self.note("inaugurates");
        let act = self.inaugurate.pop_front().unwrap_or(Act::Ok);
        act.play("inaugurate").await
    }

    async fn execute(&mut self, term: &Term, stop: Stop) -> Result<(), String> {
        self.note(&format!("executes under {}", term.token()));
        let _left = Left(self.log.clone(), format!("{} has stopped", self.name));
        match self.execute.pop_front() {
            Some(act) => act.play("execute").await,
            None => {
                stop.requested().await;
                Ok(())
            }
        }
    }

    async fn hand_over(&mut self, term: &Term, why: End) {
        let holds = if term.check().is_ok() {
            "holding"
        } else {
            "without"
        };
        self.note(&format!("hands over, {holds}: {why}"));
        let act = self.hand_over.pop_front().unwrap_or(Act::Ok);
        let _ = act.play("hand_over").await;
    }
}

/// Returns a candidate with short limits, which follows a script.
pub(crate) fn candidate(elections: &Elections, id: &str) -> CandidateBuilder {
    Candidate::builder(elections, "billing")
        .id(id)
        .ttl(3 * SECOND)
        .prepare_limit(5 * SECOND)
        .inaugurate_limit(5 * SECOND)
        .stop_limit(5 * SECOND)
        .hand_over_limit(5 * SECOND)
}

/// Starts a candidate that follows the usual script.
pub(crate) fn run(elections: &Elections, name: &'static str, log: &Log) -> Office {
    candidate(elections, name)
        .run(Script::new(name, log))
        .unwrap()
}

/// Waits for an event.
pub(crate) async fn until(events: &mut Events, is_it: impl Fn(&Event) -> bool) -> Vec<Event> {
    let mut seen = Vec::new();
    let waits = async {
        while let Some(event) = events.next().await {
            let found = is_it(&event);
            seen.push(event);
            if found {
                return true;
            }
        }
        false
    };
    let found = tokio::time::timeout(300 * SECOND, waits).await;
    assert_eq!(found, Ok(true), "{seen:#?}");
    seen
}

/// A store in memory that can be cut off, and that can change its history.
#[derive(Debug, Default)]
pub(crate) struct Faulty {
    store: MemoryElections,
    faults: Mutex<Faults>,
    calls: AtomicUsize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// No call is done, or has an answer.
    pub(crate) is_away: bool,
    /// Calls that renew have no effect and no answer.
    pub(crate) renews_nothing: bool,
    /// A record is written, and its answer is lost, so many times.
    pub(crate) lost_records: u32,
    /// The history changes while the beginning of a term is recorded, once.
    pub(crate) changes_at_began: bool,
    /// The end of a term is recorded, and its answer never comes.
    pub(crate) ends_in_silence: bool,
    /// The end of a term is recorded some time after the call.
    pub(crate) ends_late: bool,
    pub(crate) history: u32,
}

impl Faulty {
    pub(crate) fn change(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.faults.lock().unwrap());
    }

    fn faults(&self) -> Faults {
        self.faults.lock().unwrap().clone()
    }

    /// Returns how many calls there were so far, without those that look at the history.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    fn gate(&self) -> Result<(), StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match self.faults().is_away {
            true => Err(StoreError::new("the store is away")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl LeaseStore for Faulty {
    async fn acquire(&self, owner: &Owner, wishes: &[Wish]) -> Result<Vec<Answer>, StoreError> {
        self.gate()?;
        self.store.acquire(owner, wishes).await
    }

    async fn renew(&self, owner: &Owner, claims: &[Claim]) -> Result<Vec<bool>, StoreError> {
        self.gate()?;
        if self.faults().renews_nothing {
            return Err(StoreError::new("nothing is renewed"));
        }
        self.store.renew(owner, claims).await
    }

    async fn release(&self, owner: &Owner, claims: &[Claim]) -> Result<(), StoreError> {
        self.gate()?;
        self.store.release(owner, claims).await
    }

    async fn held_by(
        &self,
        key: &Bytes,
    ) -> Result<Option<keylane_leases::store::Holder>, StoreError> {
        self.gate()?;
        self.store.held_by(key).await
    }
}

#[async_trait]
impl ElectionStore for Faulty {
    fn longest_ttl(&self) -> Duration {
        LONGEST
    }

    async fn enter(
        &self,
        key: &Bytes,
        entry: &Entry,
        ttl: Duration,
    ) -> Result<Election, StoreError> {
        self.gate()?;
        self.store.enter(key, entry, ttl).await
    }

    async fn look(&self, key: &Bytes) -> Result<Election, StoreError> {
        self.gate()?;
        self.store.look(key).await
    }

    async fn withdraw(&self, key: &Bytes, candidate: &CandidateId) -> Result<(), StoreError> {
        self.gate()?;
        self.store.withdraw(key, candidate).await
    }

    async fn record(&self, key: &Bytes, term: &TermRecord) -> Result<Recorded, StoreError> {
        self.gate()?;
        if self.faults().changes_at_began && term.stage == Stage::Began {
            tokio::time::sleep(SECOND / 100).await;
            self.change(|faults| {
                faults.history += 1;
                faults.changes_at_began = false;
            });
        }
        if self.faults().ends_late && term.stage == Stage::Ended {
            tokio::time::sleep(SECOND / 10).await;
        }
        let recorded = self.store.record(key, term).await;
        if self.faults().ends_in_silence && term.stage == Stage::Ended {
            std::future::pending::<()>().await;
        }
        let mut faults = self.faults.lock().unwrap();
        if faults.lost_records > 0 {
            faults.lost_records -= 1;
            return Err(StoreError::new("the answer is lost"));
        }
        recorded
    }

    async fn history(&self) -> Result<History, StoreError> {
        self.gate()?;
        self.calls.fetch_sub(1, Ordering::Relaxed);
        Ok(History::new(self.faults().history.to_string()))
    }

    async fn changed(
        &self,
        key: &Bytes,
        candidate: Option<&CandidateId>,
        seen: &Election,
    ) -> Result<(), StoreError> {
        self.gate()?;
        self.store.changed(key, candidate, seen).await
    }
}

/// Returns the elections of a store under control, for one process.
pub(crate) fn process(store: &Arc<Faulty>) -> Elections {
    Elections::open(Arc::clone(store) as _).unwrap()
}
