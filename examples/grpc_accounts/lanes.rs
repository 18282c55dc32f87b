//! The layer in front of the service.
//!
//! A tower layer sees the HTTP request: the body, and so the account if it stood in the message, is still on
//! its way and not decoded. To read it here would mean to decode it twice, and to wait for it before the call
//! has its place. So the key is metadata, which is a header; and it is the only place where the account is
//! named, or a call could stand in one lane and write to the account of another.

use std::time::Duration;

use http::{HeaderValue, Request};
use keylane_tower::SettingError;
use keylane_tower::error::LaneFull;
use keylane_tower::{KeyedLayer, KeyedSemaphore};
use tonic::{Code, Status};
use tower::BoxError;
use tower::load_shed::error::Overloaded;
use tower::timeout::error::Elapsed;

/// The metadata that names the account.
pub(crate) const HEADER: &str = "x-account";

/// Most calls for one account at once: one that runs, the others wait.
pub(crate) const LANE_CAPACITY: usize = 32;

/// How long a call may take, the waiting included.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Whether calls for one account wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Lanes,
    /// No call has a key, so none waits: to see what that does.
    NoLanes,
}

/// The lane of a call.
type Key<B> = fn(&Request<B>) -> Option<HeaderValue>;

/// Calls for one account one at a time, in the order in which they come to this layer.
///
/// HTTP/2 gives each call of a connection a task of its own. So a client that sends two calls and does not
/// wait for the first answer has not said which one comes first.
pub(crate) fn by_account<B>(mode: Mode) -> Result<KeyedLayer<Key<B>, HeaderValue>, SettingError> {
    let lanes = KeyedSemaphore::builder()
        .capacity(1_024)
        .concurrency(256)
        .lane_capacity(LANE_CAPACITY)
        .build()?;
    let key: Key<B> = match mode {
        Mode::Lanes => |call| call.headers().get(HEADER).cloned(),
        Mode::NoLanes => |_| None,
    };
    Ok(KeyedLayer::with_semaphore(lanes, key))
}

/// What the layers say, as gRPC says it; tonic sends it to the caller.
pub(crate) fn status(error: BoxError) -> Status {
    let (code, message) = if error.is::<LaneFull>() {
        (
            Code::ResourceExhausted,
            "too many calls for this account are waiting: wait for their answers",
        )
    } else if error.is::<Overloaded>() {
        (
            Code::ResourceExhausted,
            "too many calls are waiting: try again in a second",
        )
    } else if error.is::<Elapsed>() {
        (
            Code::DeadlineExceeded,
            "the call took too long and was dropped",
        )
    } else {
        return Status::from_error(error);
    };
    Status::new(code, message)
}
