//! The leases of this process: what it holds, waits for and has lost.

use keylane_leases::LeaseWatch;
use serde::Serialize;

use crate::key::ConsoleKey;
use crate::rows::{cut, ms};

/// Most leases in the feed: those that end first.
const MOST: usize = 50;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct LeasesRow {
    name: String,
    owner: String,
    held: u64,
    room: u64,
    waiting: u64,
    granted: u64,
    taken: u64,
    ran_out: u64,
    taken_over: u64,
    failed_calls: u64,
    is_closed: bool,
    /// Those that end first.
    leases: Vec<LeaseRow>,
}

#[derive(Debug, Clone, Serialize)]
struct LeaseRow {
    key: String,
    key_chars: usize,
    /// As text: it is a number of 64 bits.
    token: String,
    ttl_ms: u64,
    left_ms: u64,
}

impl LeasesRow {
    pub(crate) fn of(name: &str, watch: &LeaseWatch) -> Self {
        let stats = watch.stats();
        let leases = watch.held(MOST).into_iter().map(|lease| {
            let key = lease.key.to_text();
            LeaseRow {
                key: cut(&key),
                key_chars: key.chars().count(),
                token: lease.token.to_string(),
                ttl_ms: ms(lease.ttl),
                left_ms: ms(lease.remaining),
            }
        });
        Self {
            name: name.to_owned(),
            owner: cut(watch.owner().as_str()),
            held: stats.held,
            room: stats.room,
            waiting: stats.waiting,
            granted: stats.granted,
            taken: stats.taken,
            ran_out: stats.ran_out,
            taken_over: stats.taken_over,
            failed_calls: stats.failed_calls,
            is_closed: stats.is_closed,
            leases: leases.collect(),
        }
    }
}
