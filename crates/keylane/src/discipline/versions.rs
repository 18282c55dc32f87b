//! The versions that keys remember when their lanes are gone.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use keylane_rt::clock::Instant;
use keylane_rt::{Arc, BuildPrehashed, Mutex, OwnLine, lock};
use keylane_source::VersionStore;

/// The last handled version of each key: in memory, and in the store if there is one.
pub(crate) struct Versions<K> {
    /// Most keys that a part remembers.
    keys: usize,
    idle: Duration,
    /// By the hash of the key, so that the router and the runners seldom meet. A power of two.
    parts: Box<[OwnLine<Mutex<Generations<K>>>]>,
    pub(crate) store: Option<Arc<dyn VersionStore<K>>>,
}

/// The most parts.
const MOST_PARTS: usize = 16;

/// A part for fewer keys than this would forget too soon where hashes are uneven.
const LEAST_KEYS: usize = 1_024;

/// Two generations: a key that is heard of moves to the young one, and the old one is forgotten as
/// a whole. Bounded, and each step takes the same time whatever is remembered.
struct Generations<K> {
    young: Generation<K>,
    old: Generation<K>,
    /// When the young generation began.
    began: Option<Instant>,
}

impl<K> Default for Generations<K> {
    fn default() -> Self {
        Self {
            young: Generation::default(),
            old: Generation::default(),
            began: None,
        }
    }
}

type Generation<K> = HashMap<Hashed<K>, u64, BuildPrehashed>;

impl<K> Versions<K> {
    /// Remembers nothing.
    pub(crate) fn none() -> Self {
        Self::new(0, Duration::ZERO, None)
    }

    pub(crate) fn new(
        keys: usize,
        idle: Duration,
        store: Option<Arc<dyn VersionStore<K>>>,
    ) -> Self {
        let parts = (keys / LEAST_KEYS).clamp(1, MOST_PARTS);
        let parts = 1 << parts.ilog2();
        let memory = |_| OwnLine(Mutex::new(Generations::default()));
        Self {
            keys: keys / parts,
            idle,
            parts: (0..parts).map(memory).collect(),
            store,
        }
    }

    /// Spread once more: a hasher of the user's may be the identity, and the tables of the parts
    /// look at the same bits for their slots.
    fn part_of(&self, hash: u64) -> &Mutex<Generations<K>> {
        let spread = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
        &self.parts[spread as usize % self.parts.len()]
    }
}

impl<K: Eq + Clone> Versions<K> {
    /// What is remembered in memory, and what is to be dropped where no lock is held.
    pub(crate) fn last(&self, key: &K, hash: u64, now: Instant) -> (Option<u64>, Forgotten<K>) {
        let probe = Hashed {
            hash,
            key: key.clone(),
        };
        let memory = lock(self.part_of(hash));
        let age = memory
            .began
            .map(|began| now.saturating_duration_since(began));
        let age = age.unwrap_or_default();
        // Nothing came into the young generation later than `idle` after it began, or it would be
        // the old one by now.
        let young = memory.young.get(&probe).filter(|_| age < self.idle * 2);
        let old = memory.old.get(&probe).filter(|_| age < self.idle);
        let last = young.or(old).copied();
        drop(memory);
        let forgotten = Forgotten {
            _keys: Vec::new(),
            _old: Some((probe, 0)),
        };
        (last, forgotten)
    }

    /// Remembers a version. Returns what is forgotten for it: its drop is the user's, and the
    /// caller may hold a lock.
    #[must_use = "the keys in it are dropped where no lock is held"]
    pub(crate) fn record(&self, key: &K, hash: u64, version: u64, now: Instant) -> Forgotten<K> {
        let probe = Hashed {
            hash,
            key: key.clone(),
        };
        let mut guard = lock(self.part_of(hash));
        let memory = &mut *guard;
        let began = *memory.began.get_or_insert(now);
        let age = now.saturating_duration_since(began);
        let mut forgotten = Vec::new();
        if age >= self.idle {
            forgotten.push(memory.turn(now));
        }
        if age >= self.idle * 2 {
            forgotten.push(std::mem::take(&mut memory.old));
        }
        let mut old = memory.old.remove_entry(&probe);
        if let Some(known) = memory.young.get_mut(&probe) {
            *known = version;
            old = Some((probe, version));
        } else {
            memory.young.insert(probe, version);
        }
        if memory.young.len() >= self.keys.div_ceil(2) {
            forgotten.push(memory.turn(now));
        }
        Forgotten {
            _keys: forgotten,
            _old: old,
        }
    }
}

