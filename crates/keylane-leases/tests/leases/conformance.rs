//! The store in memory, and stores with one planted defect each, which the suite must find.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use keylane_leases::error::StoreError;
use keylane_leases::store::{Answer, Claim, Holder, LeaseStore, Owner, Token, Wish};
use keylane_leases::{MemoryStore, conformance};

#[tokio::test(start_paused = true)]
async fn the_store_in_memory_conforms() {
    conformance::check(Arc::new(MemoryStore::new())).await;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    GrantsToAll,
    RefusesItsOwnHolder,
    OneToken,
    TokensFallAfterARelease,
    LeasesLast,
    NothingRemains,
    AnswersReversed,
    KeysWithoutCase,
    KeysCut,
    RenewsNothing,
    RenewsAnyToken,
    RenewsForOthers,
    RenewsAsItWas,
    ReleasesNothing,
    ReleasesAnyToken,
    ReleasesForOthers,
    ShortensItsOwn,
    NamesNoHolder,
    NamesThePreviousHolder,
    NamesThePreviousToken,
    EndsWhatIsLookedAt,
}

const DEFECTS: [Defect; 21] = [
    Defect::GrantsToAll,
    Defect::RefusesItsOwnHolder,
    Defect::OneToken,
    Defect::TokensFallAfterARelease,
    Defect::LeasesLast,
    Defect::NothingRemains,
    Defect::AnswersReversed,
    Defect::KeysWithoutCase,
    Defect::KeysCut,
    Defect::RenewsNothing,
    Defect::RenewsAnyToken,
    Defect::RenewsForOthers,
    Defect::RenewsAsItWas,
    Defect::ReleasesNothing,
    Defect::ReleasesAnyToken,
    Defect::ReleasesForOthers,
    Defect::ShortensItsOwn,
    Defect::NamesNoHolder,
    Defect::NamesThePreviousHolder,
    Defect::NamesThePreviousToken,
    Defect::EndsWhatIsLookedAt,
];

#[tokio::test(start_paused = true)]
async fn each_defect_is_found() {
    for defect in DEFECTS {
        let store = Arc::new(Defective {
            memory: MemoryStore::new(),
            defect,
            releases: AtomicU64::new(0),
            seen: Mutex::default(),
        });
        let checked = tokio::spawn(conformance::check(store));
        let found = checked.await.is_err_and(|error| error.is_panic());
        assert!(found, "{defect:?} conforms");
    }
}

struct Defective {
    memory: MemoryStore,
    defect: Defect,
    releases: AtomicU64,
    /// What each key was seen to be held by.
    seen: Mutex<HashMap<Bytes, Holder>>,
}

