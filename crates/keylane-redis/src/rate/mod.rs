//! Rates that several processes share.
//!
//! ```text
//!  callers ── acquire ──► permits of this process ──► Ok
//!                            │ none left: wait ◄──────────┐
//!                            ▼                            │ granted, or when to ask again
//!                         one task ── take.lua ──► what was taken, of each key and of all
//! ```

mod asker;
mod bucket;
mod builder;
mod error;
mod figures;
mod limits;
mod policy;
mod server;
mod shared;
mod spec;

pub use builder::SharedRateBuilder;
pub use error::TryAcquireError;
pub(crate) use figures::published_of_rates;
pub use policy::WhenAway;
pub use spec::Quota;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::time::timeout;

use self::shared::{Entered, Shared};
use crate::error::RedisError;

/// A rate limit for each key, in total, or both, over all processes that share the server.
///
/// For each key and for the total, the server stores the time at which the permits that were taken
/// would be used up evenly (the Generic Cell Rate Algorithm of ITU-T Recommendation I.371, by the
/// server's clock). Once its rate has recovered, an idle key costs nothing there, and this process
/// forgets it. Callers of a process that ask at the same time share a call, for up to 500 keys. The
/// process borrows permits ahead, so that most callers do not wait for the server at all.
///
/// All processes that share a rate must set the same limits under its name.
///
/// # How exact it is
///
/// - **At the server** it is exact: in any time `t`, for a key and in total, at most `burst + rate
///   × t` permits are granted.
/// - **Where permits are used**, over all processes, there are at most `burst + rate × (t + keep)`
///   in any time `t`, because a permit is used within the time for which it is
///   [kept](SharedRateBuilder::keep), or never. There are also no more than `burst + rate × t` plus
///   the permits that the processes had when that time began: each has borrowed at most
///   [`borrow`](SharedRateBuilder::borrow) for each key, and some were on their way to callers that
///   waited.
/// - **Too few** are used if permits are lost. A process loses borrowed permits that it does not
///   use in time, because it has died or is idle: at most `borrow` for each key. The permits of a
///   call whose answer was lost are lost too.
/// - If the clock of the server is set forward, it is as if that time had passed: at most one more
///   burst. If it is set back, no permit is granted twice. If a failover or a crash loses writes,
///   it is as if those permits were not taken: at most one more burst for each key concerned, and
///   in total.
/// - While the server is away, [`WhenAway`] decides.
///
/// Within a process and a key, permits are given out first come, first served. If several processes
/// wait, any of them may be next.
///
/// # Clusters
///
/// All keys of a rate are in one slot.
///
/// # Examples
///
/// ```no_run
/// use keylane_redis::{Quota, Redis, SharedRate, WhenAway};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = Redis::at("redis://:secret@redis.internal:6379/0")?;
/// let rate = SharedRate::builder(&redis, "partner-calls")
///     .per_key(Quota::per_second(5))
///     .total(Quota::per_second(100).burst(20))
///     .when_away(WhenAway::LocalShare { processes: 4 })
///     .build()?;
///
/// rate.acquire("account-7").await?;
/// println!("one call for account 7");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedRate {
    handle: Arc<LastHandle>,
}

/// Ends the task that asks the server when the last handle is dropped.
struct LastHandle {
    name: Bytes,
    shared: Arc<Shared>,
}

impl Drop for LastHandle {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl SharedRate {
    fn new(name: Bytes, shared: Shared) -> Self {
        let shared = Arc::new(shared);
        let handle = Arc::new(LastHandle { name, shared });
        Self { handle }
    }

    /// Waits until the rate of this key, and the total, allow one more start, and takes a permit.
    /// It cannot be given back.
    ///
    /// # Errors
    ///
    /// Returns [`RedisError`] if the server refuses with a permanent error. While the server is
    /// away, the call waits or goes on as [`WhenAway`] says.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime with timers and I/O.
    ///
    /// # Cancel safety
    ///
    /// A call that is dropped takes nothing: a permit that was granted for it goes to the next
    /// caller of this process.
    pub async fn acquire(&self, key: impl AsRef<[u8]>) -> Result<(), RedisError> {
        loop {
            match self.once(key.as_ref(), true).await {
                Some(Ok(())) => return Ok(()),
                Some(Err(TryAcquireError::Redis(error))) => return Err(error),
                Some(Err(TryAcquireError::NotYet { .. })) | None => {}
            }
        }
    }

    /// Takes a permit as [`acquire`](Self::acquire) does, if there is one now. It waits for an
    /// answer of the server if this process has no permit and does not know that there is none.
    ///
    /// # Errors
    ///
    /// Returns [`TryAcquireError`].
    ///
    /// # Panics
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use keylane_redis::{SharedRate, TryAcquireError};
    ///
    /// # async fn call(rate: &SharedRate) -> Result<(), keylane_redis::RedisError> {
    /// match rate.try_acquire("account-7").await {
    ///     Ok(()) => println!("one call for account 7"),
    ///     Err(TryAcquireError::NotYet { after }) => println!("try again after {after:?}"),
    ///     Err(TryAcquireError::Redis(error)) => return Err(error),
    ///     Err(error) => println!("{error}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire(&self, key: impl AsRef<[u8]>) -> Result<(), TryAcquireError> {
        loop {
            if let Some(answer) = self.once(key.as_ref(), false).await {
                return answer;
            }
        }
    }

    /// Asks, and counts the answer.
    async fn once(&self, key: &[u8], is_patient: bool) -> Option<Result<(), TryAcquireError>> {
        let answer = self.ask(key, is_patient).await;
        self.handle.shared.figures.answered(answer.as_ref());
        answer
    }

    /// Returns `None` if the answer came too late, or did not come because the runtime of another
    /// caller has ended.
    async fn ask(&self, key: &[u8], is_patient: bool) -> Option<Result<(), TryAcquireError>> {
        match self.handle.shared.enter(key, is_patient, self.spawner()) {
            Entered::Permit => Some(Ok(())),
            Entered::Refused(error) => Some(Err(error)),
            Entered::Wait(mut told) => loop {
                let shared = &self.handle.shared;
                match timeout(shared.borrowing.keep * 2, &mut told).await {
                    Ok(Ok(Ok(grant))) => return grant.redeem().then_some(Ok(())),
                    Ok(Ok(Err(error))) => return Some(Err(error)),
                    Ok(Err(_)) => return None,
                    Err(_) => shared.look_after(self.spawner()),
                }
            },
        }
    }

    /// Returns the spawner of the task with a number, in the runtime of the caller.
    fn spawner(&self) -> impl FnOnce(u64) {
        let runtime = Handle::current();
        move |number| drop(runtime.spawn(asker::run(Arc::clone(&self.handle.shared), number)))
    }
}

impl fmt::Debug for SharedRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRate")
            .field("name", &self.handle.name)
            .finish_non_exhaustive()
    }
}
