//! A queue as a sink: for messages of a spool, and for dead letters.

use keylane_connector::{Why, letter_sinks};
use keylane_source::RawMessage;
use redis::Cmd;

use super::queue::ListQueue;
use super::record::{encode, letter_parts};
use super::script::{KEEP, run};
use crate::error::RedisError;
use crate::link::Link;

impl ListQueue {
    async fn keep_letter(&self, message: &RawMessage, why: &Why) -> Result<(), RedisError> {
        let [head, headers] = letter_parts(message.key.as_deref(), why.headers());
        let element = encode(message);
        let arguments = |command: &mut Cmd| {
            command.arg(&*head).arg(&*headers).arg(&*element);
        };
        let keys = || self.list.keys.all();
        let keep = async |link: &mut Link| run::<i64>(&KEEP, link, keys(), arguments).await;
        self.list.link.with(keep).await.map(drop)
    }
}

letter_sinks! {
    /// The letters go to the list beside the queue, where its own sources keep theirs. A letter may
    /// be written twice if its call is dropped, or its answer lost. A letter that is kept [at its
    /// source](crate::ListBuilder::dead_letters) is never written twice.
    ListQueue, keep_letter
}

#[cfg(feature = "spool")]
mod spool {
    use keylane_connector::ErrorKind;
    use keylane_spool::{SinkError, SpoolSink, Spooled, async_trait};

    use super::ListQueue;
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
