//! The shape of `DashMap`'s shards with locks the model checker can schedule.

use shuttle::sync::{RwLock as ModelLock, RwLockReadGuard, RwLockWriteGuard};

/// One shard, as `DashMap` hands it out.
type Shard<K, V> = RwLock<Table<(K, SharedValue<V>)>>;

pub(super) struct DashMap<K, V, S> {
    shards: Vec<Shard<K, V>>,
    _hasher: std::marker::PhantomData<S>,
}

impl<K, V, S> DashMap<K, V, S> {
    pub(super) fn with_hasher(hasher: S) -> Self {
        Self::with_hasher_and_shard_amount(hasher, 2)
    }

    pub(super) fn with_hasher_and_shard_amount(_: S, shards: usize) -> Self {
        let shards = (0..shards)
            .map(|_| RwLock(ModelLock::new(Table(Vec::new()))))
            .collect();
        Self {
            shards,
            _hasher: std::marker::PhantomData,
        }
    }

    pub(super) fn shards(&self) -> &[Shard<K, V>] {
        &self.shards
    }

    pub(super) fn determine_shard(&self, hash: usize) -> usize {
        hash % self.shards.len()
    }
}

pub(super) struct RwLock<T>(ModelLock<T>);

impl<T> RwLock<T> {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0
            .read()
            .expect("no critical section of the map panics")
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0
            .write()
            .expect("no critical section of the map panics")
    }
}

pub(super) struct SharedValue<V>(V);

impl<V> SharedValue<V> {
    pub(super) fn new(value: V) -> Self {
        Self(value)
    }

    pub(super) fn get(&self) -> &V {
        &self.0
    }

    pub(super) fn get_mut(&mut self) -> &mut V {
        &mut self.0
    }

    pub(super) fn into_inner(self) -> V {
        self.0
    }
}

pub(super) struct Table<T>(Vec<T>);

impl<T> Table<T> {
    pub(super) fn get(&self, _: u64, mut eq: impl FnMut(&T) -> bool) -> Option<&T> {
        self.0.iter().find(|entry| eq(entry))
    }

    pub(super) fn get_mut(&mut self, _: u64, mut eq: impl FnMut(&T) -> bool) -> Option<&mut T> {
        self.0.iter_mut().find(|entry| eq(entry))
    }

    pub(super) fn insert(&mut self, _: u64, entry: T, _: impl Fn(&T) -> u64) {
        self.0.push(entry);
    }

    pub(super) fn remove_entry(&mut self, _: u64, eq: impl FnMut(&T) -> bool) -> Option<T> {
        let at = self.0.iter().position(eq)?;
        Some(self.0.swap_remove(at))
    }

    pub(super) fn drain(&mut self) -> std::vec::Drain<'_, T> {
        self.0.drain(..)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
