//! How keys are renewed.

use etcd_client::{Compare, CompareOp, KeyValue, PutOptions, Txn, TxnOp};
use futures::future::try_join_all;
use keylane_connector::{ErrorKind, lock};
use keylane_leases::Owner;
use keylane_leases::store::Claim;
use tokio::time::Instant;

use crate::error::EtcdError;
use crate::leases::book::revision;
use crate::leases::calls::{Calls, found};
use crate::leases::core::{Core, Fresh, TRIES, by_seconds, token};
use crate::link::Connection;
use crate::seen::{Seen, is_same_leader};

/// A claim, its key in etcd, and the revision of its last write if that is known.
struct Known<'a> {
    /// Its place among the claims of one time to live.
    at: usize,
    claim: &'a Claim,
    name: Vec<u8>,
    written: Option<i64>,
}

/// What a look at keys has shown.
#[derive(Default)]
struct Looked<'a> {
    held: Vec<usize>,
    /// They are to be written, with the revision of the last write.
    to_write: Vec<(Known<'a>, i64)>,
    seen: Vec<Seen>,
}

impl Core {
    pub(super) async fn renew_all(
        &self,
        connection: &Connection,
        owner: &Owner,
        claims: &[Claim],
    ) -> Result<Vec<bool>, EtcdError> {
        self.renew_claims(&self.calls(connection), owner, claims)
            .await
    }

    pub(super) async fn renew_claims(
        &self,
        calls: &Calls<'_>,
        owner: &Owner,
        claims: &[Claim],
    ) -> Result<Vec<bool>, EtcdError> {
        let mut answers = vec![false; claims.len()];
        for (secs, places) in by_seconds(claims, |claim| claim.ttl) {
            let group = Vec::from_iter(places.iter().map(|at| &claims[*at]));
            for at in self.renew_group(calls, owner, secs, &group).await? {
                answers[places[at]] = true;
            }
        }
        Ok(answers)
    }

    /// Renews claims of one time to live. Returns the places of those that are held.
    async fn renew_group(
        &self,
        calls: &Calls<'_>,
        owner: &Owner,
        secs: u64,
        claims: &[&Claim],
    ) -> Result<Vec<usize>, EtcdError> {
        for _ in 0..TRIES {
            let sent = Instant::now();
            let fresh = self.carrier(calls, owner, secs).await?;
            let held = match self.hold(calls, owner, claims, (&fresh, sent)).await {
                Ok(held) => held,
                Err(error) => {
                    self.without_carrier(owner, fresh.place.carrier, error)?;
                    continue;
                }
            };
            if let Some(held) = held {
                return Ok(held);
            }
        }
        Err(EtcdError::new(
            ErrorKind::Unable,
            "the leader of etcd changes again and again, or the keys do: try again",
        ))
    }

    /// Has all keys on a carrier, and looks at them after it was kept alive. Returns the places of
    /// those that are held, or `None` if it is to be done again.
    async fn hold(
        &self,
        calls: &Calls<'_>,
        owner: &Owner,
        claims: &[&Claim],
        (fresh, sent): (&Fresh, Instant),
    ) -> Result<Option<Vec<usize>>, EtcdError> {
        let known = self.known(owner, claims, fresh);
        let looks = known.chunks(calls.at_once());
        let looks = looks.map(|known| self.look(calls, owner, known, fresh));
        let (mut held, mut seen, mut to_write) = (Vec::new(), Vec::new(), Vec::new());
        for looked in try_join_all(looks).await? {
            held.extend(looked.held);
            seen.extend(looked.seen);
            to_write.extend(looked.to_write);
        }
        let (written, all) = self
            .write(calls, owner, &to_write, (fresh, sent), &mut seen)
            .await?;
        held.extend(written);
        let is_held = fresh.kept.is_none_or(|before| is_same_leader(before, seen));
        if !(all && is_held) {
            return Ok(None);
        }
        let mut book = lock(&self.book);
        for at in &held {
            book.confirmed(owner, &claims[*at].key, claims[*at].token, sent);
        }
        Ok(Some(held))
    }

