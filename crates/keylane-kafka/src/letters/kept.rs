//! The dead letters in a topic: read, redriven one by one, purged.

use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::acting::{Act, Round};
use super::client::{Client, id_of};
use super::error::KafkaLettersError;
use super::id::LetterId;
use super::letter::{KafkaLetter, letter};
use crate::link::Spot;
use crate::metadata::MOST_CHARS;
use crate::producer::Producer;

/// The dead letters in a topic, for an operator who decides about single ones. [`Redrive`] sends
/// all of them back.
///
/// A topic keeps its records until its retention removes them. So a letter that is redriven or
/// purged is marked as done, in the offset and the metadata that a group commits: by default that
/// of [`Redrive`]. What is done here is done for a redrive of the same group, and what a redrive
/// has sent is not listed here.
///
/// A redriven letter goes to the end of the topic from which it came, behind newer records, and
/// without the headers that made it a letter. [`Redrive`] says which.
///
/// # What may go wrong
///
/// A letter is sent, and then marked. It goes a second time with the next redrive if
///
/// - the process ends between the two. Marks are committed after 100 letters at most;
/// - another process marks letters of the same partition at the same moment: the later commit may
///   replace the marks of the earlier one. The marks are read right before and after each commit,
///   and written again if they are gone, so that is rare. Within a process it cannot happen;
/// - another process, or another handle that is no clone of this one, redrives the same letter at
///   the same moment;
/// - a [`Redrive`] of the group begins between the two, and reads the letter before it is marked;
/// - the brokers forget the marks. They keep what a group without members has committed for
///   `offsets.retention.minutes`, seven days by default, which may count from the last redrive. Let
///   them keep it for longer than the topic keeps its letters.
///
/// While a [`Redrive`] of the group runs, the brokers take no marks from elsewhere, and nothing is
/// sent: [`KafkaLettersError::GroupInUse`].
///
/// The marks of letters in the middle of a partition have room for some thousands, however they
/// are spread. If there is no room, nothing is sent: [`KafkaLettersError::MarksFull`]. Marks from
/// the oldest letter on need no room.
///
/// The user needs `Read` permission for the topic of the letters and for the group. The producer
/// needs `Write` permission for the topics from which they came.
///
/// It is a handle. Its clones share one client, which it opens with the first call.
///
/// [`Redrive`]: crate::Redrive
///
/// # Examples
///
/// ```no_run
/// use keylane_kafka::{KafkaLetters, Producer};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let producer = Producer::builder("localhost:9092").build()?;
/// let letters = KafkaLetters::new("localhost:9092", "orders.dead", producer);
/// for letter in letters.list(None, 100).await? {
///     println!("{}: {:?}: {}", letter.id, letter.message.key, letter.error);
///     if letter.cause == "timed out" {
///         letters.redrive(&[letter.id]).await?;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct KafkaLetters {
    client: Client,
    producer: Producer,
    to: Option<Arc<str>>,
}

impl KafkaLetters {
    /// Returns the letters in this topic, which the producer sends back.
    pub fn new(brokers: impl Into<String>, letters: impl Into<String>, producer: Producer) -> Self {
        let letters = letters.into();
        let group = format!("{letters}.redrive");
        Self {
            client: Client::new(brokers, letters, group),
            producer,
            to: None,
        }
    }

