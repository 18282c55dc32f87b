//! Who has a key.

use std::time::Instant;

use keylane_leases::Token;
use keylane_leases::error::StoreError;
use keylane_leases::store::Holder;
use zookeeper_client::{Error, Stat};

use super::LeaseData;
use crate::error::store;
use crate::link::Link;

pub(super) async fn held_by(link: &Link, key: &[u8]) -> Result<Option<Holder>, StoreError> {
    let session = link.session().await?;
    let (data, stat) = match session.client.get_data(&session.paths.lease(key)).await {
        Ok(seen) => seen,
        Err(Error::NoNode) => return Ok(None),
        Err(error) => return Err(store(&session.hosts, &error)),
    };
    let Some(data) = LeaseData::decode(&data) else {
        return Ok(Some(unknown(&stat)));
    };
    let longest = data.longest();
    let holder = |remaining| Holder::new(data.owner, token(&stat), Some(remaining));
    Ok(match session.number_of(&data.guard) {
        // Once it is over, its nodes are about to be removed.
        Some(number) => session.book().remaining(number, Instant::now()).map(holder),
        None => Some(holder(longest).of_session()),
    })
}

/// What is known of a node that is no lease of this version: the session that has made it.
fn unknown(stat: &Stat) -> Holder {
    let holder = |owner: String| Holder::new(owner, token(stat), None);
    match stat.ephemeral_owner {
        0 => holder("a node without a session".to_owned()),
        session => holder(format!("session {session:#x}")).of_session(),
    }
}

fn token(stat: &Stat) -> Token {
    // A transaction has a positive number.
    Token(stat.czxid.unsigned_abs())
}
