//! The inbox as the place where a spool delivers to.

use async_trait::async_trait;
use keylane_spool::{SinkError, SpoolSink, Spooled};

use crate::error::AcceptError;
use crate::inbox::Inbox;
use crate::limits::LimitError;
use crate::message::{MessageId, NewMessage};

/// A batch is one call of [`accept_many`](Inbox::accept_many), and so one sync. Key, payload and
/// headers stay as they are; the spool's [id](Spooled::id) becomes that of the inbox, as its
/// [24 bytes](keylane_spool::MessageId::to_bytes).
///
/// # Once
///
/// A batch that is written again is absorbed by its ids: after a write whose answer was an error or
/// came too late, and after a crash between the inbox's commit and the spool's own record of it. So
/// every message is in the inbox once, for as long as the inbox
/// [remembers](crate::Builder::remember_for) ids: for a day, and a million of them, unless it was
/// told otherwise. A spool that comes back after a longer time may store what was not
/// [confirmed](keylane_spool::Stats::unconfirmed) a second time.
///
/// # What fails
///
/// A message beyond a limit of the inbox is refused, and
/// [`Builder::on_refused`](keylane_spool::Builder::on_refused) says what happens to it; the others
/// of its batch are stored. An inbox that is closed, has no room on its disk or cannot write is
/// tried again, after the spool's waits. What the inbox has confirmed is as durable as its
/// [`SyncMode`](crate::SyncMode) says.
///
/// A batch that has more messages or bytes than a call may have goes in parts, in its order.
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

/// Which message of a call is beyond the limit; `None` if it is the call.
fn place(error: &LimitError) -> Option<usize> {
    match error {
        LimitError::TooLarge { index, .. }
        | LimitError::Headers { index, .. }
        | LimitError::EmptyId { index } => Some(*index),
        LimitError::Messages { .. } | LimitError::Bytes { .. } => None,
    }
}
