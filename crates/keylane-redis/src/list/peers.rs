//! The other workers that a worker knows: a turn may put elements into their inboxes.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::keys::Keys;

/// With more peers than this, workers that have gone are not removed one by one.
const MOST: usize = 1_000;

/// Each peer with its inbox. A script declares its keys, and stops if it needs others: the worker
/// adds those peers then.
#[derive(Debug, Default)]
pub(super) struct Peers(BTreeMap<String, Bytes>);

impl Peers {
    pub(super) fn meet(&mut self, keys: &Keys, worker: String) {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        let inbox = keys.of(&worker).inbox;
        self.0.insert(worker, inbox);
    }

    pub(super) fn has_gone(&mut self, worker: &str) {
        self.0.remove(worker);
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    pub(super) fn inboxes(&self) -> Vec<Bytes> {
        self.0.values().cloned().collect()
    }
}
