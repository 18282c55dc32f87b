//! A worker: a process that is a candidate, and writes while it leads.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use keylane_leader::store::CandidateId;
use keylane_leader::{
    Candidate, Career, ElectionStore, Elections, End, LeaderWatch, Office, Stop, Term,
};
use tokio::time::sleep;

use super::record::Event;
use super::{Answer, Sink, Write};
use crate::{Journal, orders, task};

/// The election of all workers.
pub(super) const ELECTION: &str = "billing";

/// How long a worker computes before each write. It blocks a thread, so a pause mostly falls into
/// it, and the write is sent when the process goes on.
const COMPUTES: Duration = Duration::from_millis(20);

/// How long it waits after each write.
const PACE: Duration = Duration::from_millis(2);

/// How long a candidate rests after its term.
const REST: Duration = Duration::from_millis(100);

/// What a test gives to a worker that it starts.
#[derive(Debug)]
pub struct Candidacy {
    journal: Journal,
    rank: u16,
    ttl: Duration,
    address: String,
}

impl Candidacy {
    /// In the test that is a worker: returns its candidacy. `None` if no [`Trial`](super::Trial)
    /// has started it.
    ///
    /// # Panics
    ///
    /// Panics if the journal cannot be opened.
    pub fn assigned() -> Option<Self> {
        let (journal, task) = task()?;
        let mut words = task.splitn(3, ' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let rank = number().and_then(|rank| u16::try_from(rank).ok());
        let ttl = number().map(Duration::from_millis);
        Some(Self {
            journal,
            rank: rank.expect("a rank"),
            ttl: ttl.expect("a time to live"),
            address: words.next().expect("an address").to_owned(),
        })
    }

    pub(super) fn task(rank: u16, ttl: Duration, address: &str) -> String {
        format!("{rank} {} {address}", ttl.as_millis())
    }

    /// Returns where the servers are: what [`Site::address`](super::Site::address) has returned.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the time to live of a term.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Stands for election, and leads when it is elected, until the test tells it to leave. What
    /// it writes is sent by tasks of their own: it arrives also after `execute` was dropped.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    pub async fn run(self, store: Arc<dyn ElectionStore>, sink: impl Sink) {
        let elections = Elections::open(store).expect("a runtime");
        let leader = Leader {
            journal: self.journal.clone(),
            sink: Arc::new(sink),
            number: 0,
        };
        let office = Candidate::builder(&elections, ELECTION)
            .id(std::process::id().to_string())
            .rank(self.rank)
            .ttl(self.ttl)
            .retry_after(REST, 4 * REST)
            .run(leader)
            .expect("a candidate");
        tokio::spawn(hear(self.journal, office.leader()));
        let mut orders = orders();
        while let Some(order) = orders.recv().await {
            obey(&office, &order);
        }
        office.close().await;
        elections.close().await;
    }
}

/// Does what the test says. It may be too late: another one leads by then.
fn obey(office: &Office, order: &str) {
    let _ = match order.split_once(' ') {
        None => office.resign(),
        Some((_, to)) => office.hand_to(&CandidateId::new(to).expect("the id of a candidate")),
    };
}

pub(super) const RESIGN: &str = "resign";

pub(super) fn hand_to(process: u32) -> String {
    format!("hand_to {process}")
}

/// Records which leaders a candidate sees. It is one of their election then.
async fn hear(journal: Journal, mut leaders: LeaderWatch) {
    while let Ok(leader) = leaders.changed().await {
        if let Some(following) = leader {
            Event::Sees.write(&journal, [following.token.0, 0, 0]);
        }
    }
}

/// A leader that writes, one write after the other.
struct Leader<S> {
    journal: Journal,
    sink: Arc<S>,
    /// Of the last write.
    number: u64,
}

impl<S: Sink> Career for Leader<S> {
    type Error = Infallible;

    async fn inaugurate(&mut self, term: &Term) -> Result<(), Infallible> {
        self.number = 0;
        Event::Inaugurated.write(&self.journal, [term.token().0, 0, 0]);
        Ok(())
    }

    async fn execute(&mut self, term: &Term, stop: Stop) -> Result<(), Infallible> {
        let token = term.token().0;
        Event::Executes.write(&self.journal, [token, 0, 0]);
        let _stopped = OnDrop(self.journal.clone(), token);
        while !stop.is_requested() {
            self.write(term).await;
            sleep(PACE).await;
        }
        Ok(())
    }

    async fn hand_over(&mut self, term: &Term, why: End) {
        let token = term.token().0;
        let is_lost = matches!(why, End::Lost(_) | End::OtherHistory);
        Event::HandsOver.write(&self.journal, [token, is_lost.into(), 0]);
        let is_held = term.check().is_ok();
        Event::HandedOver.write(&self.journal, [token, is_held.into(), 0]);
    }
}

impl<S: Sink> Leader<S> {
    async fn write(&mut self, term: &Term) {
        self.number += 1;
        let (token, number) = (term.token().0, self.number);
        let write = Write { token, number };
        Event::Writes.write(&self.journal, [token, number, 0]);
        std::thread::sleep(COMPUTES);
        let (sink, journal, term) = (Arc::clone(&self.sink), self.journal.clone(), term.clone());
        let fenced = tokio::spawn(async move {
            let event = match sink.fenced(&term, write).await {
                Answer::Accepted => Event::Accepted,
                Answer::Refused => Event::Refused,
                Answer::Unknown => Event::Unknown,
            };
            event.write(&journal, [token, number, 0]);
        });
        let sink = Arc::clone(&self.sink);
        let plain = tokio::spawn(async move { sink.plain(write).await });
        let _ = tokio::join!(fenced, plain);
    }
}

/// Records that `execute` has ended, in any way.
struct OnDrop(Journal, u64);

impl Drop for OnDrop {
    fn drop(&mut self) {
        Event::Stopped.write(&self.0, [self.1, 0, 0]);
    }
}
