//! A queue as a sink: for messages of a spool, and for dead letters.

use std::fmt;

use keylane_source::{
    BoxError, DeadLetter, DeadLetterSink, RawLetter, RawLetterSink, RawMessage, async_trait,
};
use redis::cmd;

use super::element::{encode, letter_head};
use super::queue::ListQueue;
use crate::error::RedisError;
use crate::letter::Why;

impl ListQueue {
    async fn keep_letter(&self, message: &RawMessage, why: &Why) -> Result<(), RedisError> {
        let head = letter_head(message.key.as_deref(), &why.headers());
        let mut push = cmd("LPUSH");
        push.arg(&*self.shared.keys.letters);
        push.arg([&*head, &*encode(message)].concat());
        self.shared
            .link
            .with(async |link| link.ask::<()>(&push).await)
            .await
    }
}

/// The letters go to the list beside the queue, where its own sources keep theirs. A letter may be
/// written twice if its call is dropped, or its answer lost. A letter that is kept [at its
/// source](crate::ListBuilder::dead_letters) is never written twice.
#[async_trait]
impl RawLetterSink for ListQueue {
    async fn accept(&self, letter: &RawLetter) -> Result<(), BoxError> {
        Ok(self.keep_letter(&letter.raw, &letter.into()).await?)
    }
}

/// The same for raw messages whose handler has failed.
#[async_trait]
impl<K, E> DeadLetterSink<K, RawMessage, E> for ListQueue
where
    K: Send + Sync,
    E: fmt::Debug + Send + Sync,
{
    async fn accept(&self, letter: &DeadLetter<K, RawMessage, E>) -> Result<(), BoxError> {
        Ok(self.keep_letter(&letter.message, &letter.into()).await?)
    }
}

#[cfg(feature = "spool")]
mod spool {
    use keylane_spool::{SinkError, SpoolSink, Spooled, async_trait};

    use super::ListQueue;
    use crate::error::ErrorKind;
    use crate::spooled;

    /// A list as the target of a [`Spool`](keylane_spool::Spool). A batch is written as a whole, in
    /// one step. The id of the spool is the id of the message, as its 24 bytes: a message that is
    /// written a second time, after a crash or a lost answer, has the same id.
    #[async_trait]
    impl SpoolSink for ListQueue {
        async fn write(&self, batch: &[Spooled]) -> Result<(), SinkError> {
            self.push_all(&spooled::messages(batch))
                .await
                .map_err(|error| match error.kind() {
                    // One message is larger than the server accepts.
                    ErrorKind::TooLarge => SinkError::refused_batch(error),
                    _ => SinkError::failed(error),
                })
        }
    }
}