impl<K> Generations<K> {
    /// The young generation is the old one from now on. Returns the old one.
    fn turn(&mut self, now: Instant) -> Generation<K> {
        self.began = Some(now);
        let young = std::mem::take(&mut self.young);
        std::mem::replace(&mut self.old, young)
    }
}

/// Keys to be dropped.
pub(crate) struct Forgotten<K> {
    _keys: Vec<Generation<K>>,
    _old: Option<(Hashed<K>, u64)>,
}

/// A key with the hash that its sender computed.
#[derive(PartialEq, Eq)]
struct Hashed<K> {
    hash: u64,
    key: K,
}

impl<K: Eq> Hash for Hashed<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use keylane_rt::clock;

    use super::*;

    fn remembered(versions: &Versions<u64>) -> Vec<u64> {
        remembered_at(versions, clock::now())
    }

    fn remembered_at(versions: &Versions<u64>, now: Instant) -> Vec<u64> {
        let known = |key: &u64| versions.last(key, *key, now).0.is_some();
        (0..10).filter(known).collect()
    }

    #[test]
    fn no_more_keys_are_remembered_than_told() {
        let versions = Versions::new(4, Duration::from_secs(60), None);
        let now = clock::now();
        for key in 0..10 {
            drop(versions.record(&key, key, 1, now));
            assert_eq!(
                versions.last(&key, key, now).0,
                Some(1),
                "the newest is known"
            );
            assert!(remembered(&versions).len() <= 4);
        }
    }

    #[test]
    fn many_keys_are_remembered_in_parts() {
        let parts = |keys| Versions::<u64>::new(keys, Duration::ZERO, None).parts.len();
        assert_eq!([0, 4, 1_023, 2_047].map(parts), [1; 4]);
        assert_eq!([2_048, 4_095, 5_000, 1 << 20].map(parts), [2, 2, 4, 16]);
        let (keys, now) = (4_096, clock::now());
        let versions = Versions::new(keys, Duration::from_secs(60), None);
        for key in 0..20_000 {
            drop(versions.record(&key, key, key, now));
        }
        let known = |key: &u64| versions.last(key, *key, now).0 == Some(*key);
        let known = (0..20_000).filter(known).count();
        assert!((keys / 4..=keys).contains(&known), "{known}");
    }

    #[test]
    fn a_key_that_is_heard_of_is_not_forgotten() {
        let versions = Versions::new(4, Duration::from_secs(60), None);
        let now = clock::now();
        for key in 0..10 {
            drop(versions.record(&100, 100, key, now));
            drop(versions.record(&key, key, 1, now));
        }
        assert_eq!(versions.last(&100, 100, now).0, Some(9));
    }

    #[test]
    fn idle_keys_are_forgotten() {
        let idle = Duration::from_secs(60);
        let versions = Versions::new(100, idle, None);
        let now = clock::now();
        drop(versions.record(&1, 1, 7, now));
        drop(versions.record(&2, 2, 7, now + idle));
        assert_eq!(remembered_at(&versions, now + idle), [1, 2]);
        // Also where nothing else happens: one generation after the other.
        assert_eq!(remembered_at(&versions, now + 2 * idle), [2]);
        assert_eq!(remembered_at(&versions, now + 3 * idle), [0_u64; 0]);
        drop(versions.record(&3, 3, 7, now + 3 * idle));
        assert_eq!(remembered_at(&versions, now + 3 * idle), [3]);
    }
}
