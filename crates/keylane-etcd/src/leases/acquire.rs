//! How keys are acquired.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use etcd_client::{Compare, CompareOp, KeyValue, Txn, TxnOp};
use keylane_connector::{ErrorKind, lock};
use keylane_leases::Owner;
use keylane_leases::store::{Answer, Claim, Wish};
use tokio::time::Instant;

use crate::error::EtcdError;
use crate::leases::book::CarrierId;
use crate::leases::calls::{Calls, Left, Made};
use crate::leases::core::{Core, Fresh, TRIES, seconds, token};
use crate::link::Connection;
use crate::seen::{Seen, is_same_leader};

/// A wish without an answer so far.
struct Open {
    /// Its place in the call.
    at: usize,
    secs: u64,
}

/// A key that another owner has, or this one had before.
struct Found {
    at: usize,
    key_value: KeyValue,
}

impl Core {
    pub(super) async fn grant_all(
        &self,
        connection: &Connection,
        owner: &Owner,
        wishes: &[Wish],
    ) -> Result<Vec<Answer>, EtcdError> {
        let calls = self.calls(connection);
        let mut answers: Vec<Option<Answer>> = vec![None; wishes.len()];
        let open = wishes.iter().enumerate();
        let mut open = Vec::from_iter(open.map(|(at, wish)| Open {
            at,
            secs: seconds(wish.ttl),
        }));
        for _ in 0..TRIES {
            let mut found = Vec::new();
            for (secs, places) in grouped(&open) {
                found.extend(
                    self.grant_group(&calls, owner, wishes, (secs, places), &mut answers)
                        .await?,
                );
            }
            open = self
                .settle(&calls, owner, wishes, found, &mut answers)
                .await?;
            if open.is_empty() {
                break;
            }
        }
        let answers: Option<Vec<Answer>> = answers.into_iter().collect();
        answers.ok_or_else(|| {
            let why = "an earlier call for the same keys is still in progress: try again";
            EtcdError::new(ErrorKind::Conflict, why)
        })
    }

    /// Creates keys of one time to live. Returns those that exist.
    async fn grant_group(
        &self,
        calls: &Calls<'_>,
        owner: &Owner,
        wishes: &[Wish],
        (secs, places): (u64, Vec<usize>),
        answers: &mut [Option<Answer>],
    ) -> Result<Vec<Found>, EtcdError> {
        let names = places.iter().map(|at| self.names.lease(&wishes[*at].key));
        let names = Vec::from_iter(names);
        for _ in 0..TRIES {
            let sent = Instant::now();
            let fresh = self.carrier(calls, owner, secs).await?;
            self.note_asked(owner, wishes, &places, &fresh, sent);
            let made = match calls
                .create(&names, owner.as_str(), fresh.place.carrier)
                .await
            {
                Ok(made) => made,
                Err(error) => {
                    self.without_carrier(owner, fresh.place.carrier, error)?;
                    continue;
                }
            };
            return self
                .note_made(
                    calls,
                    owner,
                    wishes,
                    (&places, made),
                    (&fresh, sent),
                    answers,
                )
                .await;
        }
        Err(EtcdError::new(
            ErrorKind::Unable,
            "leases end as soon as they are granted: see what revokes them",
        ))
    }

    fn note_asked(
        &self,
        owner: &Owner,
        wishes: &[Wish],
        places: &[usize],
        fresh: &Fresh,
        sent: Instant,
    ) {
        let mut book = lock(&self.book);
        for at in places {
            book.asking(owner, &wishes[*at].key, fresh.place, sent);
        }
    }

