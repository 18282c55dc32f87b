//! The attempts that failed last.

use std::collections::VecDeque;

use keylane_rt::clock;
use keylane_rt::{Mutex, lock};

use crate::lane::FailedAttempt;

/// Most attempts that are kept, of all keys together.
const MOST: usize = 1_024;

/// Most attempts that are kept of one key, so that one that fails all the time does not push out
/// those of the others.
const MOST_OF_A_KEY: u8 = 32;

/// How many counts there are. Keys may share one: then fewer attempts of them are kept.
const COUNTS: usize = 4 * MOST;

/// The attempts that failed last, with the hashes of their keys. Empty, it holds no memory.
#[derive(Debug, Default)]
pub(crate) struct FailedAttempts(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    all: VecDeque<(u64, FailedAttempt)>,
    /// How many of them are of keys with these hashes.
    counts: Vec<u8>,
}

impl FailedAttempts {
    pub(crate) fn record(&self, hash: u64, attempt: u32, why: Box<str>) {
        let failed = FailedAttempt {
            attempt,
            why,
            at: clock::now().into(),
        };
        let mut kept = lock(&self.0);
        let oldest = kept.record(hash, failed);
        drop(kept);
        drop(oldest);
    }

    /// Those of a key, the last one first.
    pub(crate) fn of(&self, hash: u64, most: usize) -> Vec<FailedAttempt> {
        let kept = lock(&self.0);
        let own = kept.all.iter().rev().filter(|(of, _)| *of == hash);
        own.take(most).map(|(_, failed)| failed.clone()).collect()
    }
}

impl Kept {
    /// Returns what it has replaced.
    fn record(&mut self, hash: u64, failed: FailedAttempt) -> Option<(u64, FailedAttempt)> {
        if self.counts.is_empty() {
            self.counts.resize(COUNTS, 0);
        }
        let replaced = match self.count(hash) {
            MOST_OF_A_KEY.. => self.take_oldest_of(hash),
            _ if self.all.len() == MOST => self.all.pop_front(),
            _ => None,
        };
        if let Some((replaced, _)) = &replaced {
            self.counts[place(*replaced)] -= 1;
        }
        self.counts[place(hash)] += 1;
        self.all.push_back((hash, failed));
        replaced
    }

    fn count(&self, hash: u64) -> u8 {
        self.counts[place(hash)]
    }

    #[cold]
    fn take_oldest_of(&mut self, hash: u64) -> Option<(u64, FailedAttempt)> {
        let of_same_count = |(of, _): &(u64, FailedAttempt)| place(*of) == place(hash);
        let oldest = self.all.iter().position(of_same_count)?;
        self.all.remove(oldest)
    }
}

fn place(hash: u64) -> usize {
    hash as usize % COUNTS
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use super::*;

    fn attempts(failed: &FailedAttempts, hash: u64, most: usize) -> Vec<u32> {
        let of = failed.of(hash, most);
        of.into_iter().map(|it| it.attempt).collect()
    }

    #[test]
    fn the_last_ones_are_kept_and_found_by_key() {
        let failed = FailedAttempts::default();
        let keys = MOST as u64 / 8;
        for n in 0..2 * MOST as u32 {
            failed.record(u64::from(n) % keys, n, "no".into());
        }
        let (last, step) = (2 * MOST as u32 - 1, keys as u32);
        let own = attempts(&failed, keys - 1, 3);
        assert_eq!(own, [last, last - step, last - 2 * step]);
        assert_eq!(attempts(&failed, keys, 3), [0; 0]);
        let all = (0..keys).map(|hash| failed.of(hash, usize::MAX).len());
        assert_eq!(all.sum::<usize>(), MOST);
    }

    #[test]
    fn a_key_that_fails_all_the_time_does_not_push_out_the_others() {
        let failed = FailedAttempts::default();
        failed.record(1, 1, "no".into());
        for n in 0..10 * MOST as u32 {
            failed.record(2, n, "no".into());
        }
        assert_eq!(attempts(&failed, 1, 3), [1]);
        let own = attempts(&failed, 2, usize::MAX);
        assert_eq!(own.len(), usize::from(MOST_OF_A_KEY));
        assert_eq!(own[0], 10 * MOST as u32 - 1);
        assert_eq!(lock(&failed.0).all.len(), own.len() + 1);
    }

    #[test]
    fn keys_that_do_not_fail_any_more_are_forgotten() {
        let failed = FailedAttempts::default();
        for n in 0..10 * MOST as u64 {
            failed.record(n, 1, "no".into());
        }
        let kept = lock(&failed.0);
        let counts: usize = kept.counts.iter().copied().map(usize::from).sum();
        assert_eq!((kept.all.len(), counts), (MOST, MOST));
        drop(kept);
        assert_eq!(attempts(&failed, 10 * MOST as u64 - 1, 3), [1]);
    }
}
