//! A transaction that was in the way of another one is made again.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, SystemTime};

use crate::error::SqlError;

/// How often.
const TRIES: u32 = 10;

/// The longest pause before it is.
const PAUSE: Duration = Duration::from_millis(100);

/// Makes a call again where [nothing was done](SqlError::is_made_again), up to so many times.
pub(super) async fn again<T, F>(call: impl Fn() -> F) -> Result<T, SqlError>
where
    F: Future<Output = Result<T, SqlError>>,
{
    let mut pause = Duration::from_millis(1);
    for _ in 1..TRIES {
        match call().await {
            Err(error) if error.is_made_again() => {}
            called => return called,
        }
        // Not all at the same time.
        let share = RandomState::new().hash_one(SystemTime::now()) % 7 + 1;
        tokio::time::sleep(pause * share as u32 / 7).await;
        pause = (pause * 2).min(PAUSE);
    }
    call().await
}
