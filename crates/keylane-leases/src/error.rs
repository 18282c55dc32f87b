//! Errors, one small type for each operation.

use std::sync::Arc;
use std::time::Duration;

use keylane_rt::text_in_debug;
use thiserror::Error;

use crate::ttl::{LONGEST_TTL, SHORTEST_TTL};

/// The reason why leases could not be opened.
#[non_exhaustive]
#[derive(Error, Clone, PartialEq, Eq)]
pub enum OpenError {
    /// `Leases::open` was called outside a Tokio runtime.
    #[error("no Tokio runtime here: call `open` inside one, for example under `#[tokio::main]`")]
    NoRuntime,
    /// The runtime has no timers.
    #[error("the Tokio runtime has no timers: build it with `enable_time` or `enable_all`")]
    NoTimers,
    /// This setting must be at least one, or a time longer than zero.
    #[error("`{0}` must not be zero")]
    Zero(&'static str),
}

text_in_debug! { OpenError: NoRuntime, NoTimers, Zero }

/// The reason why there is no lease.
#[non_exhaustive]
#[derive(Error, Clone)]
pub enum AcquireError {
    /// Another holder has the lease, in this process or in another one.
    #[error("another holder has the lease for {remaining:?}, or longer if it is renewed")]
    Taken {
        /// How long it lasts, unless it is renewed or released.
        remaining: Duration,
    },
    /// There are as many leases as [`Settings::most`](crate::Settings::most) allows.
    #[error("the limit of leases is reached: release some, or raise `Settings::most`")]
    Full,
    /// The time to live is shorter than 100 milliseconds or longer than a day.
    #[error(
        "the time to live of a lease must be from {SHORTEST_TTL:?} to {LONGEST_TTL:?}, but is {0:?}"
    )]
    Ttl(Duration),
    /// The leases were closed, or their runtime is gone.
    #[error("the leases are closed: open others")]
    Closed,
    /// The store has not answered, or answered too late. Try again.
    #[error(transparent)]
    Store(#[from] StoreError),
}

text_in_debug! { AcquireError: Taken, Full, Ttl, Closed, Store }

/// The reason why a lease is no longer held.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum LeaseLost {
    /// It has run out: the store was not reached in time to renew it, or this process was paused.
    #[error("the lease has run out: stop what it protects, and acquire it again")]
    RanOut,
    /// It was released.
    #[error("the lease was released")]
    Released,
    /// The store reports that the lease is not held under this token.
    #[error("the lease was taken over: stop what it protects, and acquire it again")]
    TakenOver,
    /// The leases were closed, or their runtime is gone.
    #[error("the leases were closed: stop what they protect")]
    Closed,
}

text_in_debug! { LeaseLost: RanOut, Released, TakenOver, Closed }

/// An error of a store.
#[derive(Error, Clone, PartialEq, Eq)]
#[error("the lease store failed: {0}")]
pub struct StoreError(Arc<str>);

text_in_debug! { StoreError }

impl StoreError {
    /// Creates an error with this text. It appears in logs: never put a password into it.
    pub fn new(words: impl Into<String>) -> Self {
        Self(words.into().into())
    }
}
