//! A lane at random.

use std::num::NonZeroUsize;

use super::hash::lane_of;
use crate::random::bits;

/// Returns a lane at random, one of `lanes` that are numbered from 0: for work that has no order.
///
/// Two messages of the same user may go to two lanes, so no order is kept. The lanes share the work
/// evenly, with at most one handler in each. Where that is not needed, messages without a key
/// ([`Dispatcher::key_by_opt`](crate::Dispatcher::key_by_opt)) are the better choice: none of them
/// waits behind another.
///
/// Lanes are chosen at random and not in turn, so that threads that send share no counter, and a
/// rhythm in the messages does not bring all heavy ones to one lane. Not for secrets.
///
/// Such a message has another key each time the key function is called, so
/// [`LaneControl::replace`](crate::LaneControl::replace) mostly returns
/// [`LaneError::OtherKey`](crate::error::LaneError::OtherKey).
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::num::NonZeroUsize;
/// use keylane::routing::{hash_lane, random_lane};
/// use keylane::Dispatcher;
///
/// const LANES: NonZeroUsize = NonZeroUsize::new(4).expect("it is not zero");
///
/// struct Upload { album: Option<u64> }
///
/// // Uploads into an album in order, all others anywhere, and four at once.
/// let uploads = Dispatcher::builder(|upload: &Upload| match &upload.album {
///     Some(album) => hash_lane(LANES, album),
///     None => random_lane(LANES),
/// })
/// .spawn(|_: Upload| async move { Ok::<(), std::io::Error>(()) })?;
/// uploads.send(Upload { album: None }).await?;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn random_lane(lanes: NonZeroUsize) -> usize {
    lane_of(bits().unwrap_or_default(), lanes)
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn each_lane_gets_its_share() {
        for count in [1, 2, 7] {
            let mut found = vec![0; count];
            for _ in 0..2_000 * count {
                found[random_lane(NonZeroUsize::new(count).unwrap())] += 1;
            }
            // A fifth is nine standard deviations.
            assert!(
                found.iter().all(|n| (1_600..=2_400).contains(n)),
                "{found:?}"
            );
        }
    }

    #[test]
    fn threads_go_ways_of_their_own() {
        let draw = || -> Vec<usize> { (0..64).map(|_| random_lane(NonZeroUsize::MAX)).collect() };
        let other = std::thread::spawn(draw).join().unwrap();
        assert_ne!(draw(), other);
    }
}
