//! The keys of a list, all in its slot of a cluster.

use bytes::Bytes;

use crate::names;

/// The keys that all scripts receive, in this order. See `lua/common.lua`.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) list: Bytes,
    pub(super) workers: Bytes,
    pub(super) owners: Bytes,
    pub(super) told: Bytes,
    pub(super) last_token: Bytes,
    pub(super) letters: Bytes,
}

/// The keys of one worker.
#[derive(Clone, Debug)]
pub(super) struct WorkerKeys {
    pub(super) work: Bytes,
    pub(super) inbox: Bytes,
    pub(super) noted: Bytes,
}

impl Keys {
    /// Creates the keys of a list with a [checked](names::check) name.
    pub(super) fn new(list: &Bytes) -> Self {
        let beside = |what: &str| names::beside(list, &[what.as_bytes()]);
        Self {
            list: list.clone(),
            workers: beside("workers"),
            owners: beside("owners"),
            told: beside("told"),
            last_token: beside("token"),
            letters: beside("letters"),
        }
    }

    pub(super) fn of(&self, worker: &str) -> WorkerKeys {
        let beside = |what: &[u8]| names::beside(&self.list, &[what, worker.as_bytes()]);
        WorkerKeys {
            work: beside(b"work:"),
            inbox: beside(b"inbox:"),
            noted: beside(b"attempts:"),
        }
    }

    pub(super) fn all(&self) -> [&Bytes; 6] {
        let Self {
            list,
            workers,
            owners,
            told,
            last_token,
            letters,
        } = self;
        [list, workers, owners, told, last_token, letters]
    }
}

impl WorkerKeys {
    pub(super) fn all(&self) -> [&Bytes; 3] {
        [&self.work, &self.inbox, &self.noted]
    }
}
