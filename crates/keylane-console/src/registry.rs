//! Short names for keys: a key may have ten kilobytes, and may not fit into an address.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};

/// Most keys that are known by their ids.
const MOST: usize = 2_048;

/// Keys by their ids, the ones that were shown last.
///
/// The id is a hash under a secret of the process. A user cannot choose a key that has the id of
/// another one, so an action meets the lane that the operator saw.
#[derive(Debug)]
pub(crate) struct Registry<K> {
    secret: RandomState,
    keys: HashMap<u64, (K, u64)>,
    shown: u64,
}

impl<K: Hash + Clone> Registry<K> {
    pub(crate) fn new() -> Self {
        Self {
            secret: RandomState::new(),
            keys: HashMap::new(),
            shown: 0,
        }
    }

    /// Returns the id of a key, and remembers the key.
    pub(crate) fn id(&mut self, key: &K) -> String {
        let id = self.secret.hash_one(key);
        self.shown += 1;
        let shown = self.shown;
        self.keys
            .entry(id)
            .or_insert_with(|| (key.clone(), shown))
            .1 = shown;
        if self.keys.len() > MOST {
            self.forget();
        }
        format!("{id:016x}")
    }

    /// Returns the key of an id; `None` if it was not shown lately.
    pub(crate) fn key(&self, id: &str) -> Option<&K> {
        let id = u64::from_str_radix(id, 16).ok()?;
        self.keys.get(&id).map(|(key, _)| key)
    }

    /// Forgets the half that was not shown for longest.
    fn forget(&mut self) {
        let mut shown: Vec<u64> = self.keys.values().map(|(_, shown)| *shown).collect();
        shown.sort_unstable();
        let median = shown[shown.len() / 2];
        self.keys.retain(|_, (_, shown)| *shown >= median);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_that_were_shown_last_are_known() {
        let mut registry = Registry::new();
        let first = registry.id(&0);
        assert_eq!(registry.key(&first), Some(&0));
        for key in 1..10 * MOST {
            let id = registry.id(&key);
            assert_eq!(registry.key(&id), Some(&key));
            assert_eq!(registry.id(&0), first, "it is shown again and again");
            assert!(registry.keys.len() <= MOST);
        }
        assert_eq!(registry.key(&first), Some(&0));
        assert_eq!(registry.key("no id"), None);
    }
}
