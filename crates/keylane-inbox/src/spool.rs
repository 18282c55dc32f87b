//! The inbox as the sink of a spool.

use async_trait::async_trait;
use keylane_spool::{SinkError, SpoolSink, Spooled};

use crate::error::AcceptError;
use crate::inbox::Inbox;
use crate::limits::LimitError;
use crate::message::{MessageId, NewMessage};

/// A batch is one call of [`accept_many`](Inbox::accept_many), and so one sync. Key, payload and
/// headers stay as they are. The spool's [id](Spooled::id) becomes the id in the inbox, as its [24
/// bytes](keylane_spool::MessageId::to_bytes).
///
/// # Once
///
/// A batch may be written again: after a write whose answer was an error or came too late, and
/// after a crash between the inbox's commit and the spool's own record of it. The ids absorb the
/// repeat. So every message is in the inbox once, for as long as the inbox
/// [remembers](crate::InboxBuilder::remember_for) ids: by default for a day, and a million of them. A
/// spool that comes back later may store [unconfirmed](keylane_spool::Stats::unconfirmed) messages
/// a second time.
///
/// # Failures
///
/// The inbox refuses a message that exceeds one of its limits, and
/// [`on_refused`](keylane_spool::SpoolBuilder::on_refused) decides what happens to it; the other
/// messages of its batch are stored. If the inbox is closed, has no room on its disk or
/// cannot write, the spool tries again after its waits. A message that the inbox has confirmed is
/// as durable as its [`SyncMode`](crate::SyncMode) says.
///
/// A batch with more messages or bytes than a call may have is written in parts, in its order.
///
/// The spool keeps a handle of the inbox until it has ended: close the spool first.
///
/// # Examples
///
/// ```
/// use keylane_inbox::Inbox;
/// use keylane_spool::Spool;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// let inbox = Inbox::open(directory.path().join("orders")).await?;
/// let spool = Spool::builder(inbox.clone())
///     .dir(directory.path().join("spool"))
///     .open()
///     .await?;
///
/// spool.push("user-7", r#"{"cents": 100}"#).await?;
/// println!("{}", spool.close().await);
///
/// assert_eq!(inbox.stats().await?.waiting, 1);
/// inbox.close().await?;
/// # Ok(())
/// # }
/// ```
#[async_trait]
impl SpoolSink for Inbox {
    async fn write(&self, batch: &[Spooled]) -> Result<(), SinkError> {
        let mut written = 0;
        let mut most = batch.len();
        while written < batch.len() {
            let part = &batch[written..batch.len().min(written + most)];
            let Err(error) = self.accept_many(part.iter().map(message)).await else {
                written += part.len();
                continue;
            };
            return Err(match error {
                AcceptError::Store(error, _) => SinkError::failed(error),
                AcceptError::Limit(error, _) => match place(&error) {
                    Some(place) => SinkError::refused([written + place], error),
                    None if part.len() > 1 => {
                        most = part.len() / 2;
                        continue;
                    }
                    None => SinkError::refused([written], error),
                },
            }
            .with_first_written(written));
        }
        Ok(())
    }
}

fn message(spooled: &Spooled) -> NewMessage {
    let id = MessageId::from(spooled.id.to_bytes().to_vec());
    let message = NewMessage::new(spooled.key.clone(), spooled.payload.clone()).id(id);
    let headers = spooled.headers.iter();
    headers.fold(message, |message, (name, value)| {
        message.header(name, value.clone())
    })
}

/// Returns the index of the message that exceeds the limit; `None` if the call exceeds it.
fn place(error: &LimitError) -> Option<usize> {
    match error {
        LimitError::TooLarge { index, .. }
        | LimitError::Headers { index, .. }
        | LimitError::EmptyId { index } => Some(*index),
        LimitError::Messages { .. } | LimitError::Bytes { .. } => None,
    }
}
