//! One membership in the group: a consumer, and the thread that polls it for rebalances.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Notify, oneshot, watch};

use super::codes::{is_about_topic, is_name_conflict};
use super::context::{Consumer, Context, News};
use super::topics::{TopicIds, log_ids};
use crate::config::Config;
use crate::error::KafkaSourceError;

/// How long the thread waits for the group before it checks whether to end.
const POLL: Duration = Duration::from_millis(50);

/// How long the thread waits until the source has released the consumer. The consumer leaves the
/// group when its last handle is dropped.
const LET_GO: Duration = Duration::from_secs(10);

/// The timeout of the request for the members of the group.
const ASKED_FOR: Duration = Duration::from_secs(10);

/// The length of a UUID as text.
const UUID_CHARS: usize = 36;

/// How long the client has to report its state in the group. It reports every second, unless its
/// statistics are switched off.
const SAYS_WITHIN: Duration = Duration::from_secs(2);

pub(crate) struct Session {
    pub(crate) consumer: Arc<Consumer>,
    pub(crate) news: UnboundedReceiver<News>,
    /// Why no broker can be reached, once the client has said something about it.
    pub(crate) refused: watch::Receiver<Option<KafkaSourceError>>,
    ends: Arc<AtomicBool>,
    left: oneshot::Receiver<()>,
}

impl Session {
    /// Opens a member that has not joined yet. News wakes the source, records wake the thread that
    /// reads them. `topics` outlives the session.
    pub(crate) fn open(
        config: &Arc<Config>,
        topics: &Arc<Mutex<TopicIds>>,
        wake: &Arc<Notify>,
        reader: &Thread,
    ) -> KafkaResult<Self> {
        let (news_in, news) = unbounded_channel();
        let (refused_in, refused) = watch::channel(None);
        let ends = Arc::new(AtomicBool::new(false));
        let context = Context::new(
            (news_in, refused_in),
            Arc::clone(wake),
            reader.clone(),
            Arc::clone(&ends),
            config,
            topics,
        );
        let mut member = config.member();
        log_ids(&mut member);
        let consumer: Consumer = member.create_with_context(context)?;
        let consumer = Arc::new(consumer);
        consumer.context().set_consumer(&consumer);
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
            refused,
            ends,
            left,
        })
    }

    /// Joins the group.
    pub(crate) fn join(&self, config: &Config) -> KafkaResult<()> {
        let topics = config.subscription();
        let topics: Vec<_> = topics.iter().map(String::as_str).collect();
        self.consumer.subscribe(&topics)
    }

    /// Whether the client has heard that another member has its name.
    pub(crate) fn has_lost_name(&self) -> bool {
        let error = self.consumer.client().fatal_error();
        error.is_some_and(|(code, _)| is_name_conflict(code))
    }

    /// Leaves the group. All assigned partitions must be released before.
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

/// How long the brokers may take for their first answer, if they can be reached.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// How long if they cannot.
const UNREACHABLE: Duration = Duration::from_secs(2);

/// Waits for the first answer of the brokers. A wrong address is an error soon; a broker that
/// accepts a connection may need longer. Blocks the thread.
pub(crate) fn first_answer(consumer: &Consumer) -> KafkaResult<()> {
    let until = Instant::now() + FIRST_ANSWER;
    loop {
        let answer = consumer.fetch_metadata(None, UNREACHABLE).map(drop);
        if answer.is_ok() || consumer.context().are_all_down() || Instant::now() >= until {
            return answer;
        }
    }
}

/// Whether the group has a member with this static name. Members of other names begin with it too.
/// (In the new protocol the brokers show none, and refuse a second member by themselves.)
pub(crate) fn is_name_taken(consumer: &Consumer, group: &str, name: &str) -> KafkaResult<bool> {
    let groups = consumer.fetch_group_list(Some(group), ASKED_FOR)?;
    let mut members = groups.groups().iter().flat_map(|group| group.members());
    // The broker makes the id of a static member of its name and a UUID.
    Ok(members.any(|member| {
        let id = member.id().strip_prefix(name);
        id.is_some_and(|rest| rest.len() == "-".len() + UUID_CHARS)
    }))
}

/// Serves the group until the session ends, then leaves it.
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
    let since = Instant::now();
    wait_until_joined(&consumer, since);
    // Do it also if a function of the user keeps a queue longer: the group does not wait for that.
    consumer.unsubscribe();
    while Arc::strong_count(&consumer) > 1 && since.elapsed() < LET_GO {
        // A rebalance in progress goes on.
        drop(consumer.poll(Duration::from_millis(5)));
    }
}

/// Waits until a member that is joining has joined. It cannot leave before: the client does not
/// know its member id yet, or the broker hears nothing before it has answered the join. The group
/// would wait for it as for a silent member.
fn wait_until_joined(consumer: &Consumer, since: Instant) {
    let context = consumer.context();
    let before = context.joining().seen;
    while !context.has_joined() {
        let joining = context.joining();
        let (is_known, waited) = (joining.seen > before, since.elapsed());
        let is_over = match is_known {
            true => !joining.is_under_way || waited > LET_GO,
            false => waited > SAYS_WITHIN,
        };
        if is_over {
            return;
        }
        drop(consumer.poll(Duration::from_millis(5)));
    }
}

fn report(consumer: &Consumer, error: &KafkaError) {
    use RDKafkaErrorCode as Code;
    let tell = |news| consumer.context().tell(news);
    if let Some((code, why)) = consumer.client().fatal_error() {
        return match code {
            code if is_name_conflict(code) => tell(News::NameTaken),
            _ => tell(News::Failed(format!("{error}: {why}"))),
        };
    }
    match error.rdkafka_error_code() {
        Some(code) if is_about_topic(code) => tell(News::Unavailable),
        Some(Code::GroupAuthorizationFailed | Code::ClusterAuthorizationFailed) => {
            tell(News::Refused(consumer.context().not_authorized(error)))
        }
        Some(Code::SaslAuthenticationFailed | Code::Authentication) => {
            tell(News::Failed(error.to_string()));
        }
        // The client recovers from it. The context has logged it, with the reason.
        _ => tracing::debug!(target: "keylane", %error, "the Kafka client reports an error"),
    }
}
