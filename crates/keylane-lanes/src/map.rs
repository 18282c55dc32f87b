//! The one `DashMap`, behind closures.
//!
//! No guard leaves this file, so none can be held across an await or meet another one. Under a
//! shard's lock run only the closures given here and the key's own `Eq` and `Clone`.
//!
//! A key is hashed once, by its sender; the hash travels with the message and addresses the shard
//! and the slot directly. The map's own hasher is never asked.

use std::fmt;
use std::hash::{BuildHasherDefault, DefaultHasher};

#[cfg(not(keylane_shuttle))]
use dashmap::{DashMap, SharedValue};

#[cfg(keylane_shuttle)]
use super::modelled::{DashMap, SharedValue};

use super::lane::{Lane, Next, Spares};

/// The decision whether a lane stays in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It stays.
    Stay,
    /// It holds nothing, runs nothing and waits for nothing.
    Remove,
}

/// Keeps the hash beside the key: a shard that grows moves its lanes without hashing them again.
#[derive(Debug)]
struct HashedKey<K> {
    hash: u64,
    key: K,
}

// `DashMap` asks for these on the methods that look keys up by themselves.
impl<K: Eq> PartialEq for HashedKey<K> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<K: Eq> Eq for HashedKey<K> {}

impl<K> std::hash::Hash for HashedKey<K> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Whether an entry is that of `key`.
///
/// This and the next three are functions, and not closures where they are used: closures would have
/// a type of their own in each copy of a generic method, and all of the table would be compiled
/// for each of them.
#[inline]
fn is_of<K: Eq, V>(key: &K) -> impl Fn(&(HashedKey<K>, V)) -> bool {
    move |(hashed, _)| hashed.key == *key
}

#[inline]
fn is_spent<K: Eq, T, H, G>(key: &K) -> impl Fn(&Entry<K, T, H, G>) -> bool {
    move |(hashed, lane)| hashed.key == *key && lane.get().is_spent()
}

#[inline]
fn has_hash<K, V>(hash: u64) -> impl Fn(&(HashedKey<K>, V)) -> bool {
    move |(hashed, _)| hashed.hash == hash
}

#[inline]
fn hash_of<K, V>((hashed, _): &(HashedKey<K>, V)) -> u64 {
    hashed.hash
}

type Entry<K, T, H, G> = (HashedKey<K>, SharedValue<Lane<T, H, G>>);

type Unasked = BuildHasherDefault<DefaultHasher>;

/// All lanes that hold or run something, or are paused.
pub struct LaneMap<K, T, H, G> {
    lanes: DashMap<HashedKey<K>, Lane<T, H, G>, Unasked>,
    spares: Spares<T>,
}

impl<K: Eq + Clone, T, H, G> LaneMap<K, T, H, G> {
    /// Returns an empty map with this many shards, or as many as `DashMap` chooses.
    pub fn new(shards: Option<usize>) -> Self {
        let lanes = match shards {
            Some(shards) => DashMap::with_hasher_and_shard_amount(Unasked::default(), shards),
            None => DashMap::with_hasher(Unasked::default()),
        };
        Self {
            lanes,
            spares: Spares::new(),
        }
    }

    /// Returns backlogs that are free to be used again.
    pub fn spares(&self) -> &Spares<T> {
        &self.spares
    }

    /// Lends the lane that exists, or makes one whose head is out: then there is nothing to return.
    ///
    /// A new lane costs one lock and one clone of the key; an existing one costs one lock.
    #[inline]
    pub fn enter<R>(
        &self,
        hash: u64,
        key: &K,
        offer: impl FnOnce(&mut Lane<T, H, G>) -> R,
    ) -> Option<R> {
        self.enter_or_make(hash, key, Lane::new, offer)
    }

    /// Lends the lane that exists, or puts one there that `make` makes.
    #[inline]
    pub fn enter_or_make<R>(
        &self,
        hash: u64,
        key: &K,
        make: impl FnOnce() -> Lane<T, H, G>,
        offer: impl FnOnce(&mut Lane<T, H, G>) -> R,
    ) -> Option<R> {
        let mut shard = self.lanes.shards()[self.shard_of(hash)].write();
        match shard.get_mut(hash, is_of(key)) {
            Some((_, lane)) => Some(offer(lane.get_mut())),
            None => {
                let hashed = HashedKey {
                    hash,
                    key: key.clone(),
                };
                shard.insert(hash, (hashed, SharedValue::new(make())), hash_of);
                None
            }
        }
    }

