//! The error of a call that gets no permit.

use std::time::Duration;

use keylane_rt::text_in_debug;
use thiserror::Error;

use crate::error::RedisError;

/// Why there is no permit now.
#[non_exhaustive]
#[derive(Error, Clone)]
pub enum TryAcquireError {
    /// The rate of the key, or the total, is used up.
    #[error("the rate is used up: try again in {after:?}")]
    NotYet {
        /// How long until there is a permit again, unless another process takes it.
        after: Duration,
    },
    /// The server cannot be asked, or refuses.
    #[error(transparent)]
    Redis(#[from] RedisError),
}

text_in_debug! { TryAcquireError: NotYet, Redis }
