//! Sends letters back to their original topics.

use std::sync::{Arc, Mutex};
use std::task::{self, Waker};
use std::time::Duration;

use bytes::Bytes;
use keylane::{Context, Dispatcher, OnExhausted, Overflow, Retry};
use keylane_connector::tls::TlsFailure;
use keylane_connector::{ConfigError, lock};
use keylane_rt::text_in_debug;
use keylane_source::RawMessage;
use thiserror::Error;

use super::back::{Failed, is_refusal, send_back};
use crate::config::KafkaSourceBuilder;
use crate::error::{KafkaSourceError, NAMES};
use crate::link;
use crate::producer::{Producer, SendError};
use crate::record::{Keyless, Maker};
use crate::source::KafkaSource;

/// The pause between two checks whether the redrive is over.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How long a redrive that stops waits for letters on their way.
const STOP_WITHIN: Duration = Duration::from_secs(2);

/// How many letters are on their way at once, each of another key.
const CONCURRENCY: usize = 256;

/// Sends the letters of a topic back to their original topics, in the order of their keys.
///
/// A letter goes to the end of its original topic, behind newer records, and without the headers
/// that made it a letter. Its key, its payload and its headers are those of the original record,
/// byte by byte. Its time is that of the redrive: with the original one, a topic that deletes
/// records by age could delete it before it is read. It is committed in the group of the redrive
/// when it is written: the next redrive of the same group begins behind it. If the process ends
/// before the commit, the letter is sent twice. The brokers forget what a group without members has
/// committed after `offsets.retention.minutes`, seven days by default: let them keep it for longer
/// than the topic keeps its letters, or the next redrive sends all of them again.
///
/// Letters of one key are sent one after the other. So they arrive in the order in which they
/// became letters, if the topic of the letters has all letters of a key in one partition: this
/// crate and the Java clients write it like that.
///
/// # Examples
///
/// ```no_run
/// use keylane_kafka::{Producer, Redrive};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let producer = Producer::builder("localhost:9092").build()?;
/// let redrive = Redrive::new("localhost:9092", "orders.dead", producer);
/// println!("{} letters went back", redrive.run().await?.redriven);
/// # Ok(())
/// # }
/// ```
#[must_use = "a redrive does nothing until `run`"]
#[derive(Debug)]
pub struct Redrive {
    source: KafkaSourceBuilder,
    letters: String,
    producer: Producer,
    to: Option<String>,
}

/// The result of a redrive.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedriveReport {
    /// How many letters were written to their original topics.
    pub redriven: u64,
}

/// Why a redrive has ended early. The letters that it has sent are committed.
#[non_exhaustive]
#[derive(Error)]
pub enum RedriveError {
    /// An error in the settings.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The topic of the letters does not exist.
    #[error(
        "the topic `{topic}` of the dead letters does not exist: create it, or correct its name"
    )]
    NoTopic {
        /// The topic of the letters.
        topic: String,
    },
    /// The topic of the letters cannot be read.
    #[error("the dead letters in `{topic}` cannot be read: {why}")]
    Unreadable {
        /// The topic of the letters.
        topic: String,
        /// The message of the client.
        why: String,
    },
    /// The brokers refuse the user of the redrive. They must know the user, and the user needs the
    /// right to read the topic and to be a member of the group.
    #[error(
        "the redrive stopped after {redriven} dead letters: the brokers refuse its user, which \
         needs `Read` permission for the topic `{topic}` and the group `{group}`: {why}"
    )]
    NotAuthorized {
        /// The topic of the letters.
        topic: String,
        /// The group of the redrive.
        group: String,
        /// How many letters went back.
        redriven: u64,
        /// The message of the client.
        why: String,
    },
    /// No broker can be reached, and with this one TLS fails. No letter went back.
    #[error("{broker}: no TLS: {failure}: {}", failure.advice(NAMES))]
    Tls {
        /// The host and the port.
        broker: String,
        /// What is wrong.
        failure: TlsFailure,
    },
    /// A letter cannot go back until the cause is removed: it is too large for its topic, the topic
    /// does not exist, or the producer may not write to it. It was tried once.
    #[error("the redrive stopped after {redriven} dead letters: {error}")]
    Refused {
        /// How many letters went back.
        redriven: u64,
        /// The problem with the next letter.
        #[source]
        error: SendError,
    },
    /// A letter did not go back, although it was tried several times, or it does not name its
    /// topic.
    #[error("the redrive stopped after {redriven} dead letters: {why}")]
    Stopped {
        /// How many letters went back.
        redriven: u64,
        /// The problem with the next letter.
        why: String,
    },
}

text_in_debug! { RedriveError: Config, NoTopic, Unreadable, NotAuthorized, Tls, Refused, Stopped }

/// How a redrive ends.
enum Ended {
    /// All letters went back.
    Over,
    /// A letter cannot go back, for this reason.
    Stopped(Option<Failed>),
    /// The brokers refuse a request of the source, with this message.
    Refused(String),
}

impl Redrive {
    /// Creates a redrive of the letters in this topic, which the producer sends.
    pub fn new(brokers: impl Into<String>, letters: impl Into<String>, producer: Producer) -> Self {
        let letters = letters.into();
        let group = format!("{letters}.redrive");
        Self {
            source: KafkaSource::builder(brokers, group).topic(&letters),
            letters,
            producer,
            to: None,
        }
    }

