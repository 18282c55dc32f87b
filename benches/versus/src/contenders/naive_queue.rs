//! The pull queue that one writes first: a list, and the set of the keys that are leased.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Each `dequeue` searches the list for the first message whose key is not leased.
///
/// It keeps the order of each key and one message of a key at a time, as keylane's queue does. It has
/// no limit, no lease time, and a worker that crashes keeps its key for ever; all that would only cost
/// more.
#[derive(Debug)]
pub struct NaiveQueue<K, M> {
    state: Mutex<State<K, M>>,
    changed: Notify,
}

#[derive(Debug)]
struct State<K, M> {
    list: VecDeque<(K, M)>,
    leased: HashSet<K>,
}

impl<K: Hash + Eq + Clone, M> NaiveQueue<K, M> {
    /// An empty queue.
    #[expect(clippy::new_without_default, reason = "no default is needed")]
    pub fn new() -> Self {
        Self {
            state: Mutex::new(State {
                list: VecDeque::new(),
                leased: HashSet::new(),
            }),
            changed: Notify::new(),
        }
    }

    /// Appends a message.
    pub fn enqueue(&self, key: K, message: M) {
        self.state().list.push_back((key, message));
        self.changed.notify_one();
    }

    /// Leases the first message whose key is not leased.
    pub async fn dequeue(&self) -> (K, M) {
        loop {
            if let Some(found) = self.state().find() {
                return found;
            }
            self.changed.notified().await;
        }
    }

    /// The message of this key is done.
    pub fn complete(&self, key: &K) {
        self.state().leased.remove(key);
        self.changed.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State<K, M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq + Clone, M> State<K, M> {
    fn find(&mut self) -> Option<(K, M)> {
        let mut list = self.list.iter();
        let at = list.position(|(key, _)| !self.leased.contains(key))?;
        let (key, message) = self.list.remove(at)?;
        self.leased.insert(key.clone());
        Some((key, message))
    }
}
