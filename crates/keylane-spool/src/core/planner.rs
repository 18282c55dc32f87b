//! Chooses the messages of the next batch.

use std::collections::HashSet;

use bytes::Bytes;

use super::entry::Entry;

/// The limits of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
    /// How many entries the plan looks at. Later entries belong to keys that wait, or wait their
    /// turn.
    pub(crate) look_ahead: usize,
}

/// The next batch.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Places in the line, ascending.
    pub(crate) places: Vec<usize>,
    /// It cannot grow, so it need not wait.
    pub(crate) is_full: bool,
    /// The entries are refused messages, each the first of its key, and not a batch.
    pub(crate) is_refused: bool,
}

/// Chooses from the front of the line, and keeps the order of each key: it chooses no message whose
/// key is busy, or has an earlier message that was skipped.
///
/// Refused messages at the front make a plan of their own, and have no limit but the look-ahead.
///
/// A message larger than the limit in bytes makes a batch by itself.
pub(crate) fn plan<'a>(
    line: impl Iterator<Item = &'a Entry>,
    is_busy: impl Fn(&Bytes) -> bool,
    limits: Limits,
) -> Plan {
    let mut plan = Plan::default();
    let mut bytes = 0;
    let mut passed: HashSet<&Bytes> = HashSet::new();
    for (place, entry) in line.enumerate().take(limits.look_ahead) {
        if is_busy(entry.key()) || (!passed.is_empty() && passed.contains(entry.key())) {
            continue;
        }
        if entry.refused.is_some() {
            if plan.places.is_empty() || plan.is_refused {
                plan.places.push(place);
                plan.is_full = true;
                plan.is_refused = true;
            }
            passed.insert(entry.key());
            continue;
        }
        if plan.is_refused {
            break;
        }
        if !plan.places.is_empty() && bytes + entry.size > limits.bytes {
            plan.is_full = true;
            break;
        }
        bytes += entry.size;
        plan.places.push(place);
        if plan.places.len() >= limits.count || bytes >= limits.bytes {
            plan.is_full = true;
            break;
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::core::support::entry;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(keylane_testkit::scenario::cases(256)))]

        /// States the guarantee of a plan without a plan.
        #[test]
        fn a_plan_keeps_the_order_and_the_limits(
            line in proptest::collection::vec(
                (0_u8..5, 0_usize..300, prop::bool::weighted(0.1)),
                0..40,
            ),
            busy in proptest::collection::hash_set(0_u8..5, 0..3),
            count in 1_usize..10,
            bytes in 1_usize..2_000,
            look_ahead in 1_usize..50,
        ) {
            let entries: Vec<Entry> = line
                .iter()
                .enumerate()
                .map(|(n, (key, len, is_refused))| {
                    let mut entry = entry(n as u64, &[*key], *len);
                    entry.refused = is_refused.then(|| "no".into());
                    entry
                })
                .collect();
            let limits = Limits { count, bytes, look_ahead };
            let plan = plan(entries.iter(), |key| busy.contains(&key[0]), limits);

            prop_assert!(plan.places.is_sorted_by(|a, b| a < b));
            prop_assert!(plan.is_refused || plan.places.len() <= count);
            prop_assert!(plan.places.iter().all(|place| *place < look_ahead));
            let size: usize = plan.places.iter().map(|place| entries[*place].size).sum();
            prop_assert!(plan.is_refused || size <= bytes || plan.places.len() == 1);
            let mut refused = plan.places.iter().map(|n| entries[*n].refused.is_some());
            prop_assert!(refused.all(|is_refused| is_refused == plan.is_refused));
            let keys: HashSet<_> = plan.places.iter().map(|n| entries[*n].key()).collect();
            prop_assert!(!plan.is_refused || keys.len() == plan.places.len());
            let mut first_left: HashMap<u8, usize> = HashMap::new();
            for (n, entry) in entries.iter().enumerate() {
                if !plan.places.contains(&n) {
                    first_left.entry(entry.key()[0]).or_insert(n);
                }
            }
            for place in &plan.places {
                let key = entries[*place].key()[0];
                prop_assert!(!busy.contains(&key));
                prop_assert!(first_left.get(&key).is_none_or(|left| left > place));
            }
            // If a message can go, one goes.
            let mut seen = entries.iter().take(look_ahead);
            let can_go = seen.any(|entry| !busy.contains(&entry.key()[0]));
            prop_assert_eq!(plan.places.is_empty(), !can_go);
        }
    }
}
