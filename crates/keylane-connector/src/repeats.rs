//! What is logged once, and not each time it happens again.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// The first pause before the same is logged again, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));

/// Most kinds that are remembered. Beyond that, the one that was heard longest ago is forgotten.
const MOST: usize = 256;

/// Decides whether to log what happens again and again: at once, and then at growing intervals of
/// 10 seconds to 10 minutes. What has not happened for twice its interval is new. Pure.
///
/// ```
/// use std::time::Duration;
/// use keylane_connector::Repeats;
/// use tokio::time::Instant;
///
/// let (mut repeats, now) = (Repeats::default(), Instant::now());
/// assert_eq!(repeats.hear("connection refused", now), Some(0));
/// assert_eq!(repeats.hear("connection refused", now), None);
/// let later = now + Duration::from_secs(10);
/// assert_eq!(repeats.hear("connection refused", later), Some(1));
/// ```
#[derive(Debug)]
pub struct Repeats<K> {
    heard: HashMap<K, Heard>,
    /// The first pause, and the longest.
    pauses: (Duration, Duration),
}

#[derive(Debug)]
struct Heard {
    last: Instant,
    said: Instant,
    pause: Duration,
    left_out: u64,
}

impl<K> Default for Repeats<K> {
    fn default() -> Self {
        Self::with_pauses(PAUSES.0, PAUSES.1)
    }
}

impl<K> Repeats<K> {
    /// Creates it with other intervals, for what is looked at seldom.
    pub fn with_pauses(first: Duration, longest: Duration) -> Self {
        Self {
            heard: HashMap::new(),
            pauses: (first, longest),
        }
    }
}

impl<K: Clone + Eq + Hash> Repeats<K> {
    /// This happens now. If it is to be logged, returns how often it was left out since the last
    /// time.
    pub fn hear(&mut self, kind: K, now: Instant) -> Option<u64> {
        let is_known = self.heard.get_mut(&kind).filter(|heard| {
            let silent_for = now.saturating_duration_since(heard.last);
            silent_for <= heard.pause * 2
        });
        let Some(heard) = is_known else {
            self.remember(kind, now);
            return Some(0);
        };
        heard.last = now;
        if now.saturating_duration_since(heard.said) < heard.pause {
            heard.left_out += 1;
            return None;
        }
        heard.said = now;
        heard.pause = (heard.pause * 2).min(self.pauses.1);
        Some(std::mem::take(&mut heard.left_out))
    }

    fn remember(&mut self, kind: K, now: Instant) {
        if self.heard.len() >= MOST && !self.heard.contains_key(&kind) {
            let oldest = self.heard.iter().min_by_key(|(_, heard)| heard.last);
            if let Some(oldest) = oldest.map(|(kind, _)| kind.clone()) {
                self.heard.remove(&oldest);
            }
        }
        let heard = Heard {
            last: now,
            said: now,
            pause: self.pauses.0,
            left_out: 0,
        };
        self.heard.insert(kind, heard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten times a second for an hour.
    #[test]
    fn the_same_is_logged_at_once_and_at_growing_intervals() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        let mut logged = Vec::new();
        let mut sum = 0;
        for tenth in 0..36_000 {
            if let Some(left_out) = repeats.hear((), start + Duration::from_millis(100) * tenth) {
                logged.push(u64::from(tenth) / 10);
                sum += left_out + 1;
            }
        }
        assert_eq!(logged[..7], [0, 10, 30, 70, 150, 310, 630]);
        let pauses = logged.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(pauses.skip(6).all(|pause| pause == 600), "{logged:?}");
        assert_eq!(sum, logged.last().unwrap() * 10 + 1, "each one counts");
    }

    #[test]
    fn what_was_over_is_new() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        assert_eq!(repeats.hear(1, start), Some(0));
        assert_eq!(repeats.hear(2, start), Some(0));
        assert_eq!(repeats.hear(1, start + Duration::from_secs(9)), None);
        assert_eq!(repeats.hear(1, start + Duration::from_secs(29)), Some(1));
        // It has not happened for more than two pauses, of which the last one was 20 seconds.
        assert_eq!(repeats.hear(1, start + Duration::from_secs(70)), Some(0));
        assert_eq!(repeats.hear(1, start + Duration::from_secs(79)), None);
    }

    #[test]
    fn no_more_kinds_are_remembered_than_the_limit() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        for kind in 0..10 * MOST {
            repeats.hear(kind, start + Duration::from_millis(kind as u64));
        }
        assert_eq!(repeats.heard.len(), MOST);
    }
}
