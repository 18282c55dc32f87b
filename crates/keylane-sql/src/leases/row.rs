//! What a row has of a key, and what it says to a wish.

use std::time::Duration;

use keylane_leases::store::{Answer, Wish};
use sha2::{Digest, Sha256};

/// How many bytes of a key its row shows to people who read the table.
const SHOWN: usize = 64;

pub(crate) fn id_of(key: &[u8]) -> Vec<u8> {
    Sha256::digest(key).to_vec()
}

pub(crate) fn start_of(key: &[u8]) -> Vec<u8> {
    key[..key.len().min(SHOWN)].to_vec()
}

/// Returns the answer if another owner has the lease, for so many microseconds more by the clock of
/// the server. `None`: that owner got it while the statement ran.
pub(super) fn taken(micros: Option<i64>, wish: &Wish) -> Answer {
    Answer::Taken {
        remaining: micros.map_or(wish.ttl, lasts),
    }
}

/// Returns how long a lease lasts. The clock of the server may have passed its end since.
pub(super) fn lasts(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// Returns the places in the order of their ids. All callers lock rows in that order, so no two
/// calls wait for each other.
pub(super) fn in_order<T>(all: &[T], id: impl Fn(&T) -> Vec<u8>) -> Vec<(Vec<u8>, &T)> {
    let mut sorted: Vec<(Vec<u8>, &T)> = all.iter().map(|one| (id(one), one)).collect();
    sorted.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    sorted
}