    /// Sets the group that commits the progress; the name of the topic and `.redrive` by default.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.source.group = group.into();
        self
    }

    /// Sets a property of the client that reads the letters, as [`KafkaSourceBuilder::property`]
    /// does.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.source = self.source.property(name, value);
        self
    }

    /// Sends all letters to this topic, instead of their original ones.
    pub fn to(mut self, topic: impl Into<String>) -> Self {
        self.to = Some(topic.into());
        self
    }

    /// Sends back all letters that are in the topic when it begins. Letters that come until it ends
    /// may go back as well: a record that fails at once may go round several times. So mend the
    /// fault first. Several redrives may run at once in the same group: they share the partitions.
    ///
    /// # Errors
    ///
    /// Returns [`RedriveError`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some of the letters have gone back, and no other letter is sent.
    /// Letters on their way are committed when they are written. If the runtime ends before that,
    /// the next redrive sends them again.
    pub async fn run(self) -> Result<RedriveReport, RedriveError> {
        let refused = |redriven, why| RedriveError::NotAuthorized {
            topic: self.letters.clone(),
            group: self.source.group.clone(),
            redriven,
            why,
        };
        let unreadable = |why: String| match is_refusal(&why) {
            true => refused(0, why),
            false => RedriveError::Unreadable {
                topic: self.letters.clone(),
                why,
            },
        };
        let config = self.source.clone().check()?;
        let progress = link::Progress::open(&config, &self.letters).await;
        let mut progress = progress.map_err(|error| match error {
            link::Failure::Client(error) if link::is_missing_topic(&error) => {
                RedriveError::NoTopic {
                    topic: self.letters.clone(),
                }
            }
            link::Failure::Client(error) if link::is_silence(&error) => unreadable(format!(
                "{error}: check that the brokers answer at their addresses"
            )),
            link::Failure::Refused(KafkaSourceError::Tls { broker, failure }) => {
                RedriveError::Tls { broker, failure }
            }
            error => unreadable(error.to_string()),
        })?;

        let failure = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&failure);
        let (producer, to) = (self.producer, self.to);
        let handler = move |_: Context<_>, letter: RawMessage| {
            let (producer, to, seen) = (producer.clone(), to.clone(), Arc::clone(&seen));
            async move {
                let gone = send_back(&producer, to.as_deref(), &letter).await;
                if let Err(error) = &gone {
                    let mut seen = lock(&seen);
                    // The one that ends the redrive stays.
                    if seen.as_ref().is_none_or(Failed::is_retryable) {
                        *seen = Some(error.clone());
                    }
                }
                gone
            }
        };
        let letters = Dispatcher::builder(order_of)
            .concurrency(CONCURRENCY)
            .lane_capacity(16, Overflow::Wait)
            .retry(retry())
            .on_exhausted(OnExhausted::Halt)
            .spawn(handler)
            .map_err(|error| unreadable(error.to_string()))?;
        let _closes = CloseOnDrop(letters.clone());
        let source = KafkaSource::new(config, Maker::raw(Keyless::Unordered));
        let intake = letters.consume(source);
        let intake = intake.map_err(|error| unreadable(error.to_string()))?;
        let ended = loop {
            if letters.stats().halted > 0 {
                break Ended::Stopped(lock(&failure).take());
            }
            // The source would try for ever.
            let stats = intake.stats();
            let failed = stats.failed_parts.into_iter().map(|failed| failed.why);
            if let Some(why) = stats
                .last_error
                .into_iter()
                .chain(failed)
                .find(|why| is_refusal(why))
            {
                break Ended::Refused(KafkaSourceError::cause_of(&why).to_owned());
            }
            match progress.is_over().await {
                Ok(true) => break Ended::Over,
                Ok(false) => {}
                Err(error) => tracing::debug!(target: "keylane", %error, "progress is not known"),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        };
        // Halted letters do not end; letters on their way do.
        let redriven = intake.stop().within(STOP_WITHIN).await.acked;
        match ended {
            Ended::Over => Ok(RedriveReport { redriven }),
            Ended::Stopped(Some(Failed::Send(error))) if !error.is_retryable() => {
                Err(RedriveError::Refused { redriven, error })
            }
            Ended::Stopped(why) => Err(RedriveError::Stopped {
                redriven,
                why: why.map(|why| why.to_string()).unwrap_or_default(),
            }),
            Ended::Refused(why) => Err(refused(redriven, why)),
        }
    }
}

/// A letter that fails is tried again if that may help.
fn retry() -> Retry<Failed> {
    let retry = Retry::exponential(Duration::from_millis(100)).max_attempts(5);
    retry.retry_if(|failure| failure.error().is_none_or(Failed::is_retryable))
}

/// Stops sending letters when it is dropped. Without this a dispatcher finishes all its messages,
/// and those are thousands.
struct CloseOnDrop(Dispatcher<Order, RawMessage, (), Failed>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        let mut close = self.0.close().within(STOP_WITHIN).into_future();
        // It starts with the first poll, and goes on when it is dropped.
        let _ = close
            .as_mut()
            .poll(&mut task::Context::from_waker(Waker::noop()));
    }
}

/// The key that orders letters: their own, or their partition if they have none.
type Order = (Option<Bytes>, Option<Bytes>);

fn order_of(letter: &RawMessage) -> Order {
    match &letter.key {
        Some(key) => (Some(key.clone()), None),
        None => {
            let id = letter.id.clone().unwrap_or_default();
            let end = id.iter().rposition(|byte| *byte == b'@').unwrap_or(0);
            (None, Some(id.slice(..end)))
        }
    }
}
