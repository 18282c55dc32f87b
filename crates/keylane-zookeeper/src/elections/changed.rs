//! The wait for a change.

use bytes::Bytes;
use keylane_leader::store::{CandidateId, Election, matters};
use keylane_leases::error::StoreError;
use zookeeper_client::OneshotWatcher;

use super::armed::Armed;
use super::lineup::Watches;
use super::read::read;
use super::view::View;
use crate::error::store;
use crate::session::Session;

/// Waits until what matters to a candidate is no longer as it has seen it. A watch is set first,
/// and the election is read after it: what changes in between is in what was read.
pub(super) async fn changed(
    session: &Session,
    key: &Bytes,
    candidate: Option<&CandidateId>,
    seen: &Election,
) -> Result<(), StoreError> {
    let folder = session.paths.election(key);
    let watches_of = |view: &View| {
        candidate
            .and_then(|id| view.lineup.watches(id, session.id(), &folder))
            .unwrap_or_else(Watches::of_all)
    };
    if let Some(id) = candidate
        && let Some(armed) = session.armed().take(key, id)
        && !matters(candidate, seen, &armed.seen)
    {
        session.armed().wait(key, id, armed).await;
        return Ok(());
    }
    let mut view = read(session, key).await?;
    loop {
        let watches = watches_of(&view);
        if matters(candidate, seen, &view.election()) {
            return Ok(());
        }
        let set = set(session, key, &watches).await?;
        view = read(session, key).await?;
        let now = view.election();
        if matters(candidate, seen, &now) {
            return Ok(());
        }
        // Otherwise another one is before it now.
        if watches_of(&view) == watches {
            let mut armed = Armed::new(watches, now, set);
            match candidate {
                Some(id) => session.armed().wait(key, id, armed).await,
                None => armed.fired().await,
            }
            return Ok(());
        }
    }
}

impl Watches {
    /// What one waits for that is no candidate.
    fn of_all() -> Self {
        Self {
            record: true,
            lease: true,
            nodes: Vec::new(),
        }
    }
}

/// Sets the watches, all at the same time.
async fn set(
    session: &Session,
    key: &Bytes,
    watches: &Watches,
) -> Result<Vec<OneshotWatcher>, StoreError> {
    let mut paths = watches.nodes.clone();
    paths.extend(watches.record.then(|| session.paths.election(key)));
    paths.extend(watches.lease.then(|| session.paths.lease(key)));
    let asked = paths
        .iter()
        .map(|path| session.client.check_and_watch_stat(path));
    let asked: Vec<_> = asked.collect();
    let mut set = Vec::with_capacity(asked.len());
    for asked in asked {
        // A node that is not there is watched too: it may come.
        let (_, watcher) = asked.await.map_err(|error| store(&session.hosts, &error))?;
        set.push(watcher);
    }
    Ok(set)
}
