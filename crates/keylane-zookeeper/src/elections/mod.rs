//! Elections: a node for each, with the record of its last term as data, and its candidates below.
//!
//! ```text
//! /root/elections/kbilling                              the record of the last term; it stays
//! /root/elections/kbilling/<rank>~<session>~<id>~<n>    a candidate: ephemeral, numbered
//! /root/leases/kbilling                                 the lease of the term
//! ```
//!
//! A candidate counts as one of this process only with the session in its name: after a session is
//! lost, its candidate is another one until it has gone.

pub(crate) mod armed;
mod candidate;
mod changed;
pub(crate) mod known;
mod lineup;
mod read;
mod record;
mod view;

use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use keylane_leader::store::{
    CandidateId, Election, ElectionStore, Entry, History, Recorded, TermRecord,
};
use keylane_leases::error::StoreError;
use zookeeper_client::{CreateMode, Error};

use self::candidate::Candidate;
use self::read::read;
use self::record::make;
use crate::error::store;
use crate::leases::ZooKeeperLeases;
use crate::session::Session;

/// How often a candidate looks although nothing has woken it.
const ENTER_EVERY: Duration = Duration::from_secs(60);

/// Elections on the same session as the leases.
///
/// A candidate stays for its time to live, or, if this process has died, until its session ends.
/// Each waits for the one before it: a change wakes the candidate that it matters to, and all that
/// only watch. [`history`](ElectionStore::history) changes when a process that has seen the last
/// transactions finds the servers without them, as after a restored backup. If no such process is
/// left, the servers cannot tell, and the text stays.
#[async_trait]
impl ElectionStore for ZooKeeperLeases {
    async fn enter(
        &self,
        key: &Bytes,
        entry: &Entry,
        ttl: Duration,
    ) -> Result<Election, StoreError> {
        // Two calls at a time would both find no candidate, and make two.
        let _one = self.entering.lock().await;
        let session = self.link.session().await?;
        let view = read(&session, key).await?;
        let is_mine = |one: &&Candidate| one.id == entry.id && one.session == session.id();
        let known = view.lineup.candidates().iter().find(is_mine);
        let mine = known.map(|mine| mine.path(&session.paths.election(key)));
        let is_new = mine.is_none();
        let path = match mine {
            Some(path) => path,
            None => {
                // If this is dropped, it is not known whether the candidate is there.
                session.elections().take(key);
                add(&session, key, entry).await?
            }
        };
        session.book().candidate(path, Instant::now() + ttl);
        session.book_changed();
        let view = if is_new {
            read(&session, key).await?
        } else {
            view
        };
        let election = view.election();
        session.elections().note(key, view);
        Ok(election)
    }

    /// The session says which candidates are there, and each is woken by what it waits for. So they
    /// look by themselves once a minute.
    fn enter_every(&self, ttl: Duration) -> Duration {
        ENTER_EVERY.max(ttl / 3)
    }

    fn longest_ttl(&self) -> Duration {
        self.link.longest_ttl()
    }

    async fn look(&self, key: &Bytes) -> Result<Election, StoreError> {
        let session = self.link.session().await?;
        read(&session, key).await.map(|view| view.election())
    }

    async fn withdraw(&self, key: &Bytes, candidate: &CandidateId) -> Result<(), StoreError> {
        let session = self.link.session().await?;
        session.elections().take(key);
        let view = read(&session, key).await?;
        let folder = session.paths.election(key);
        for path in view.lineup.paths_of(candidate, &folder) {
            session.remove(&path).await?;
            session.forget_candidate(&path);
        }
        Ok(())
    }

    async fn record(&self, key: &Bytes, term: &TermRecord) -> Result<Recorded, StoreError> {
        let session = self.link.session().await?;
        record::record(&session, key, term).await
    }

    async fn history(&self) -> Result<History, StoreError> {
        let session = self.link.session().await?;
        let path = session.paths.history();
        let synced = session.client.sync(&path);
        let seen = session.client.get_data(&path);
        synced
            .await
            .map_err(|error| store(&session.hosts, &error))?;
        let (name, _) = seen.await.map_err(|error| store(&session.hosts, &error))?;
        Ok(History::new(String::from_utf8_lossy(&name)))
    }

    async fn changed(
        &self,
        key: &Bytes,
        candidate: Option<&CandidateId>,
        seen: &Election,
    ) -> Result<(), StoreError> {
        let session = self.link.session().await?;
        changed::changed(&session, key, candidate, seen).await
    }
}

/// Makes the node of a candidate, and returns its path.
async fn add(session: &Session, key: &Bytes, entry: &Entry) -> Result<String, StoreError> {
    let folder = session.paths.election(key);
    let prefix = format!(
        "{folder}/{}",
        candidate::prefix(entry.rank, session.id(), &entry.id)
    );
    let options = CreateMode::EphemeralSequential.with_acls(session.acls());
    let create = || session.client.create(&prefix, b"", &options);
    let made = match create().await {
        // Rare: an election stays.
        Err(Error::NoNode) => {
            make(session, &folder).await?;
            create().await
        }
        made => made,
    };
    let (stat, sequence) = made.map_err(|error| store(&session.hosts, &error))?;
    if !session.owns(&stat) {
        return Err(session.replaced());
    }
    session.saw(stat.czxid);
    Ok(format!("{prefix}{sequence}"))
}
