//! Letters go back to the topics that they are from.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{self, Waker};
use std::time::Duration;

use bytes::Bytes;
use keylane::{Context, Dispatcher, OnExhausted, Overflow, Retry};
use keylane_source::RawMessage;
use rdkafka::error::RDKafkaErrorCode;
use thiserror::Error;

use super::headers::{TOPIC, original};
use crate::client;
use crate::config::Builder;
use crate::config::Keyless;
use crate::error::ConfigError;
use crate::producer::{Producer, SendError};
use crate::record::Maker;
use crate::source::KafkaSource;

/// The pause between two looks at how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How long letters that are on their way are waited for when one has stopped the redrive.
const STOP_WITHIN: Duration = Duration::from_secs(2);

/// So many letters are on their way at once, each of another key.
const CONCURRENCY: usize = 256;

/// Sends the letters of a topic back to the topics that they are from, in the order of their keys.
///
/// A letter goes to the end of the topic, behind what came after it there, and without the headers
/// that made it a letter. It is committed in the group of the redrive when it is written: the next
/// redrive of the same group begins behind it. If the process ends before that, the letter is sent
/// twice.
///
/// Letters of one key are sent one after the other. So they come in the order in which they were
/// given up on, if the topic of the letters has all of a key in one partition: this crate and the
/// Java clients write it like that.
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
    source: Builder,
    letters: String,
    producer: Producer,
    to: Option<String>,
}

/// What a redrive has done.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedriveReport {
    /// So many letters were written to the topics that they are from.
    pub redriven: u64,
}

/// Why a redrive has ended early. What it has sent so far is committed.
#[non_exhaustive]
#[derive(Error, Debug)]
pub enum RedriveError {
    /// The settings do not go together.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The topic of the letters cannot be read.
    #[error("the letters in `{topic}` cannot be read: {why}")]
    Unreadable {
        /// The topic of the letters.
        topic: String,
        /// What the client says.
        why: String,
    },
    /// The brokers refuse its user: it must be known to them, and have the right to read the topic
    /// and to be a member of the group.
    #[error(
        "after {redriven} letters: the brokers refuse the user of the redrive, which needs the right \
         `Read` for the topic `{topic}` and for the group `{group}`: {why}"
    )]
    NotAuthorized {
        /// The topic of the letters.
        topic: String,
        /// The group of the redrive.
        group: String,
        /// So many letters have gone back.
        redriven: u64,
        /// What the client says.
        why: String,
    },
    /// A letter cannot go back.
    #[error("after {redriven} letters: {why}")]
    Stopped {
        /// So many letters have gone back.
        redriven: u64,
        /// What is wrong with the next one.
        why: String,
    },
}

/// Why a letter has not gone back.
#[derive(Error, Debug)]
enum Failed {
    #[error("the letter {0} does not say which topic it is from: name one with `to`")]
    NoTopic(String),
    #[error(transparent)]
    Send(#[from] SendError),
}

/// How a redrive ends.
enum Ended {
    /// All letters have gone back.
    Over,
    /// A letter cannot, because of this.
    Stopped(String),
    /// The brokers refuse something to the source, and say this.
    Refused(String),
}

impl Redrive {
    /// The letters in this topic, and what sends them.
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

    /// The group in which is committed how far the letters were sent; the name of their topic and
    /// `.redrive` by default.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.source.group = group.into();
        self
    }

    /// Sets a property of the client that reads the letters, as [`Builder::property`].
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.source = self.source.property(name, value);
        self
    }

    /// All letters go to this topic, wherever they are from.
    pub fn to(mut self, topic: impl Into<String>) -> Self {
        self.to = Some(topic.into());
        self
    }

    /// Sends back what is in the topic when it begins. Several may run at once, in the same group:
    /// they share the partitions.
    ///
    /// # Errors
    ///
    /// [`RedriveError`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, a part of the letters has gone back, and no other is sent. Those
    /// that are on their way are committed when they are there. If the runtime ends before that,
    /// they go a second time with the next redrive.
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
        let progress = client::Progress::open(&config, &self.letters).await;
        let mut progress = progress.map_err(|error| unreadable(error.to_string()))?;

        let failure = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&failure);
        let (producer, to) = (self.producer, self.to);
        let handler = move |_: Context<_>, letter: RawMessage| {
            let (producer, to, seen) = (producer.clone(), to.clone(), Arc::clone(&seen));
            async move {
                let gone = send_back(&producer, to.as_deref(), &letter).await;
                if let Err(error) = &gone {
                    let text = Some(error.to_string());
                    *seen.lock().unwrap_or_else(PoisonError::into_inner) = text;
                }
                gone
            }
        };
        let letters = Dispatcher::builder(order_of)
            .concurrency(CONCURRENCY)
            .lane_capacity(16, Overflow::Wait)
            .retry(Retry::exponential(Duration::from_millis(100)).max_attempts(5))
            .on_exhausted(OnExhausted::Halt)
            .spawn(handler)
            .map_err(|error| unreadable(error.to_string()))?;
        let _closes = CloseOnDrop(letters.clone());
        let source = KafkaSource::new(config, Maker::raw(Keyless::Unordered));
        let intake = letters.consume(source);
        let intake = intake.map_err(|error| unreadable(error.to_string()))?;
        let ended = loop {
            if letters.stats().halted > 0 {
                let why = failure.lock().unwrap_or_else(PoisonError::into_inner);
                break Ended::Stopped(why.clone().unwrap_or_default());
            }
            // The source would ask for ever.
            let stats = intake.stats();
            let failed = stats.failed_parts.into_iter().map(|failed| failed.why);
            if let Some(why) = stats
                .last_error
                .into_iter()
                .chain(failed)
                .find(|why| is_refusal(why))
            {
                break Ended::Refused(why);
            }
            match progress.is_over().await {
                Ok(true) => break Ended::Over,
                Ok(false) => {}
                Err(error) => tracing::debug!(target: "keylane", %error, "how far a redrive is"),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        };
        // What is halted does not end, and those that are on their way do.
        let redriven = intake.stop().within(STOP_WITHIN).await.acked;
        match ended {
            Ended::Over => Ok(RedriveReport { redriven }),
            Ended::Stopped(why) => Err(RedriveError::Stopped { redriven, why }),
            Ended::Refused(why) => Err(refused(redriven, why)),
        }
    }
}

/// Has no other letter sent when it is dropped. By itself a dispatcher finishes what it has, and
/// that are thousands.
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

/// Whether a broker says this to a user who may not do something, or whom it does not know. A
/// source has no more of an error of its client than its words, and the name of the code is among
/// them.
fn is_refusal(why: &str) -> bool {
    let codes = [
        RDKafkaErrorCode::TopicAuthorizationFailed,
        RDKafkaErrorCode::GroupAuthorizationFailed,
        RDKafkaErrorCode::ClusterAuthorizationFailed,
        RDKafkaErrorCode::SaslAuthenticationFailed,
        RDKafkaErrorCode::Authentication,
    ];
    codes.iter().any(|code| why.contains(&code.to_string()))
}

/// What orders letters: their key, or their partition if they have none.
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

async fn send_back(
    producer: &Producer,
    to: Option<&str>,
    letter: &RawMessage,
) -> Result<(), Failed> {
    let topic = letter.header(TOPIC);
    let topic = topic.and_then(|topic| std::str::from_utf8(topic).ok());
    let Some(topic) = to.or(topic) else {
        let id = letter.id.clone().unwrap_or_default();
        let id = String::from_utf8_lossy(&id).into_owned();
        return Err(Failed::NoTopic(id));
    };
    producer.send(topic, &original(letter)).await?;
    Ok(())
}
