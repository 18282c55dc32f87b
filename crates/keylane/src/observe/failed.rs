//! The attempts that failed last.

use std::collections::VecDeque;

use keylane_rt::clock;
use keylane_rt::{Mutex, lock};

use crate::lane::FailedAttempt;

/// Most attempts that are kept, of all keys together.
const MOST: usize = 1_024;

/// The attempts that failed last, with the hashes of their keys. Empty, it holds no memory.
#[derive(Debug, Default)]
pub(crate) struct FailedAttempts(Mutex<VecDeque<(u64, FailedAttempt)>>);

impl FailedAttempts {
    pub(crate) fn record(&self, hash: u64, attempt: u32, why: Box<str>) {
        let failed = FailedAttempt {
            attempt,
            why,
            at: clock::now().into(),
        };
        let mut all = lock(&self.0);
        let oldest = match all.len() < MOST {
            true => None,
            false => all.pop_front(),
        };
        all.push_back((hash, failed));
        drop(all);
        drop(oldest);
    }

    /// Those of a key, the last one first.
    pub(crate) fn of(&self, hash: u64, most: usize) -> Vec<FailedAttempt> {
        let all = lock(&self.0);
        let own = all.iter().rev().filter(|(of, _)| *of == hash);
        own.take(most).map(|(_, failed)| failed.clone()).collect()
    }
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept_and_found_by_key() {
        let failed = FailedAttempts::default();
        for n in 0..2 * MOST as u32 {
            failed.record(u64::from(n % 2), n, "no".into());
        }
        let of = |hash| failed.of(hash, 3);
        let attempts = |hash| {
            of(hash)
                .into_iter()
                .map(|it| it.attempt)
                .collect::<Vec<_>>()
        };
        let last = 2 * MOST as u32 - 1;
        assert_eq!(attempts(1), [last, last - 2, last - 4]);
        assert_eq!(attempts(7), [0; 0]);
        assert_eq!(failed.of(0, usize::MAX).len(), MOST / 2);
    }
}