    /// Takes one step in the lane of a key, and removes the lane in the same step if the step
    /// decides so.
    ///
    /// Emptiness and removal are one step: a message that arrives meanwhile waits for the lock and
    /// finds either a lane that will run it or none.
    ///
    /// `make` makes a lane that does not exist; if it does not, nothing happens and this returns
    /// `false`. `step` writes its effects where they stay: a value returned from here would be
    /// moved.
    #[inline]
    pub fn step(
        &self,
        hash: u64,
        key: &K,
        make: impl FnOnce() -> Option<Lane<T, H, G>>,
        step: impl FnOnce(&mut Lane<T, H, G>) -> Keep,
    ) -> bool {
        let mut shard = self.lanes.shards()[self.shard_of(hash)].write();
        let Some((_, lane)) = shard.get_mut(hash, is_of(key)) else {
            let Some(mut lane) = make() else { return false };
            let key = key.clone();
            if step(&mut lane) == Keep::Stay {
                let hashed = HashedKey { hash, key };
                shard.insert(hash, (hashed, SharedValue::new(lane)), hash_of);
            } else {
                drop(shard);
                lane.recycle(&self.spares);
            }
            return true;
        };
        if step(lane.get_mut()) == Keep::Remove {
            let removed = shard.remove_entry(hash, is_of(key));
            // The key's `Drop` is the user's: not under the lock.
            drop(shard);
            if let Some((_, lane)) = removed {
                lane.into_inner().recycle(&self.spares);
            }
        }
        true
    }

    /// Lends the lane of a key, if there is one.
    #[inline]
    pub fn with<R>(
        &self,
        hash: u64,
        key: &K,
        see: impl FnOnce(&mut Lane<T, H, G>) -> R,
    ) -> Option<R> {
        let mut shard = self.lanes.shards()[self.shard_of(hash)].write();
        let (_, lane) = shard.get_mut(hash, is_of(key))?;
        Some(see(lane.get_mut()))
    }

    /// Moves a lane on, and removes it under the same lock if nothing is left in it.
    ///
    /// Emptiness and removal are one step: a message that arrives meanwhile waits for the lock and
    /// finds either a lane that will run it or none.
    ///
    /// `step` may decline with `None`, and then nothing has happened.
    #[inline]
    pub fn advance<R>(
        &self,
        hash: u64,
        key: &K,
        step: impl FnOnce(&mut Lane<T, H, G>) -> Option<(R, Next<T>)>,
    ) -> Option<(R, Option<T>)> {
        self.advance_with::<false, R>(hash, key, step)
    }

    /// Moves a plain lane on, as [`advance`](Self::advance) does. A lane with nothing but a head that
    /// is out ends in one look, without `step`; then this returns `None`.
    #[inline]
    pub fn advance_or_end<R>(
        &self,
        hash: u64,
        key: &K,
        step: impl FnOnce(&mut Lane<T, H, G>) -> Option<(R, Next<T>)>,
    ) -> Option<(R, Option<T>)> {
        self.advance_with::<true, R>(hash, key, step)
    }

    #[inline]
    fn advance_with<const ENDS: bool, R>(
        &self,
        hash: u64,
        key: &K,
        step: impl FnOnce(&mut Lane<T, H, G>) -> Option<(R, Next<T>)>,
    ) -> Option<(R, Option<T>)> {
        let mut shard = self.lanes.shards()[self.shard_of(hash)].write();
        let (seen, removed) =
            if ENDS && let removed @ Some(_) = shard.remove_entry(hash, is_spent(key)) {
                (None, removed)
            } else {
                let (_, lane) = shard.get_mut(hash, is_of(key))?;
                let seen = match step(lane.get_mut()) {
                    None => return None,
                    Some((seen, Next::Start(item))) => return Some((seen, Some(item))),
                    Some((seen, Next::Stay)) => return Some((seen, None)),
                    Some((seen, Next::Remove)) => seen,
                };
                (Some((seen, None)), shard.remove_entry(hash, is_of(key)))
            };
        // The key's `Drop` is the user's: not under the lock.
        drop(shard);
        if let Some((_, lane)) = removed {
            lane.into_inner().recycle(&self.spares);
        }
        seen
    }

    /// Lends the lane of a key for reading.
    pub fn peek<R>(&self, hash: u64, key: &K, see: impl FnOnce(&Lane<T, H, G>) -> R) -> Option<R> {
        let shard = self.lanes.shards()[self.shard_of(hash)].read();
        let (_, lane) = shard.get(hash, is_of(key))?;
        Some(see(lane.get()))
    }

    /// Lends a lane of which only the hash is known, for reading. Runs none of the key's code.
    pub fn peek_hash<R>(&self, hash: u64, see: impl FnOnce(&Lane<T, H, G>) -> R) -> Option<R> {
        let shard = self.lanes.shards()[self.shard_of(hash)].read();
        let (_, lane) = shard.get(hash, has_hash(hash))?;
        Some(see(lane.get()))
    }

    /// Returns a key with this hash that has a lane.
    pub fn key_of(&self, hash: u64) -> Option<K> {
        let shard = self.lanes.shards()[self.shard_of(hash)].read();
        let (hashed, _) = shard.get(hash, has_hash(hash))?;
        Some(hashed.key.clone())
    }

