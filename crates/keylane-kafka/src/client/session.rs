//! One membership in the group: a consumer, and the thread in which it hears from the group.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Notify, oneshot};

use super::context::{Context, News};
use crate::config::Config;

pub(crate) type Consumer = BaseConsumer<Context>;
pub(crate) type Queue = PartitionQueue<Context>;

/// How long the thread waits for the group before it sees whether it is to end.
const POLL: Duration = Duration::from_millis(50);

/// How long the thread waits until the source has let go of the consumer. It leaves the group with
/// the last one that has it.
const LET_GO: Duration = Duration::from_secs(10);

pub(crate) struct Session {
    pub(crate) consumer: Arc<Consumer>,
    pub(crate) news: UnboundedReceiver<News>,
    ends: Arc<AtomicBool>,
    left: oneshot::Receiver<()>,
}

impl Session {
    /// Joins the group. News wake the source, and records the thread that reads them.
    pub(crate) fn open(config: &Config, wake: &Arc<Notify>, reader: &Thread) -> KafkaResult<Self> {
        let (news_in, news) = unbounded_channel();
        let ends = Arc::new(AtomicBool::new(false));
        let context = Context::new(
            news_in,
            Arc::clone(wake),
            reader.clone(),
            Arc::clone(&ends),
            config,
        );
        let consumer: Consumer = config.member().create_with_context(context)?;
        let consumer = Arc::new(consumer);
        consumer.context().set_consumer(&consumer);
        let topics: Vec<_> = config.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics)?;
        let (leaves, left) = oneshot::channel();
        let (theirs, until) = (Arc::clone(&consumer), Arc::clone(&ends));
        thread::Builder::new()
            .name("keylane-kafka".to_owned())
            .spawn(move || {
                listen(theirs, &until);
                let _ = leaves.send(());
            })
            .map_err(|error| KafkaError::ClientCreation(error.to_string()))?;
        Ok(Self {
            consumer,
            news,
            ends,
            left,
        })
    }

    /// Leaves the group. What is assigned must be let go of before.
    pub(crate) async fn close(mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let left = std::mem::replace(&mut self.left, oneshot::channel().1);
        drop(self);
        let _ = left.await;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// Serves the group until the session ends, and leaves it then.
fn listen(consumer: Arc<Consumer>, ends: &AtomicBool) {
    while !ends.load(Ordering::Relaxed) {
        match consumer.poll(POLL) {
            None => {}
            Some(Err(error)) => report(&consumer, &error),
            Some(Ok(_)) => {
                let what = "a record came outside of the queue of its partition".to_owned();
                consumer.context().tell(News::Failed(what));
            }
        }
    }
    // Also if a function of the user's has a queue for longer: the group does not wait for that.
    consumer.unsubscribe();
    let since = Instant::now();
    while Arc::strong_count(&consumer) > 1 && since.elapsed() < LET_GO {
        // A rebalance that is under way goes on.
        drop(consumer.poll(Duration::from_millis(5)));
    }
}

fn report(consumer: &Consumer, error: &KafkaError) {
    let code = error.rdkafka_error_code();
    let is_fatal = matches!(error, KafkaError::MessageConsumptionFatal(_));
    let is_refused = matches!(
        code,
        Some(
            RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::GroupAuthorizationFailed
                | RDKafkaErrorCode::ClusterAuthorizationFailed
                | RDKafkaErrorCode::SaslAuthenticationFailed
                | RDKafkaErrorCode::Authentication
        )
    );
    match is_fatal || is_refused {
        true => consumer.context().tell(News::Failed(error.to_string())),
        // The client gets over it. The context has logged it, with the reason.
        false => tracing::debug!(target: "keylane", %error, "the Kafka client reports a failure"),
    }
}
