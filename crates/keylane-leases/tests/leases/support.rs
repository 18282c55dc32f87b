//! A store that fails, hangs or answers late when it is told to.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use keylane_leases::error::StoreError;
use keylane_leases::store::{Answer, Claim, Holder, LeaseStore, Owner, Wish};
use keylane_leases::{Bytes, Leases, MemoryStore, Settings};

pub(crate) const TTL: Duration = Duration::from_secs(30);

/// How calls end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Well,
    /// Nothing is done, and an error comes back.
    Fails,
    /// It is done, and no answer ever comes back.
    Hangs,
    /// It is done, and the answer takes this long.
    Late(Duration),
    /// What is asked for is granted after this long.
    Delayed(Duration),
    Panics,
}

/// Leases in memory, with a call by call account.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) memory: MemoryStore,
    mood: Mutex<Mood>,
    /// The number of keys in each call.
    pub(crate) asked: Mutex<Vec<usize>>,
    pub(crate) renewed: Mutex<Vec<usize>>,
    pub(crate) released: Mutex<Vec<usize>>,
    pub(crate) looked: Mutex<Vec<usize>>,
}

impl Store {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn is(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    fn before(&self, calls: &Mutex<Vec<usize>>, keys: usize) -> Result<Mood, StoreError> {
        calls.lock().unwrap().push(keys);
        let mood = *self.mood.lock().unwrap();
        match mood {
            Mood::Fails => Err(StoreError::new("told to fail")),
            Mood::Panics => panic!("told to panic"),
            mood => Ok(mood),
        }
    }
}

async fn after(mood: Mood) {
    match mood {
        Mood::Hangs => std::future::pending().await,
        Mood::Late(time) => tokio::time::sleep(time).await,
        _ => {}
    }
}

#[keylane_leases::async_trait]
impl LeaseStore for Store {
    async fn acquire(&self, owner: &Owner, wishes: &[Wish]) -> Result<Vec<Answer>, StoreError> {
        let mood = self.before(&self.asked, wishes.len())?;
        if let Mood::Delayed(time) = mood {
            tokio::time::sleep(time).await;
        }
        let answers = self.memory.acquire(owner, wishes).await;
        after(mood).await;
        answers
    }

    async fn renew(&self, owner: &Owner, claims: &[Claim]) -> Result<Vec<bool>, StoreError> {
        let mood = self.before(&self.renewed, claims.len())?;
        let answers = self.memory.renew(owner, claims).await;
        after(mood).await;
        answers
    }

    async fn release(&self, owner: &Owner, claims: &[Claim]) -> Result<(), StoreError> {
        let mood = self.before(&self.released, claims.len())?;
        let answer = self.memory.release(owner, claims).await;
        after(mood).await;
        answer
    }

    async fn held_by(&self, key: &Bytes) -> Result<Option<Holder>, StoreError> {
        let mood = self.before(&self.looked, 1)?;
        let answer = self.memory.held_by(key).await;
        after(mood).await;
        answer
    }
}

/// Two owners with one store.
pub(crate) fn two() -> (Arc<Store>, Leases, Leases) {
    let store = Store::new();
    let (here, there) = (one(&store), one(&store));
    (store, here, there)
}

pub(crate) fn one(store: &Arc<Store>) -> Leases {
    one_with(store, Settings::new())
}

pub(crate) fn one_with(store: &Arc<Store>, settings: Settings) -> Leases {
    Leases::open_with(Arc::clone(store) as Arc<dyn LeaseStore>, settings).unwrap()
}

/// Lets everything happen that happens without time.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}
