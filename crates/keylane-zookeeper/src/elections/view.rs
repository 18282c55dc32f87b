//! An election, read from the servers.

use std::time::{Duration, Instant};

use bytes::Bytes;
use keylane_leader::store::{Election, Holder, TermRecord, decode};
use keylane_leases::Token;
use keylane_leases::error::StoreError;
use zookeeper_client::Error;

use super::lineup::Lineup;
use crate::error::store;
use crate::leases::LeaseData;
use crate::session::Session;

/// An election, as the servers have it.
pub(super) struct View {
    pub(super) term: Option<TermRecord>,
    /// The version of the node; `None` if there is none.
    pub(super) version: Option<i32>,
    revision: i64,
    pub(super) lineup: Lineup,
    pub(super) holder: Option<Holder>,
}

impl View {
    /// Reads an election from a server that has all that was done before.
    pub(super) async fn read(session: &Session, key: &Bytes) -> Result<Self, StoreError> {
        let (folder, lease) = (session.paths.election(key), session.paths.lease(key));
        let client = &session.client;
        let synced = client.sync(&folder);
        let node = client.get_data(&folder);
        let children = client.list_children(&folder);
        let lease = client.get_data(&lease);
        synced.await.map_err(|error| store(&error))?;
        let node = existing(node.await)?;
        let children = existing(children.await)?.unwrap_or_default();
        let lease = existing(lease.await)?;
        let term = node.as_ref().and_then(|(data, _)| {
            let text = std::str::from_utf8(data).ok()?;
            decode(text)
        });
        let chosen = term.as_ref().and_then(|term| term.chosen.clone());
        let holder = lease.map(|(data, stat)| Holder {
            token: Token(stat.czxid.unsigned_abs()),
            remaining: remaining(session, &data),
        });
        Ok(Self {
            term,
            version: node.as_ref().map(|(_, stat)| stat.version),
            revision: node.map_or(0, |(_, stat)| stat.mzxid),
            lineup: Lineup::new(children.iter().map(String::as_str), chosen),
            holder,
        })
    }

    pub(super) fn election(&self) -> Election {
        Election {
            next: self.lineup.next().map(|next| next.id.clone()),
            holder: self.holder.clone(),
            term: self.term.clone(),
            revision: self.revision.unsigned_abs(),
        }
    }
}

/// Returns the longest time that a lease may last.
fn remaining(session: &Session, data: &[u8]) -> Duration {
    let Some(data) = LeaseData::decode(data) else {
        return session.timeout();
    };
    let number = session.number_of(&data.guard);
    let own = number.and_then(|number| session.book().remaining(number, Instant::now()));
    own.unwrap_or_else(|| data.longest())
}

fn existing<T>(seen: Result<T, Error>) -> Result<Option<T>, StoreError> {
    match seen {
        Ok(seen) => Ok(Some(seen)),
        Err(Error::NoNode) => Ok(None),
        Err(error) => Err(store(&error)),
    }
}