impl Defective {
    fn is(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    fn key(&self, key: &Bytes) -> Bytes {
        match self.defect {
            Defect::KeysWithoutCase => Bytes::from(key.to_ascii_lowercase()),
            Defect::KeysCut => key.slice(..key.len().min(1_024)),
            _ => key.clone(),
        }
    }

    fn claims(&self, claims: &[Claim]) -> Vec<Claim> {
        let claims = claims.iter().map(|claim| {
            let mut claim = claim.clone();
            claim.key = self.key(&claim.key);
            claim
        });
        claims.collect()
    }

    /// The claims as their holders would make them.
    fn true_claims(&self, claims: &[Claim], any_token: bool) -> Vec<(Owner, Claim)> {
        let mut held = Vec::new();
        for claim in claims {
            if let Some((owner, token)) = self.memory.holder(&claim.key) {
                let mut claim = claim.clone();
                if any_token {
                    claim.token = token;
                }
                held.push((owner, claim));
            }
        }
        held
    }
}

impl Defective {
    fn named(&self, key: &Bytes, mut holder: Option<Holder>) -> Option<Holder> {
        let mut seen = self.seen.lock().unwrap();
        match self.defect {
            Defect::NamesNoHolder => holder = None,
            Defect::NamesThePreviousHolder if holder.is_none() => holder = seen.get(key).cloned(),
            Defect::NamesThePreviousToken => {
                if let (Some(holder), Some(seen)) = (&mut holder, seen.get(key)) {
                    holder.token = seen.token;
                }
            }
            _ => {}
        }
        seen.extend(holder.clone().map(|holder| (key.clone(), holder)));
        holder
    }
}

#[keylane_leases::async_trait]
impl LeaseStore for Defective {
    async fn acquire(&self, owner: &Owner, wishes: &[Wish]) -> Result<Vec<Answer>, StoreError> {
        let mut wishes = Vec::from(wishes);
        for wish in &mut wishes {
            wish.key = self.key(&wish.key);
            if self.is(Defect::LeasesLast) {
                wish.ttl = Duration::from_secs(100_000);
            }
        }
        if self.is(Defect::RefusesItsOwnHolder) {
            let stranger = Owner::random();
            let mut answers = Vec::new();
            for wish in &wishes {
                let is_held = self.memory.holder(&wish.key).is_some();
                let asks = if is_held { &stranger } else { owner };
                answers.extend(
                    self.memory
                        .acquire(asks, std::slice::from_ref(wish))
                        .await?,
                );
            }
            return Ok(answers);
        }
        if self.is(Defect::ShortensItsOwn) {
            for wish in &wishes {
                if let Some((holder, token)) = self.memory.holder(&wish.key)
                    && holder == *owner
                {
                    let claim = Claim::new(wish.key.clone(), token, wish.ttl);
                    self.memory.release(owner, &[claim]).await?;
                }
            }
        }
        let mut answers = self.memory.acquire(owner, &wishes).await?;
        let releases = self.releases.load(Ordering::Relaxed);
        for answer in &mut answers {
            match answer {
                Answer::Granted(token) if self.is(Defect::OneToken) => *token = Token(1),
                Answer::Granted(token) if self.is(Defect::TokensFallAfterARelease) => {
                    token.0 += 1_000_000 - 1_000 * releases;
                }
                Answer::Taken { remaining } if self.is(Defect::NothingRemains) => {
                    *remaining = Duration::ZERO;
                }
                taken @ Answer::Taken { .. } if self.is(Defect::GrantsToAll) => {
                    *taken = Answer::Granted(Token(u64::MAX));
                }
                _ => {}
            }
        }
        if self.is(Defect::AnswersReversed) {
            answers.reverse();
        }
        Ok(answers)
    }

    async fn renew(&self, owner: &Owner, claims: &[Claim]) -> Result<Vec<bool>, StoreError> {
        let mut claims = self.claims(claims);
        match self.defect {
            Defect::RenewsNothing => return Ok(vec![false; claims.len()]),
            Defect::RenewsAnyToken | Defect::RenewsForOthers => {
                let any_token = self.is(Defect::RenewsAnyToken);
                let held = self.true_claims(&claims, any_token);
                let mut answers = Vec::new();
                for (holder, claim) in held {
                    let asks = if any_token { owner } else { &holder };
                    answers.extend(self.memory.renew(asks, &[claim]).await?);
                }
                answers.resize(claims.len(), false);
                return Ok(answers);
            }
            Defect::RenewsAsItWas => {
                for claim in &mut claims {
                    claim.ttl = Duration::from_millis(300);
                }
            }
            _ => {}
        }
        self.memory.renew(owner, &claims).await
    }

    async fn release(&self, owner: &Owner, claims: &[Claim]) -> Result<(), StoreError> {
        self.releases.fetch_add(1, Ordering::Relaxed);
        let claims = self.claims(claims);
        match self.defect {
            Defect::ReleasesNothing => Ok(()),
            Defect::ReleasesAnyToken | Defect::ReleasesForOthers => {
                let any_token = self.is(Defect::ReleasesAnyToken);
                for (holder, claim) in self.true_claims(&claims, any_token) {
                    let asks = if any_token { owner } else { &holder };
                    self.memory.release(asks, &[claim]).await?;
                }
                Ok(())
            }
            _ => self.memory.release(owner, &claims).await,
        }
    }

    async fn held_by(&self, key: &Bytes) -> Result<Option<Holder>, StoreError> {
        let holder = self.memory.held_by(&self.key(key)).await?;
        if self.is(Defect::EndsWhatIsLookedAt)
            && let Some((owner, token)) = self.memory.holder(key)
        {
            let claim = Claim::new(key.clone(), token, Duration::ZERO);
            self.memory.release(&owner, &[claim]).await?;
        }
        Ok(self.named(key, holder))
    }
}