    /// Takes the answers. Returns the keys that exist.
    async fn note_made(
        &self,
        calls: &Calls<'_>,
        owner: &Owner,
        wishes: &[Wish],
        (places, made): (&[usize], Vec<(Made, Seen)>),
        (fresh, sent): (&Fresh, Instant),
        answers: &mut [Option<Answer>],
    ) -> Result<Vec<Found>, EtcdError> {
        let after = Vec::from_iter(made.iter().map(|(_, seen)| *seen));
        let (mut found, mut claims) = (Vec::new(), Vec::new());
        {
            let mut book = lock(&self.book);
            for (at, (made, _)) in places.iter().zip(made) {
                let wish = &wishes[*at];
                match made {
                    Made::Created(revision) => {
                        let token = token(revision);
                        book.granted(owner, &wish.key, token, fresh.place, sent);
                        answers[*at] = Some(Answer::Granted(token));
                        claims.push(Claim::new(wish.key.clone(), token, wish.ttl));
                    }
                    Made::Exists(key_value) => {
                        book.gone(owner, &wish.key);
                        found.push(Found { at: *at, key_value });
                    }
                }
            }
        }
        let was_kept = |before: Seen| is_same_leader(before, after);
        if !claims.is_empty() && !fresh.kept.is_none_or(was_kept) {
            self.confirm(calls, owner, &claims).await?;
        }
        Ok(found)
    }

    /// Renews what was granted while the leader has changed.
    async fn confirm(
        &self,
        calls: &Calls<'_>,
        owner: &Owner,
        claims: &[Claim],
    ) -> Result<(), EtcdError> {
        let held = self.renew_claims(calls, owner, claims).await?;
        match held.iter().all(|held| *held) {
            true => Ok(()),
            false => Err(EtcdError::new(
                ErrorKind::Unable,
                "leases have ended while the leader of etcd has changed: try again",
            )),
        }
    }

    /// Answers for keys that exist. Deletes those of an earlier call of this owner whose answer was
    /// lost, and returns them: they are to be created again, for as long as they would have lasted.
    async fn settle(
        &self,
        calls: &Calls<'_>,
        owner: &Owner,
        wishes: &[Wish],
        found: Vec<Found>,
        answers: &mut [Option<Answer>],
    ) -> Result<Vec<Open>, EtcdError> {
        let mut carriers = Vec::from_iter(found.iter().map(|found| found.key_value.lease()));
        carriers.sort_unstable();
        carriers.dedup();
        let left: HashMap<_, _> = calls.left(carriers).await?.into_iter().collect();
        let is_ours = |found: &Found| found.key_value.value() == owner.as_str().as_bytes();
        let (ours, others) = found.into_iter().partition::<Vec<_>, _>(is_ours);
        for Found { at, key_value } in others {
            let remaining = remaining(&key_value, &left, wishes[at].ttl);
            answers[at] = Some(Answer::Taken { remaining });
        }
        calls
            .each(&ours, |found| {
                let (name, written) = (found.key_value.key(), found.key_value.mod_revision());
                let txn = Txn::new()
                    .when([Compare::mod_revision(name, CompareOp::Equal, written)])
                    .and_then([TxnOp::delete(name, None)]);
                (name.to_vec(), txn)
            })
            .await?;
        let again = ours.into_iter().map(|Found { at, key_value }| {
            let lasts = left.get(&key_value.lease()).and_then(|left| left.seconds);
            let lasts = lasts.map_or(0, |seconds| seconds + 1);
            let secs = seconds(wishes[at].ttl).max(lasts);
            Open { at, secs }
        });
        Ok(again.collect())
    }
}

/// Groups the places of wishes by their time to live.
fn grouped(open: &[Open]) -> BTreeMap<u64, Vec<usize>> {
    let mut groups = BTreeMap::<u64, Vec<usize>>::new();
    for Open { at, secs } in open {
        groups.entry(*secs).or_default().push(*at);
    }
    groups
}

/// Returns how long the key of another owner lasts.
fn remaining(key: &KeyValue, left: &HashMap<CarrierId, Left>, ttl: Duration) -> Duration {
    if key.lease() == 0 {
        tracing::warn!(
            key = %String::from_utf8_lossy(key.key()),
            "a key of a lease is not attached to a lease of etcd, and never ends: delete it, and \
             see what wrote it"
        );
        return ttl;
    }
    let left = left.get(&key.lease()).copied();
    left.unwrap_or(Left::ENDED).time()
}