    fn known<'a>(&self, owner: &Owner, claims: &[&'a Claim], fresh: &Fresh) -> Vec<Known<'a>> {
        let book = lock(&self.book);
        let known = claims.iter().enumerate().map(|(at, claim)| Known {
            at,
            claim,
            name: self.names.lease(&claim.key),
            written: book.written(owner, &claim.key, claim.token, fresh.place.carrier),
        });
        known.collect()
    }

    /// Looks at keys, in one transaction.
    async fn look<'a>(
        &self,
        calls: &Calls<'_>,
        owner: &Owner,
        known: &[Known<'a>],
        fresh: &Fresh,
    ) -> Result<Looked<'a>, EtcdError> {
        let compares = known.iter().filter_map(|known| {
            let written = known.written?;
            Some(Compare::mod_revision(
                known.name.clone(),
                CompareOp::Equal,
                written,
            ))
        });
        let compares = Vec::from_iter(compares);
        let reads = Vec::from_iter(
            known
                .iter()
                .map(|known| TxnOp::get(known.name.clone(), None)),
        );
        let txn = match compares.len() == known.len() {
            // As they were written: nothing has changed. The reads also make it a transaction of
            // which a majority knows.
            true => Txn::new().when(compares).or_else(reads),
            false => Txn::new().when([impossible(&known[0].name)]).or_else(reads),
        };
        let done = calls.txn(txn).await?;
        let mut looked = Looked::default();
        looked.seen.push(done.seen);
        if done.succeeded {
            looked.held.extend(known.iter().map(|known| known.at));
            return Ok(looked);
        }
        if done.answers.len() != known.len() {
            return Err(EtcdError::incomprehensible());
        }
        for (known, answer) in known.iter().zip(done.answers) {
            match found(Some(answer))?.filter(|key| is_held(key, owner, known.claim)) {
                Some(key) if is_settled(&key, known, fresh) => looked.held.push(known.at),
                Some(key) => looked.to_write.push((known.clone(), key.mod_revision())),
                None => lock(&self.book).lost(owner, &known.claim.key, known.claim.token),
            }
        }
        Ok(looked)
    }

    /// Moves keys to the carrier. Returns the places of those that were moved, and whether that are
    /// all of them.
    async fn write(
        &self,
        calls: &Calls<'_>,
        owner: &Owner,
        keys: &[(Known<'_>, i64)],
        (fresh, sent): (&Fresh, Instant),
        seen: &mut Vec<Seen>,
    ) -> Result<(Vec<usize>, bool), EtcdError> {
        if keys.is_empty() {
            return Ok((Vec::new(), true));
        }
        {
            let mut book = lock(&self.book);
            for (known, _) in keys {
                book.moving(owner, &known.claim.key, fresh.place);
            }
        }
        let done = calls
            .each(keys, |(known, written)| {
                let put = PutOptions::new().with_lease(fresh.place.carrier);
                let name = known.name.clone();
                let txn = Txn::new()
                    .when([Compare::mod_revision(
                        name.clone(),
                        CompareOp::Equal,
                        *written,
                    )])
                    .and_then([TxnOp::put(name.clone(), owner.as_str(), Some(put))]);
                (name, txn)
            })
            .await?;
        let mut written = Vec::new();
        let mut book = lock(&self.book);
        for ((known, _), done) in keys.iter().zip(&done) {
            seen.push(done.seen);
            if done.succeeded {
                let Claim { key, token, .. } = known.claim;
                book.wrote(owner, key, *token, done.seen.revision, fresh.place, sent);
                written.push(known.at);
            }
        }
        let all = written.len() == keys.len();
        Ok((written, all))
    }
}

impl Clone for Known<'_> {
    fn clone(&self) -> Self {
        Self {
            at: self.at,
            claim: self.claim,
            name: self.name.clone(),
            written: self.written,
        }
    }
}

/// Returns a comparison that fails: no key has a negative revision.
fn impossible(name: &[u8]) -> Compare {
    Compare::mod_revision(name, CompareOp::Less, 0)
}

/// Returns whether this owner holds a key under the token of this claim.
fn is_held(key: &KeyValue, owner: &Owner, claim: &Claim) -> bool {
    token(key.create_revision()) == claim.token
        && key.create_revision() == revision(claim.token)
        && key.value() == owner.as_str().as_bytes()
}

/// Returns whether a key is on the carrier already, and no earlier write can still move it.
fn is_settled(key: &KeyValue, known: &Known<'_>, fresh: &Fresh) -> bool {
    key.lease() == fresh.place.carrier && known.written == Some(key.mod_revision())
}
