//! How an election is read.

use std::time::{Duration, Instant};

use bytes::Bytes;
use keylane_leader::store::{Holder, decode};
use keylane_leases::Token;
use keylane_leases::error::StoreError;
use zookeeper_client::Error;

use super::lineup::Lineup;
use super::view::View;
use crate::error::store;
use crate::leases::LeaseData;
use crate::session::Session;

/// Reads an election from a server that has all that was done before.
pub(super) async fn read(session: &Session, key: &Bytes) -> Result<View, StoreError> {
    let (folder, lease) = (session.paths.election(key), session.paths.lease(key));
    let client = &session.client;
    let synced = client.sync(&folder);
    let node = client.get_data(&folder);
    let children = client.list_children(&folder);
    let lease = client.get_data(&lease);
    synced
        .await
        .map_err(|error| store(&session.hosts, &error))?;
    let node = existing(session, node.await)?;
    let children = existing(session, children.await)?.unwrap_or_default();
    let lease = existing(session, lease.await)?;
    let term = node.as_ref().and_then(|(data, _)| {
        let text = std::str::from_utf8(data).ok()?;
        decode(text)
    });
    let chosen = term.as_ref().and_then(|term| term.chosen.clone());
    let holder = lease.map(|(data, stat)| Holder {
        token: Token(stat.czxid.unsigned_abs()),
        remaining: remaining(session, &data),
    });
    Ok(View {
        term,
        version: node.as_ref().map(|(_, stat)| stat.version),
        revision: node.map_or(0, |(_, stat)| stat.mzxid),
        lineup: Lineup::new(children.iter().map(String::as_str), chosen),
        holder,
    })
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

fn existing<T>(session: &Session, seen: Result<T, Error>) -> Result<Option<T>, StoreError> {
    match seen {
        Ok(seen) => Ok(Some(seen)),
        Err(Error::NoNode) => Ok(None),
        Err(error) => Err(store(&session.hosts, &error)),
    }
}
