//! Elections in real databases.

mod conformance;
mod fencing;
mod hammer;
mod histories;
mod limits;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keylane_leader::store::{CandidateId, Election, Entry, Recorded, Stage, TermRecord};
use keylane_leader::{ElectionStore, store};
use keylane_leases::store::{Answer, Claim, Wish};
use keylane_leases::{LeaseStore, Owner, Token};
use keylane_sql::{SqlElections, Tables};

use crate::support::Place;

/// Longer than a test.
const LONG: Duration = Duration::from_secs(600);

async fn elections(place: &Place) -> SqlElections {
    SqlElections::open(&place.database, &Tables::new())
        .await
        .unwrap()
}

fn id(name: &str) -> CandidateId {
    CandidateId::new(name).unwrap()
}

fn term(token: u64, leader: &str, stage: Stage) -> TermRecord {
    TermRecord {
        token: Token(token),
        leader: id(leader),
        stage,
        chosen: None,
    }
}

/// The term of a leader that leaves, and has chosen its successor.
fn choosing(token: u64, leader: &str, chosen: &str) -> TermRecord {
    TermRecord {
        chosen: Some(id(chosen)),
        ..term(token, leader, Stage::Leaving)
    }
}

/// One election.
#[derive(Clone)]
struct Scene {
    store: Arc<SqlElections>,
    key: Bytes,
}

impl Scene {
    async fn new(place: &Place, key: &'static str) -> Self {
        Self {
            store: Arc::new(elections(place).await),
            key: Bytes::from(key),
        }
    }

    async fn enter(&self, name: &str, rank: u16, ttl: Duration) -> Election {
        let entry = Entry { id: id(name), rank };
        self.store.enter(&self.key, &entry, ttl).await.unwrap()
    }

    async fn look(&self) -> Election {
        self.store.look(&self.key).await.unwrap()
    }

    async fn record(&self, token: u64, leader: &str, stage: Stage) -> Recorded {
        self.write(&term(token, leader, stage)).await
    }

    async fn write(&self, term: &TermRecord) -> Recorded {
        self.store.record(&self.key, term).await.unwrap()
    }

    async fn history(&self) -> store::History {
        self.store.history().await.unwrap()
    }

    async fn grant(&self, owner: &Owner) -> Claim {
        let wishes = [Wish::new(self.key.clone(), LONG)];
        match self.store.acquire(owner, &wishes).await.unwrap()[..] {
            [Answer::Granted(token)] => Claim::new(self.key.clone(), token, LONG),
            ref other => panic!("{other:?}"),
        }
    }
}
