//! Pushes from several Tokio runtimes.

use keylane::source::RawMessage;
use keylane_redis::RedisError;
use tokio::runtime::{Builder, Runtime};

/// How many messages are pushed.
pub(crate) const PUSHES: u64 = 12;

pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Pushes a message from each of several runtimes. Two thirds of them end afterwards, and the
/// others stand still: each push has a connection that works.
pub(crate) fn push_from_each(push: impl AsyncFn(RawMessage) -> Result<(), RedisError>) {
    let mut still = Vec::new();
    for number in 0..PUSHES {
        let runtime = runtime();
        let pushed = runtime.block_on(push(RawMessage::new(number.to_string())));
        assert!(pushed.is_ok(), "{number}: {pushed:?}");
        if number % 3 == 0 {
            still.push(runtime);
        }
    }
}
