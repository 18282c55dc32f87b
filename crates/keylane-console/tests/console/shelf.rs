//! A store of letters in memory, which can be held up and can fail.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use keylane::error::BoxError;
use keylane::{Bytes, async_trait};
use keylane_console::{LetterStore, StoredLetter};
use keylane_testkit::Gate;

#[derive(Clone, Default)]
pub(crate) struct Shelf(Arc<Inner>);

#[derive(Default)]
struct Inner {
    letters: Mutex<BTreeMap<u64, StoredLetter>>,
    /// Ids in the order in which they were redriven.
    redriven: Mutex<Vec<u64>>,
    gate: Mutex<Option<Gate>>,
    fails: Mutex<bool>,
}

impl Shelf {
    /// With so many letters of two keys, from 1 on.
    pub(crate) fn with(letters: u64) -> Self {
        let shelf = Self::default();
        for id in 1..=letters {
            shelf.add(StoredLetter {
                id: id.to_string(),
                key: Some(Bytes::from(if id % 2 == 0 { "even" } else { "odd" })),
                payload: Bytes::from(format!("{{\"order\":{id}}}")),
                attempts: 3,
                cause: "failed".to_owned(),
                error: "the bank has declined it".to_owned(),
                at: Some(UNIX_EPOCH + Duration::from_secs(id)),
                ..StoredLetter::default()
            });
        }
        shelf
    }

    pub(crate) fn add(&self, letter: StoredLetter) {
        let id = letter.id.parse().unwrap();
        self.0.letters.lock().unwrap().insert(id, letter);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.letters.lock().unwrap().len()
    }

    pub(crate) fn redriven(&self) -> Vec<u64> {
        self.0.redriven.lock().unwrap().clone()
    }

    /// Each redrive waits at this gate.
    pub(crate) fn hold(&self) -> Gate {
        let gate = Gate::new();
        *self.0.gate.lock().unwrap() = Some(gate.clone());
        gate
    }

    pub(crate) fn fail(&self) {
        *self.0.fails.lock().unwrap() = true;
    }

    fn take(&self, ids: &[String]) -> Result<Vec<u64>, BoxError> {
        if *self.0.fails.lock().unwrap() {
            return Err("the disk is <b>full</b>".into());
        }
        let mut letters = self.0.letters.lock().unwrap();
        let ids = ids.iter().map(|id| id.parse::<u64>().unwrap());
        Ok(ids.filter(|id| letters.remove(id).is_some()).collect())
    }
}

#[async_trait]
impl LetterStore for Shelf {
    async fn list(&self, after: Option<&str>, most: usize) -> Result<Vec<StoredLetter>, BoxError> {
        let after: u64 = after.map_or(Ok(0), str::parse)?;
        let letters = self.0.letters.lock().unwrap();
        let behind = letters.range(after + 1..).take(most);
        Ok(behind.map(|(_, letter)| letter.clone()).collect())
    }

    async fn show(&self, id: &str) -> Result<Option<StoredLetter>, BoxError> {
        Ok(self.0.letters.lock().unwrap().get(&id.parse()?).cloned())
    }

    async fn redrive(&self, ids: &[String]) -> Result<u64, BoxError> {
        let gate = self.0.gate.lock().unwrap().clone();
        if let Some(gate) = gate {
            gate.pass().await;
        }
        let taken = self.take(ids)?;
        self.0.redriven.lock().unwrap().extend(&taken);
        Ok(taken.len() as u64)
    }

    async fn purge(&self, ids: &[String]) -> Result<u64, BoxError> {
        Ok(self.take(ids)?.len() as u64)
    }
}
