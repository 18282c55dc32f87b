//! What is measured.

use crate::contenders::Id;
use crate::message::Traffic;

/// Keys of the messages.
const KEYS: u64 = 10_000;

/// How many times as many messages go through a dispatcher alone: without a server they take a tenth
/// of the time.
const ALONE: u64 = 10;

/// A workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// For example `list/1w`.
    pub name: String,
    /// What is done.
    pub what: What,
    /// Who takes part.
    pub ids: Vec<Id>,
}

/// What is done in a workload.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// Stored messages are handled by so many workers.
    Consume {
        /// What is stored.
        traffic: Traffic,
        /// How many workers there are.
        workers: usize,
    },
    /// So many leases are held.
    Leases(usize),
    /// A dispatcher handles what it is sent, under leases or without.
    Leased(Traffic),
}

/// All of them, with so many messages and leases.
pub fn all(messages: u64, leases: usize) -> Vec<Workload> {
    let traffic = Traffic {
        messages,
        keys: KEYS.min(messages),
    };
    let consume = |name: &str, workers, ids: &[Id]| Workload {
        name: format!("{name}/{workers}w"),
        what: What::Consume { traffic, workers },
        ids: ids.to_vec(),
    };
    let other = |name: &str, what, ids: &[Id]| Workload {
        name: name.to_owned(),
        what,
        ids: ids.to_vec(),
    };
    let (streams, lists) = (Id::STREAMS, Id::LISTS);
    vec![
        consume("stream", 1, &streams),
        consume("list", 1, &lists),
        consume("list", 3, &lists),
        other("leases", What::Leases(leases), &[Id::Keylane]),
        other(
            "leased-lanes",
            What::Leased(Traffic {
                messages: traffic.messages * ALONE,
                ..traffic
            }),
            &[Id::LanesAlone, Id::LanesLeased],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_told_apart() {
        let all = all(100, 10);
        let names: BTreeSet<&str> = all.iter().map(|workload| workload.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
    }
}
