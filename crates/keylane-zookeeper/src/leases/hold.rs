//! Renewals and releases.

use std::time::Instant;

use keylane_leases::error::StoreError;
use keylane_leases::store::{Claim, Owner};

use crate::error::store;
use crate::link::Link;

pub(super) async fn renew(
    link: &Link,
    owner: &Owner,
    claims: &[Claim],
) -> Result<Vec<bool>, StoreError> {
    if claims.is_empty() {
        return Ok(Vec::new());
    }
    let session = link.session().await?;
    for claim in claims {
        session.check_ttl(claim.ttl)?;
    }
    // First: the questions below are answered by a server that has this transaction.
    let beaten = session.beat()?;
    let asked = claims.iter().map(|claim| {
        let mut book = session.book();
        let now = Instant::now();
        let (number, _) = book.find(owner, &claim.key, claim.token)?;
        // While the answer is awaited, it must not run out.
        let is_held = book.keep(number, now + claim.ttl, now);
        let seen = is_held.then(|| session.client.check_stat(&session.paths.lease(&claim.key)));
        Some((number, seen?))
    });
    let asked: Vec<_> = asked.collect();
    beaten.await?;
    let mut answers = Vec::with_capacity(claims.len());
    for (claim, asked) in claims.iter().zip(asked) {
        let Some((number, seen)) = asked else {
            answers.push(false);
            continue;
        };
        let seen = seen.await.map_err(|error| store(&session.hosts, &error))?;
        let is_there = seen
            .filter(|stat| session.owns(stat) && stat.czxid.unsigned_abs() == claim.token.0)
            .is_some();
        let now = Instant::now();
        let mut book = session.book();
        answers.push(is_there && book.renew(number, now + claim.ttl, now));
        if !is_there {
            book.end(number, now);
        }
    }
    session.book_changed();
    Ok(answers)
}

pub(super) async fn release(
    link: &Link,
    owner: &Owner,
    claims: &[Claim],
) -> Result<(), StoreError> {
    if claims.is_empty() {
        return Ok(());
    }
    let session = link.session().await?;
    let sent = claims.iter().filter_map(|claim| {
        let mut book = session.book();
        let (number, _) = book.find(owner, &claim.key, claim.token)?;
        book.end(number, Instant::now());
        drop(book);
        Some(session.remove_grant(number, &claim.key))
    });
    let sent: Vec<_> = sent.collect();
    let mut outcome = Ok(());
    for removed in sent {
        // One that was not removed is tried again by itself.
        outcome = outcome.and(removed.await);
    }
    session.book_changed();
    outcome
}
