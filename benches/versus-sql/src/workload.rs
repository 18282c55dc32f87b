//! What is measured.

use std::time::Duration;

use crate::message::Traffic;

/// How long a handler takes that does something.
pub const PAUSE: Duration = Duration::from_millis(5);

/// A workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// For example `sleep-5ms/10k/3w`.
    pub name: String,
    /// What is sent.
    pub traffic: Traffic,
    /// How long each handler takes.
    pub pause: Option<Duration>,
    /// How many workers there are.
    pub workers: usize,
}

/// All of them, with so many messages each.
pub fn all(messages: u64) -> Vec<Workload> {
    let mut all = Vec::new();
    for (handler, pause) in [("empty", None), ("sleep-5ms", Some(PAUSE))] {
        for (label, keys) in [
            ("1", 1),
            ("100", 100),
            ("10k", 10_000),
            ("100k", 100_000_u64),
        ] {
            for workers in [1, 3] {
                all.push(Workload {
                    name: format!("{handler}/{label}/{workers}w"),
                    traffic: Traffic {
                        messages,
                        keys: keys.min(messages),
                    },
                    pause,
                    workers,
                });
            }
        }
    }
    all
}
