//! Repeats a transaction after a conflict with another one.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, SystemTime};

use crate::error::SqlError;

/// How many times to try.
const TRIES: u32 = 10;

/// The longest pause before the next try.
const PAUSE: Duration = Duration::from_millis(100);

/// Repeats a call while [nothing was done](SqlError::is_made_again), up to [`TRIES`] times.
pub(crate) async fn again<T, F>(call: impl Fn() -> F) -> Result<T, SqlError>
where
    F: Future<Output = Result<T, SqlError>>,
{
    let mut pause = Duration::from_millis(1);
    for _ in 1..TRIES {
        match call().await {
            Err(error) if error.is_made_again() => {}
            called => return called,
        }
        // Callers must not all repeat at the same time.
        let share = RandomState::new().hash_one(SystemTime::now()) % 7 + 1;
        tokio::time::sleep(pause * share as u32 / 7).await;
        pause = (pause * 2).min(PAUSE);
    }
    call().await
}
