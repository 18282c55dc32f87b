//! Elections in real servers.

mod conformance;
mod fences;
mod histories;
mod limits;
mod waking;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keylane_leader::ElectionStore;
use keylane_leader::store::{CandidateId, Election, Entry, Recorded, Stage, TermRecord};
use keylane_leases::store::{Answer, Claim, LeaseStore, Wish};
use keylane_leases::{Owner, Token};
use keylane_redis::{Redis, RedisElections};

const LONG: Duration = Duration::from_secs(600);

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

/// A store with connections of its own.
fn elections(url: &str, namespace: &str) -> RedisElections {
    let redis = Redis::at(url).unwrap();
    RedisElections::open(&redis, namespace.to_owned()).unwrap()
}

/// An election, as one process sees it.
#[derive(Clone)]
struct Place {
    store: Arc<RedisElections>,
    key: Bytes,
    owner: Owner,
}

impl Place {
    fn new(store: RedisElections, key: &str) -> Self {
        Self {
            store: Arc::new(store),
            key: Bytes::copy_from_slice(key.as_bytes()),
            owner: Owner::random(),
        }
    }

    async fn enter_for(&self, name: &str, rank: u16, ttl: Duration) -> Election {
        let entry = Entry { id: id(name), rank };
        self.store.enter(&self.key, &entry, ttl).await.unwrap()
    }

    async fn enter(&self, name: &str) -> Election {
        self.enter_for(name, 1, LONG).await
    }

    async fn look(&self) -> Election {
        self.store.look(&self.key).await.unwrap()
    }

    async fn next(&self) -> Option<String> {
        self.look().await.next.map(|next| next.to_string())
    }

    async fn withdraw(&self, name: &str) {
        self.store.withdraw(&self.key, &id(name)).await.unwrap();
    }

    async fn record(&self, token: u64, leader: &str, stage: Stage) -> Recorded {
        self.write(&term(token, leader, stage)).await
    }

    async fn write(&self, term: &TermRecord) -> Recorded {
        self.store.record(&self.key, term).await.unwrap()
    }

    /// Grants the lease of the term.
    async fn grant(&self) -> u64 {
        let wishes = [Wish::new(self.key.clone(), LONG)];
        let answers = self.store.acquire(&self.owner, &wishes).await.unwrap();
        match answers[..] {
            [Answer::Granted(token)] => token.0,
            _ => panic!("it is not granted: {answers:?}"),
        }
    }

    async fn release(&self, token: u64) {
        let claims = [Claim::new(self.key.clone(), Token(token), LONG)];
        self.store.release(&self.owner, &claims).await.unwrap();
    }

    /// Waits for what concerns this candidate, or for `None` a watcher.
    async fn changed(&self, name: Option<&str>, seen: &Election) {
        let candidate = name.map(id);
        let changed = self.store.changed(&self.key, candidate.as_ref(), seen);
        changed.await.unwrap();
    }
}
