//! The number of lanes, the requests to change it, and the gates where senders wait whose old lane
//! has not drained.

use std::collections::BTreeMap;
use std::fmt;

use keylane_rt::atomic::{AtomicUsize, Ordering};
use keylane_rt::unwind::shielded;
use keylane_rt::{Arc, Mutex, Semaphore, lock, oneshot};

use super::super::lane::Gate;

/// Most lanes whose number may change. A change looks at each old lane once; more lanes are better
/// served by a key of its own for each.
pub(crate) const MOST_LANES: usize = 1 << 16;

/// The number of lanes, shared by senders, requesters and the router.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Senders read it relaxed to find the gate of their lane. The router keeps its own copy.
    lanes: AtomicUsize,
    /// `None`: the router is gone and carries out no more requests.
    requests: Mutex<Option<Requests>>,
    /// How many crowds have a gate; senders look at them only if it is not zero.
    crowded: AtomicUsize,
    crowds: Mutex<Crowds>,
}

/// The requests that have not begun: the last number of lanes, and all who wait for it.
#[derive(Debug, Default)]
struct Requests {
    lanes: Option<usize>,
    waiting: Vec<oneshot::Sender<()>>,
}

/// The gates of senders that wait for an old lane, by the number of that lane.
#[derive(Debug)]
struct Crowds {
    /// How many lanes there were before the reshard.
    from: usize,
    gates: BTreeMap<usize, Gate>,
}

impl Layout {
    pub(crate) fn new(lanes: usize) -> Self {
        Self {
            lanes: AtomicUsize::new(lanes),
            requests: Mutex::new(Some(Requests::default())),
            crowded: AtomicUsize::new(0),
            crowds: Mutex::new(Crowds {
                from: lanes,
                gates: BTreeMap::new(),
            }),
        }
    }

    pub(crate) fn lanes(&self) -> usize {
        self.lanes.load(Ordering::Relaxed)
    }

    /// Requests a number of lanes. Replaces a request that has not begun.
    pub(crate) fn ask(&self, lanes: usize, done: oneshot::Sender<()>) {
        if let Some(requests) = &mut *lock(&self.requests) {
            requests.lanes = Some(lanes);
            // Otherwise requesters that do not wait would fill a queue without a limit.
            requests.waiting.retain(|done| !done.is_closed());
            requests.waiting.push(done);
        }
    }

    pub(in super::super) fn next(&self) -> Option<(usize, Vec<oneshot::Sender<()>>)> {
        let mut requests = lock(&self.requests);
        let requests = requests.as_mut()?;
        let lanes = requests.lanes.take()?;
        Some((lanes, std::mem::take(&mut requests.waiting)))
    }

    pub(in super::super) fn is_asked(&self) -> bool {
        let requests = lock(&self.requests);
        let asked = requests.as_ref().and_then(|requests| requests.lanes);
        asked.is_some()
    }

    /// Drops all requests, now and from now on: the router is gone.
    pub(in super::super) fn close(&self) {
        let requests = lock(&self.requests).take();
        // Dropping the requests wakes the requesters.
        shielded(|| drop(requests));
        self.open_gates();
    }

    /// A change begins.
    pub(in super::super) fn change(&self, from: usize, to: usize) {
        let mut crowds = lock(&self.crowds);
        crowds.from = from;
        self.lanes.store(to, Ordering::Relaxed);
    }

    /// Senders of keys that move from this lane hold back from now on. False: they do already.
    pub(in super::super) fn crowd(&self, lane: usize) -> bool {
        let mut crowds = lock(&self.crowds);
        if crowds.gates.contains_key(&lane) {
            return false;
        }
        crowds.gates.insert(lane, Arc::new(Semaphore::new(0)));
        self.crowded.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Removes the gate of this lane and lets its senders in.
    pub(in super::super) fn disperse(&self, lane: usize) {
        let gate = lock(&self.crowds).gates.remove(&lane);
        if let Some(gate) = gate {
            self.crowded.fetch_sub(1, Ordering::Relaxed);
            shielded(|| gate.close());
        }
    }

    /// Wakes every sender at a gate, to look again where to go.
    pub(in super::super) fn open_gates(&self) {
        let gates = std::mem::take(&mut lock(&self.crowds).gates);
        self.crowded.fetch_sub(gates.len(), Ordering::Relaxed);
        for gate in gates.into_values() {
            shielded(|| gate.close());
        }
    }
}

/// How the lane of a key is found, whatever a key is.
#[derive(Clone)]
pub(crate) struct Placing<K> {
    pub(crate) layout: Arc<Layout>,
    /// The lane of the same key among so many.
    pub(crate) among: fn(K, usize) -> K,
    /// The lane of a number, and back.
    pub(crate) numbered: fn(usize) -> K,
    pub(crate) number: fn(&K) -> usize,
}

/// How keys are spread over the lanes, with the hash that the lanes are kept by.
pub(crate) struct Places<K> {
    pub(in super::super) placing: Placing<K>,
    pub(in super::super) hash: Box<dyn Fn(&K) -> u64 + Send + Sync>,
}

impl<K> Places<K> {
    pub(crate) fn layout(&self) -> &Layout {
        &self.placing.layout
    }
}

impl<K: Clone + PartialEq> Places<K> {
    pub(crate) fn new(
        placing: Placing<K>,
        hash: impl Fn(&K) -> u64 + Send + Sync + 'static,
    ) -> Self {
        Self {
            placing,
            hash: Box::new(hash),
        }
    }

    /// The lane of a key now, and its hash. A sender may have waited through a change.
    pub(in super::super) fn lane(&self, key: &K, hash: u64) -> (K, u64) {
        let lane = (self.placing.among)(key.clone(), self.layout().lanes());
        let hash = if lane == *key {
            hash
        } else {
            (self.hash)(&lane)
        };
        (lane, hash)
    }

    /// The hash of the lane that a key has among so many.
    pub(crate) fn hash_among(&self, key: &K, lanes: usize) -> u64 {
        (self.hash)(&(self.placing.among)(key.clone(), lanes))
    }

    /// Where the senders of a key wait whose old lane has not drained.
    pub(in super::super) fn gate(&self, key: &K) -> Option<Gate> {
        let layout = self.layout();
        if layout.crowded.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let crowds = lock(&layout.crowds);
        let old = (self.placing.among)(key.clone(), crowds.from);
        let new = (self.placing.among)(key.clone(), layout.lanes());
        let moves = old != new;
        let gate = crowds.gates.get(&(self.placing.number)(&old));
        gate.filter(|_| moves).cloned()
    }
}

impl<K> fmt::Debug for Places<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places")
            .field("layout", &self.placing.layout)
            .finish_non_exhaustive()
    }
}