    /// Visits every lane, one shard at a time, and removes those for which `keep` is false.
    ///
    /// Linear in the number of lanes: for the shutdown, and for a key that is not equal to itself.
    pub fn sweep(&self, mut keep: impl FnMut(&K, u64, &mut Lane<T, H, G>) -> bool) {
        for shard in self.lanes.shards() {
            let mut removed = Vec::new();
            let mut shard = shard.write();
            // The table can be drained without `unsafe`, but not walked: what stays goes back.
            let all: Vec<_> = shard.drain().collect();
            for (hashed, mut lane) in all {
                if keep(&hashed.key, hashed.hash, lane.get_mut()) {
                    shard.insert(hashed.hash, (hashed, lane), hash_of);
                } else {
                    removed.push((hashed, lane));
                }
            }
            drop(shard);
            drop(removed);
        }
    }

    /// Returns the number of lanes: a sum over the shards, which are few, and not over the lanes.
    pub fn len(&self) -> usize {
        self.lanes
            .shards()
            .iter()
            .map(|shard| shard.read().len())
            .sum()
    }

    /// Which shard a hash lives in: by bits that neither the table's slots nor its tags use.
    #[inline]
    fn shard_of(&self, hash: u64) -> usize {
        self.lanes.determine_shard(hash as usize)
    }
}

impl<K, T, H, G> fmt::Debug for LaneMap<K, T, H, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither keys nor messages: they are the user's.
        f.debug_struct("LaneMap").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;
    use crate::rules::AtLimit;

    type TestMap = LaneMap<u8, u32, u32, ()>;

    fn park(map: &TestMap, hash: u64, key: u8, item: u32) -> Option<()> {
        map.enter(hash, &key, |lane| {
            let _ = lane.park(item, usize::MAX, AtLimit::Park, map.spares());
        })
    }

    /// What is parked in the lane of a key, if there is one.
    fn parked(map: &TestMap, hash: u64, key: u8) -> Option<Vec<u32>> {
        map.peek(hash, &key, |lane| lane.parked().iter().copied().collect())
    }

    #[test]
    fn keys_of_one_hash_have_lanes_of_their_own() {
        let map = TestMap::new(None);
        for key in [1, 2] {
            assert_eq!(park(&map, 7, key, 0), None, "a new lane");
            assert_eq!(park(&map, 7, key, u32::from(key)), Some(()));
        }
        assert_eq!(map.len(), 2);
        assert_eq!(parked(&map, 7, 1), Some(vec![1]));
        assert_eq!(parked(&map, 7, 2), Some(vec![2]));
        assert_eq!(parked(&map, 7, 3), None);
        assert!(map.key_of(7).is_some_and(|key| key == 1 || key == 2));
        assert_eq!(map.key_of(8), None);
        assert_eq!(map.peek_hash(7, |lane| lane.len()), Some(2));
        assert_eq!(map.peek_hash(8, |lane| lane.len()), None);
        assert_eq!(map.with(7, &2, |lane| lane.len()), Some(2));
        assert_eq!(map.with(7, &3, |lane| lane.len()), None);
    }

    #[test]
    fn a_step_makes_a_lane_and_removes_it() {
        let map = TestMap::new(Some(2));
        let no_lane = || None;
        let new_lane = || Some(Lane::new());
        let step = |key: u8, make: &dyn Fn() -> Option<Lane<u32, u32, ()>>, keep| {
            let mut seen = None;
            let steps = map.step(7, &key, make, |lane| {
                seen = Some(lane.len());
                keep
            });
            assert_eq!(steps, seen.is_some());
            seen
        };
        assert_eq!(step(1, &no_lane, Keep::Stay), None);
        assert_eq!(step(1, &new_lane, Keep::Remove), Some(1));
        assert_eq!(map.len(), 0, "it was made and went");
        assert_eq!(step(1, &new_lane, Keep::Stay), Some(1));
        assert_eq!(step(2, &new_lane, Keep::Stay), Some(1));
        assert_eq!(park(&map, 7, 1, 9), Some(()));
        assert_eq!(step(1, &new_lane, Keep::Stay), Some(2), "it is the same");
        assert_eq!(step(2, &no_lane, Keep::Remove), Some(1));
        assert_eq!((map.len(), map.key_of(7)), (1, Some(1)));
    }

    #[test]
    fn emptied_backlogs_are_kept_for_all_lanes() {
        let map = TestMap::new(None);
        assert!(std::ptr::eq(map.spares(), map.spares()));
    }

    #[test]
    fn keys_are_not_shown() {
        assert_eq!(format!("{:?}", TestMap::new(None)), "LaneMap { .. }");
    }

    #[test]
    fn a_lane_is_itself_by_its_key() {
        let hashed = |hash, key| HashedKey { hash, key };
        assert!(hashed(1, 2) == hashed(9, 2) && hashed(1, 2) != hashed(1, 3));
        let hash_of = |hashed: &HashedKey<u8>| {
            use std::hash::{Hash, Hasher};
            let mut hasher = DefaultHasher::new();
            hashed.hash(&mut hasher);
            hasher.finish()
        };
        assert_eq!(hash_of(&hashed(1, 2)), hash_of(&hashed(1, 3)));
        assert_ne!(hash_of(&hashed(1, 2)), hash_of(&hashed(2, 2)));
    }
}
