//! Leases within one process.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;

use crate::error::StoreError;
use crate::store::{Answer, Claim, Holder, LeaseStore, Owner, Token, Wish};

/// Keeps leases in memory: for tests, and for a service that runs in one process so far.
#[derive(Debug, Default)]
pub struct MemoryStore {
    grants: Mutex<Grants>,
}

#[derive(Debug, Default)]
struct Grants {
    /// The last token of all keys: the tokens of a key grow even after the key is forgotten.
    last_token: u64,
    held: HashMap<Bytes, Grant>,
}

#[derive(Debug)]
struct Grant {
    owner: Owner,
    token: Token,
    until: Instant,
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the current holder of a key, and its token.
    pub fn holder(&self, key: &[u8]) -> Option<(Owner, Token)> {
        self.with(|grants, now| {
            let grant = grants.held.get(key).filter(|grant| grant.until > now)?;
            Some((grant.owner.clone(), grant.token))
        })
    }

    /// Returns the token of a key that is held, and how long it lasts.
    pub fn held(&self, key: &[u8]) -> Option<(Token, Duration)> {
        self.with(|grants, now| {
            let grant = grants.held.get(key).filter(|grant| grant.until > now)?;
            Some((grant.token, grant.until - now))
        })
    }

    fn with<R>(&self, call: impl FnOnce(&mut Grants, Instant) -> R) -> R {
        let mut grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        call(&mut grants, Instant::now())
    }
}

#[async_trait]
impl LeaseStore for MemoryStore {
    async fn acquire(&self, owner: &Owner, wishes: &[Wish]) -> Result<Vec<Answer>, StoreError> {
        Ok(self.with(|grants, now| {
            let answers = wishes.iter().map(|wish| grants.acquire(owner, wish, now));
            answers.collect()
        }))
    }

    async fn renew(&self, owner: &Owner, claims: &[Claim]) -> Result<Vec<bool>, StoreError> {
        Ok(self.with(|grants, now| {
            let renew = |claim: &Claim| match grants.held.get_mut(&claim.key) {
                Some(grant) if grant.is(owner, claim) => {
                    grant.until = now + claim.ttl;
                    true
                }
                _ => false,
            };
            claims.iter().map(renew).collect()
        }))
    }

    async fn release(&self, owner: &Owner, claims: &[Claim]) -> Result<(), StoreError> {
        self.with(|grants, _| {
            for claim in claims {
                let grant = grants.held.get(&claim.key);
                if grant.is_some_and(|grant| grant.is(owner, claim)) {
                    grants.held.remove(&claim.key);
                }
            }
        });
        Ok(())
    }

    async fn held_by(&self, key: &Bytes) -> Result<Option<Holder>, StoreError> {
        Ok(self.with(|grants, now| {
            let grant = grants.held.get(key).filter(|grant| grant.until > now)?;
            let remaining = Some(grant.until - now);
            Some(Holder::new(grant.owner.as_str(), grant.token, remaining))
        }))
    }
}

impl Grants {
    fn acquire(&mut self, owner: &Owner, wish: &Wish, now: Instant) -> Answer {
        let mut until = now + wish.ttl;
        if let Some(grant) = self.held.get(&wish.key)
            && grant.until > now
        {
            if grant.owner != *owner {
                let remaining = grant.until - now;
                return Answer::Taken { remaining };
            }
            until = until.max(grant.until);
        }
        self.last_token += 1;
        let grant = Grant {
            owner: owner.clone(),
            token: Token(self.last_token),
            until,
        };
        let token = grant.token;
        self.held.insert(wish.key.clone(), grant);
        Answer::Granted(token)
    }
}

impl Grant {
    fn is(&self, owner: &Owner, claim: &Claim) -> bool {
        self.owner == *owner && self.token == claim.token
    }
}
