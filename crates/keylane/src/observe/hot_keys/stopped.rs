//! The lanes that only an operator lets go on.

use std::collections::VecDeque;

/// Most candidates.
const MOST: usize = 1_024;

/// The lanes that were paused last, or that halted last. A lane that goes on stays a candidate
/// until a query looks.
#[derive(Debug, Default)]
pub(super) struct Stopped(VecDeque<u64>);

impl Stopped {
    pub(super) fn admit(&mut self, hash: u64) {
        if !self.0.contains(&hash) {
            if self.0.len() == MOST {
                self.0.pop_front();
            }
            self.0.push_back(hash);
        }
    }

    /// The one that was stopped last first.
    pub(super) fn all(&self) -> Vec<u64> {
        self.0.iter().rev().copied().collect()
    }

    pub(super) fn remove(&mut self, hash: u64) {
        self.0.retain(|of| *of != hash);
    }
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_stay() {
        let mut stopped = Stopped::default();
        for hash in (0..2 * MOST as u64).chain([MOST as u64]) {
            stopped.admit(hash);
        }
        let all = stopped.all();
        assert_eq!((all.len(), all[0]), (MOST, 2 * MOST as u64 - 1));
        stopped.remove(all[0]);
        assert_eq!(stopped.all()[0], all[1]);
    }
}
