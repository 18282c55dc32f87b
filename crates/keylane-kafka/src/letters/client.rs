//! The client for the letters in a topic, and the settings with which it is opened.

use std::fmt;
use std::sync::Arc;

use keylane_connector::ConfigError;
use keylane_source::RawMessage;
use rdkafka::message::BorrowedMessage;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::error::{KafkaLettersError, Names};
use super::id::LetterId;
use crate::config::KafkaSourceBuilder;
use crate::link::{LetterLog, MarkError, Spot, blocking, job};
use crate::record::{Keyless, Maker};

/// A handle, whose clones share the client.
#[derive(Clone)]
pub(super) struct Client {
    settings: KafkaSourceBuilder,
    topic: Arc<str>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The client. `None`: it is not open yet, or it has failed.
    log: Arc<Mutex<Option<LetterLog>>>,
    /// Held while letters are sent and marked.
    acts: Arc<Mutex<()>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The end of a client may wait for the brokers.
        if let Ok(mut log) = Arc::clone(&self.log).try_lock_owned()
            && log.is_some()
        {
            // Without a thread it ends here.
            let _ = job(move || drop(log.take()));
        }
    }
}

impl Client {
    pub(super) fn new(brokers: impl Into<String>, topic: String, group: String) -> Self {
        Self {
            settings: KafkaSourceBuilder::new(brokers, group).topic(&topic),
            topic: topic.into(),
            shared: Arc::default(),
        }
    }

    /// Changes the settings. It does not share the client of clones with other ones.
    pub(super) fn with(
        self,
        change: impl FnOnce(KafkaSourceBuilder) -> KafkaSourceBuilder,
    ) -> Self {
        Self {
            settings: change(self.settings),
            topic: self.topic,
            shared: Arc::default(),
        }
    }

    /// Waits until no other call acts.
    pub(super) async fn act_alone(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.shared.acts).lock_owned().await
    }

    /// Asks the client, in a thread of its own. It goes on there when this is dropped.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut LetterLog) -> Result<T, MarkError> + Send + 'static,
    ) -> Result<T, KafkaLettersError> {
        let mut log = Arc::clone(&self.shared.log).lock_owned().await;
        let (settings, topic) = (self.settings.clone(), Arc::clone(&self.topic));
        let asked = blocking(move || -> Result<_, ConfigError> {
            let open = match log.take() {
                Some(open) => Ok(open),
                None => LetterLog::open(&*settings.check()?, &topic),
            };
            let asked = open.map_err(MarkError::from).and_then(|mut open| {
                let asked = run(&mut open);
                // A client that has failed is not used again.
                let asked = asked.map_err(|error| open.explain(error))?;
                *log = Some(open);
                Ok(asked)
            });
            Ok(asked)
        });
        let asked = asked.await;
        let asked = asked.map_err(|error| self.unreadable(error.to_string()))?;
        asked?.map_err(|error| KafkaLettersError::of_marks(error, self.names()))
    }

    pub(super) fn copier(&self) -> Copier {
        Copier {
            topic: Arc::clone(&self.topic),
            maker: Maker::raw(Keyless::Unordered),
        }
    }

    pub(super) fn unreadable(&self, why: String) -> KafkaLettersError {
        let topic = self.topic.to_string();
        KafkaLettersError::Unreadable { topic, why }
    }

    fn names(&self) -> Names<'_> {
        Names {
            topic: &self.topic,
            group: &self.settings.group,
            most_chars: self.settings.metadata_chars,
        }
    }
}

/// Makes messages of the records of letters.
pub(super) struct Copier {
    topic: Arc<str>,
    maker: Maker<RawMessage>,
}

impl Copier {
    pub(super) fn copy(&mut self, (number, _): Spot, record: &BorrowedMessage<'_>) -> RawMessage {
        let partition = format!("{}/{number}", self.topic);
        self.maker.make(&partition, record)
    }
}

pub(super) fn id_of((partition, offset): Spot) -> LetterId {
    LetterId { partition, offset }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("topic", &self.topic)
            .field("group", &self.settings.group)
            .finish_non_exhaustive()
    }
}