    /// Sets the group that marks what is done; the name of the topic and `.redrive` by default, as
    /// in [`Redrive`](crate::Redrive).
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.client = self.client.with(|mut settings| {
            settings.group = group.into();
            settings
        });
        self
    }

    /// Sets a property of the client that reads the letters, as
    /// [`KafkaSourceBuilder::property`](crate::KafkaSourceBuilder::property) does.
    #[must_use]
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.client = self.client.with(|settings| settings.property(name, value));
        self
    }

    /// Limits the marks of a partition, in characters; 4,096 by default and at most, as in the
    /// brokers' `offset.metadata.max.bytes`. Set it if the brokers accept less: otherwise letters
    /// may be sent that cannot be marked. [`Redrive`](crate::Redrive) keeps no more of them.
    #[must_use]
    pub fn metadata_chars(mut self, most: usize) -> Self {
        let most = most.min(MOST_CHARS);
        self.client = self.client.with(|settings| settings.metadata_chars(most));
        self
    }

    /// Redrives all letters to this topic, instead of those from which they came.
    #[must_use]
    pub fn to(mut self, topic: impl Into<String>) -> Self {
        self.to = Some(topic.into().into());
        self
    }

    /// Returns at most `most` letters that are not done, behind the one with the id `after`, or the
    /// first ones: partition by partition, and within one in the order in which they became
    /// letters. They are read as a whole, so `most` also bounds the memory that this takes.
    ///
    /// # Errors
    ///
    /// Returns [`KafkaLettersError`]; also if the leader of a partition that is read does not
    /// answer within some 20 seconds.
    ///
    /// # Cancel safety
    ///
    /// This changes nothing in the brokers.
    pub async fn list(
        &self,
        after: Option<LetterId>,
        most: usize,
    ) -> Result<Vec<KafkaLetter>, KafkaLettersError> {
        let after = after.map(spot_of);
        let copier = self.client.copier();
        let found = self.client.ask(move |log| {
            let (mut found, mut copier) = (Vec::new(), copier);
            log.list(after, most, |spot, record| {
                found.push((id_of(spot), copier.copy(spot, record)));
            })?;
            Ok(found)
        });
        let found = found.await?;
        Ok(found.iter().map(|(id, raw)| letter(*id, raw)).collect())
    }

    /// Returns the letter with this id; `None` if there is none that is not done.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
    ///
    /// # Cancel safety
    ///
    /// This changes nothing in the brokers.
    pub async fn show(&self, id: LetterId) -> Result<Option<KafkaLetter>, KafkaLettersError> {
        let copier = self.client.copier();
        let found = self.client.ask(move |log| {
            let (mut found, mut copier) = (None, copier);
            let open = log.open_ones(&[spot_of(id)])?;
            log.read(&open, |spot, record| {
                found = Some(copier.copy(spot, record));
            })?;
            Ok(found)
        });
        Ok(found.await?.map(|raw| letter(id, &raw)))
    }

    /// Sends letters back, one after the other in this order, and marks them as done. Returns how
    /// many of them were letters that were not done.
    ///
    /// # Errors
    ///
    /// Returns [`KafkaLettersError`]. The letters before one that does not go back are marked, and
    /// those behind it are not sent. A letter of a [`SendError`](crate::SendError) that
    /// [`is_retryable`](crate::SendError::is_retryable) may be written all the same.
    ///
    /// # Cancel safety
    ///
    /// If this is dropped, no further letter is sent, and those that were sent are marked, unless
    /// the runtime ends before.
    pub async fn redrive(&self, ids: &[LetterId]) -> Result<u64, KafkaLettersError> {
        self.act(Act::Redrive, ids).await
    }

    /// Marks letters as done without sending them. Returns how many of them were letters that were
    /// not done. Their records stay in the topic until its retention removes them.
    ///
    /// # Errors
    ///
    /// Returns [`KafkaLettersError`]. Some of them may be marked.
    ///
    /// # Cancel safety
    ///
    /// If this is dropped, some of them may be marked, also a moment later.
    pub async fn purge(&self, ids: &[LetterId]) -> Result<u64, KafkaLettersError> {
        self.act(Act::Purge, ids).await
    }

    /// Acts in a task of its own, which goes on when this is dropped, to mark what was sent.
    async fn act(&self, act: Act, ids: &[LetterId]) -> Result<u64, KafkaLettersError> {
        if ids.is_empty() {
            return Ok(0);
        }
        let (caller, acted) = oneshot::channel();
        let round = Round {
            client: self.client.clone(),
            producer: self.producer.clone(),
            to: self.to.clone(),
            act,
            caller,
        };
        let spots = ids.iter().copied().map(spot_of).collect();
        tokio::spawn(round.run(spots));
        let ended = |_| self.client.unreadable("the runtime has ended".to_owned());
        acted.await.map_err(ended)?
    }
}

fn spot_of(id: LetterId) -> Spot {
    (id.partition, id.offset)
}

impl fmt::Debug for KafkaLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaLetters")
            .field("client", &self.client)
            .field("to", &self.to)
            .finish_non_exhaustive()
    }
}
