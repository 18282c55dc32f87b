//! What a source is built with, and what it refuses.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use keylane_source::frontier::Limits;
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;

use crate::error::ConfigError;
use crate::letters::DeadLetterTopic;
use crate::metadata::MOST_CHARS;
use crate::partition::MetadataFull;
use crate::producer::Producer;
use crate::record::{Maker, Record};
use crate::source::KafkaSource;

/// Where a group begins: the partitions of which it has nothing committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartAt {
    /// At the first record of the log: nothing is left out.
    #[default]
    Earliest,
    /// At the end of the log: only what is produced from now on. The offset is committed at once,
    /// so that what comes before the first handled record is not left out after a restart.
    ///
    /// That is for the first start of a group, and for what is there then: while nothing at all is
    /// committed of the topics that it reads (of any topic, if it reads a
    /// [`pattern`](Builder::pattern)). Partitions and topics that come later, and topics that are
    /// added to a group that has begun, begin at their first record.
    Latest,
}

/// What happens when retention has overtaken what the group has committed of a partition: records
/// were deleted before they were handled.
///
/// A warning in the log says both numbers, and [`PartitionStatus`](crate::PartitionStatus) has
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnOvertaken {
    /// The partition goes on at the first record that is left: nothing more is left out.
    #[default]
    Earliest,
    /// The partition goes on at the end of its log: what is left is as old as what is gone.
    Latest,
    /// The partition is not read, and has [failed](crate::PartitionStatus), until the offset of the
    /// group is set to one that is there. The other partitions go on.
    Halt,
}

/// In which order records without a key are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keyless {
    /// They have no key and no order. A dispatcher must be built with
    /// [`key_by_opt`](keylane::Dispatcher::key_by_opt), or take its key from the payload.
    #[default]
    Unordered,
    /// They get the name of their partition as their key, as `topic/number`: they are handled in
    /// the order of their partition.
    ByPartition,
}

/// Properties of the client that a source sets itself, and why no one else may.
const REFUSED: [(&str, &str); 8] = [
    (
        "bootstrap.servers",
        "it is the first argument of the builder",
    ),
    (
        "metadata.broker.list",
        "it is the first argument of the builder",
    ),
    ("group.id", "it is the second argument of the builder"),
    (
        "enable.auto.commit",
        "it commits what was delivered, and not what was handled",
    ),
    (
        "auto.commit.interval.ms",
        "nothing is committed automatically: use `commit_every`",
    ),
    (
        "enable.auto.offset.store",
        "it stores what was delivered, and not what was handled",
    ),
    ("auto.offset.reset", "use `start_at` and `on_overtaken`"),
    (
        "enable.partition.eof",
        "the end of a partition is no record",
    ),
];

/// What the client is told unless a property says otherwise. Records wait in the broker, and not in
/// our memory: with handlers that are slower than the network everything beyond this is only there
/// to be thrown away at a rebalance.
const DEFAULTS: [(&str, &str); 8] = [
    ("partition.assignment.strategy", "cooperative-sticky"),
    ("queued.min.messages", "5000"),
    ("queued.max.messages.kbytes", "16384"),
    // How long the client asks for nothing after it had enough. A second, as it is by default, is a
    // pause of a second for each of the above.
    ("fetch.queue.backoff.ms", "5"),
    // One request at a time is on its way to a broker. While it waits for records of partitions
    // that have none, the others that have become empty here wait, too.
    ("fetch.wait.max.ms", "20"),
    ("topic.metadata.refresh.interval.ms", "30000"),
    // Says where the partitions end, without a question to their brokers.
    ("statistics.interval.ms", "1000"),
    ("client.id", "keylane"),
];

/// What the new protocol does not take: its assignor is a matter of the broker.
const CLASSIC_ONLY: &str = "partition.assignment.strategy";

/// How records are got from Kafka. See [`KafkaSource::builder`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct Builder {
    brokers: String,
    pub(crate) group: String,
    topics: Vec<String>,
    patterns: Vec<String>,
    letters: Option<String>,
    properties: BTreeMap<String, String>,
    pub(crate) start_at: StartAt,
    pub(crate) on_overtaken: OnOvertaken,
    pub(crate) keyless: Keyless,
    pub(crate) commit_every: Duration,
    pub(crate) commit_after: u64,
    pub(crate) metadata_full: MetadataFull,
    pub(crate) metadata_chars: usize,
    pub(crate) limits: Limits,
}

/// A builder whose settings go together.
pub(crate) struct Config {
    topics: Vec<String>,
    patterns: Vec<String>,
    pub(crate) settings: Builder,
    /// Where dead letters go.
    pub(crate) letters: Option<DeadLetterTopic>,
    client: ClientConfig,
}

impl Builder {
    pub(crate) fn new(brokers: impl Into<String>, group: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            group: group.into(),
            topics: Vec::new(),
            patterns: Vec::new(),
            letters: None,
            properties: BTreeMap::new(),
            start_at: StartAt::default(),
            on_overtaken: OnOvertaken::default(),
            keyless: Keyless::default(),
            commit_every: Duration::from_millis(100),
            commit_after: 10_000,
            metadata_full: MetadataFull::default(),
            metadata_chars: MOST_CHARS,
            limits: Limits::default(),
        }
    }

    /// Reads this topic, beside others that are named. It may appear later: until then there is a
    /// warning in the log, and nothing to handle.
    pub fn topic(mut self, name: impl Into<String>) -> Self {
        self.topics.push(name.into());
        self
    }

    /// Reads all topics whose whole names match this regular expression, also those that appear
    /// later: `orders|refunds` takes these two, and neither `orders.dead` nor `my-refunds`.
    ///
    /// In the classic protocol of groups it is an extended one of POSIX, and in the new one of RE2.
    /// A pattern takes no topic whose name begins with `__`: those are Kafka's own, such as the one
    /// in which it keeps what groups commit. Name such a topic with [`topic`](Self::topic).
    pub fn pattern(mut self, pattern: impl Into<String>) -> Self {
        self.patterns.push(pattern.into());
        self
    }

    /// Sets a property of the client: see librdkafka's `CONFIGURATION.md` for their names. Those
    /// that would break a guarantee of this crate are refused by [`build`](Self::build).
    ///
    /// A later value of the same name replaces an earlier one. Values are not shown by `Debug`,
    /// since there are passwords among them.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(name.into(), value.into());
        self
    }

    /// Where the group begins; [`StartAt::Earliest`] by default.
    pub fn start_at(mut self, start_at: StartAt) -> Self {
        self.start_at = start_at;
        self
    }

    /// What happens when records were deleted before they were handled; [`OnOvertaken::Earliest`]
    /// by default.
    pub fn on_overtaken(mut self, on_overtaken: OnOvertaken) -> Self {
        self.on_overtaken = on_overtaken;
        self
    }

    /// In which order records without a key are handled; [`Keyless::Unordered`] by default.
    pub fn keyless(mut self, keyless: Keyless) -> Self {
        self.keyless = keyless;
        self
    }

    /// Joins the group as this member, which keeps its partitions when it comes back within
    /// `session.timeout.ms`: a restart is then no rebalance. Two processes must not have the same
    /// name. Such a member does not leave the group when it stops; that is the point.
    pub fn static_member(mut self, name: impl Into<String>) -> Self {
        self.properties
            .insert(STATIC_MEMBER.to_owned(), name.into());
        self
    }

    /// Commits at least this often while something settles; every 100 milliseconds by default. One
    /// commit is on its way at a time, so it is less often if the broker takes longer.
    pub fn commit_every(mut self, interval: Duration) -> Self {
        self.commit_every = interval;
        self
    }

    /// Commits when so many records have settled since the last time; 10,000 by default.
    pub fn commit_after(mut self, records: u64) -> Self {
        self.commit_after = records;
        self
    }

    /// What happens when the metadata of a commit cannot hold all that is done beyond its offset;
    /// [`MetadataFull::Repeat`] by default.
    pub fn metadata_full(mut self, metadata_full: MetadataFull) -> Self {
        self.metadata_full = metadata_full;
        self
    }

    /// How long the metadata of a commit may be, in characters; 4,096 by default, as in the
    /// broker's `offset.metadata.max.bytes`. A broker that takes less is given less. With 0 there
    /// is none, and what is done beyond the committed offset is handled again by the next owner of
    /// a partition.
    pub fn metadata_chars(mut self, most: usize) -> Self {
        self.metadata_chars = most;
        self
    }

    /// How far a partition may go ahead of its first record that has not settled; 1,000,000 records
    /// that are open and 2^24 offsets by default.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Keeps dead letters in this topic: those of a dispatcher that is built with
    /// [`OnExhausted::AtSource`](keylane::OnExhausted::AtSource). What a letter says is told at
    /// [`DeadLetterTopic`].
    ///
    /// The record is read from the log again, and written to the topic by a producer with the
    /// properties of this client that are about the connection. It is committed when the letter is
    /// there. A pattern that fits the topic of the letters does not take it. The topic must exist,
    /// unless the brokers make topics that are written to; if it does not, there is a warning in
    /// the log when the source is opened, and keys that have a letter wait.
    pub fn dead_letters(mut self, topic: impl Into<String>) -> Self {
        self.letters = Some(topic.into());
        self
    }

    /// Checks the settings. Nothing is connected before the source is consumed.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], if something is missing, or refused, or the client does not know it.
    pub fn build(self) -> Result<KafkaSource, ConfigError> {
        let maker = Maker::raw(self.keyless);
        Ok(KafkaSource::new(self.check()?, maker))
    }

    /// Checks the settings, as [`build`](Self::build) does. The source hands over what this
    /// function makes of each record. It sees the record where the client has it, so that what is
    /// not needed is not copied.
    ///
    /// There is no place for an error: let the message say that it cannot be decoded, and have its
    /// handler fail. So its key waits for it as for any other, and its dead letter is the record as
    /// it is in the log. [`decode`](keylane::source::Source::decode) does that by itself, with
    /// copies.
    ///
    /// # Panics
    ///
    /// The function must not panic. If it does, the source is opened again, and comes to the same
    /// record.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], as `build`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use keylane::error::BoxError;
    /// use keylane::{Dispatcher, OnExhausted};
    /// use keylane_kafka::{KafkaSource, Record};
    ///
    /// #[derive(Clone)]
    /// struct Booking {
    ///     account: u64,
    ///     /// `None`: the payload is no amount.
    ///     cents: Option<u64>,
    /// }
    ///
    /// impl Booking {
    ///     fn of(record: &Record<'_>) -> Self {
    ///         let number = |bytes: &[u8]| Some(u64::from_be_bytes(bytes.try_into().ok()?));
    ///         Self {
    ///             account: record.key().and_then(number).unwrap_or_default(),
    ///             cents: record.payload().and_then(number),
    ///         }
    ///     }
    /// }
    ///
    /// async fn book(booking: Booking) -> Result<(), &'static str> {
    ///     let cents = booking.cents.ok_or("no amount")?;
    ///     println!("{}: {cents}", booking.account);
    ///     Ok(())
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), BoxError> {
    /// let source = KafkaSource::builder("localhost:9092", "ledger")
    ///     .topic("bookings")
    ///     .dead_letters("bookings.dead")
    ///     .build_with(Booking::of)?;
    /// let accounts = Dispatcher::builder(|booking: &Booking| booking.account)
    ///     .on_exhausted(OnExhausted::AtSource)
    ///     .spawn(book)?;
    /// let intake = accounts.consume(source)?;
    /// # drop(intake);
    /// # Ok(())
    /// # }
    /// ```
    pub fn build_with<M>(
        self,
        make: impl Fn(&Record<'_>) -> M + Send + Sync + 'static,
    ) -> Result<KafkaSource<M>, ConfigError> {
        let maker = Maker::by(make, self.keyless);
        Ok(KafkaSource::new(self.check()?, maker))
    }

    pub(crate) fn check(mut self) -> Result<Arc<Config>, ConfigError> {
        let is_blank = |text: &String| text.trim().is_empty();
        if is_blank(&self.brokers) {
            return Err(ConfigError::NoBrokers);
        }
        if is_blank(&self.group) {
            return Err(ConfigError::NoGroup);
        }
        let mut named = self.topics.iter().chain(&self.patterns).peekable();
        if named.peek().is_none() || named.any(is_blank) {
            return Err(ConfigError::NoTopic);
        }
        for pattern in &self.patterns {
            check_pattern(pattern)?;
        }
        if self.commit_every.is_zero() || self.commit_after == 0 {
            return Err(ConfigError::NeverCommits);
        }
        if let Some(letters) = &self.letters
            && (is_blank(letters) || self.topics.contains(letters))
        {
            return Err(ConfigError::Letters);
        }
        for none in self.ignored() {
            let ignored = self.properties.entry(IGNORED.to_owned()).or_default();
            *ignored = match ignored.is_empty() {
                true => none,
                false => format!("{ignored},{none}"),
            };
        }
        for (name, why) in REFUSED {
            // What is so anyway may be said.
            let is_so = |value: &String| name.starts_with("enable.") && value == "false";
            if self.properties.get(name).is_some_and(|value| !is_so(value)) {
                let name = name.to_owned();
                return Err(ConfigError::Refused { name, why });
            }
        }
        let mechanism = ["sasl.mechanism", "sasl.mechanisms"];
        let mechanism = mechanism.map(|name| self.properties.get(name));
        for mechanism in mechanism.into_iter().flatten() {
            let of = |start: &str| mechanism.to_ascii_uppercase().starts_with(start);
            let needs = match () {
                () if of("SCRAM") || of("OAUTH") => (cfg!(feature = "tls"), "tls"),
                () if of("GSSAPI") => (cfg!(feature = "gssapi"), "gssapi"),
                () => continue,
            };
            if let (false, feature) = needs {
                return Err(ConfigError::Feature {
                    what: mechanism.clone(),
                    feature,
                });
            }
        }
        let is_new_protocol = self
            .properties
            .get("group.protocol")
            .is_some_and(|protocol| protocol.eq_ignore_ascii_case("consumer"));
        for (name, value) in DEFAULTS {
            if !(is_new_protocol && name == CLASSIC_ONLY) {
                let entry = self.properties.entry(name.to_owned());
                entry.or_insert_with(|| value.to_owned());
            }
        }
        let mut client = ClientConfig::new();
        for (name, value) in &self.properties {
            client.set(name, value);
        }
        client
            .set("bootstrap.servers", &self.brokers)
            .set("group.id", &self.group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("enable.partition.eof", "false")
            // What is not in the log any more is decided here: see `start.rs`.
            .set("auto.offset.reset", "earliest");
        // The names and values, one by one.
        client
            .create_native_config()
            .map_err(|error| ConfigError::client(&error))?;
        let letters = match &self.letters {
            Some(letters) => Some(self.letters_in(letters)?),
            None => None,
        };
        Ok(Arc::new(Config {
            topics: std::mem::take(&mut self.topics),
            patterns: std::mem::take(&mut self.patterns),
            settings: self,
            letters,
            client,
        }))
    }

    /// What the client is not to see, as expressions.
    fn ignored(&self) -> Vec<String> {
        // A letter that fails would be a letter again, for ever.
        let letters = self.letters.as_deref();
        let letters = letters.map(|letters| format!("^{}$", escaped(letters)));
        // It would hide those that are named, too.
        let hides_named = self.topics.iter().any(|topic| is_internal(topic));
        let internal = (!hides_named).then(|| format!("^{INTERNAL}"));
        letters.into_iter().chain(internal).collect()
    }

    fn letters_in(&self, topic: &str) -> Result<DeadLetterTopic, ConfigError> {
        let about_connection = self
            .properties
            .iter()
            .filter(|(name, _)| CONNECTION.iter().any(|start| name.starts_with(start)));
        let producer = about_connection
            .fold(
                Producer::builder(&self.brokers),
                |producer, (name, value)| producer.property(name, value),
            )
            .property("linger.ms", "0")
            // Their topic says how large a letter may be. The client would refuse, for ever, what
            // brokers take by default.
            .property("message.max.bytes", MOST_BYTES)
            .build()?;
        Ok(DeadLetterTopic::new(producer, topic).group(&self.group))
    }
}

/// Properties that a producer has as well begin with one of these.
const CONNECTION: [&str; 8] = [
    "security.",
    "ssl.",
    "enable.ssl.",
    "sasl.",
    "enable.sasl.",
    "socket.",
    "broker.",
    "client.",
];

/// The largest record that the client can be told to write.
const MOST_BYTES: &str = "1000000000";

/// Topics that are as if they were not there.
const IGNORED: &str = "topic.blacklist";

/// How the names of Kafka's own topics begin.
const INTERNAL: &str = "__";

fn is_internal(topic: &str) -> bool {
    topic.starts_with(INTERNAL)
}

/// An expression of whole names. The client searches, and takes what begins so for an expression.
fn whole(pattern: &str) -> String {
    format!("^({pattern})$")
}

/// Whether it is an expression by itself: together with what [`whole`] puts around it, others are.
fn check_pattern(pattern: &str) -> Result<(), ConfigError> {
    // The client reads a list there, with commas between them: one that has a comma is looked at
    // when the group is joined.
    if pattern.contains(',') {
        return Ok(());
    }
    let mut client = ClientConfig::new();
    client.set(IGNORED, format!("^{pattern}"));
    let refused = |error| ConfigError::Pattern {
        pattern: pattern.to_owned(),
        why: match error {
            KafkaError::ClientConfig(_, why, _, _) => why,
            other => other.to_string(),
        },
    };
    client.create_native_config().map_err(refused).map(drop)
}

/// A topic as a regular expression. Of the characters that a name may have only the dot means
/// something else there.
fn escaped(topic: &str) -> String {
    topic.replace('.', "\\.")
}

const STATIC_MEMBER: &str = "group.instance.id";

impl Config {
    /// The properties of the member of the group.
    pub(crate) fn member(&self) -> ClientConfig {
        self.client.clone()
    }

    /// Whether a line of this level is to be seen that the client logs.
    pub(crate) fn logs(&self, level: RDKafkaLogLevel) -> bool {
        // What it says for the source alone was not asked for.
        let is_debug = matches!(level, RDKafkaLogLevel::Debug);
        let is_asked_for = !is_debug || self.client.get("debug").is_some();
        is_asked_for && level as i32 <= self.client.log_level as i32
    }

    /// The properties of the consumer that reads single records again. It joins no group, although
    /// it has its name: without one the client assigns no partitions.
    pub(crate) fn reader(&self) -> ClientConfig {
        let mut client = self.client.clone();
        for name in [STATIC_MEMBER, "group.protocol", "group.remote.assignor"] {
            client.remove(name);
        }
        client
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "earliest")
            .set("statistics.interval.ms", "0")
            // What has to be read next waits behind a request that waits for the end of the log.
            .set("fetch.wait.max.ms", "1")
            .set("queued.min.messages", "1000")
            .set("queued.max.messages.kbytes", "1024");
        client
    }

    /// Whether records are seen whose transactions are open or aborted.
    pub(crate) fn reads_uncommitted(&self) -> bool {
        self.client.get("isolation.level") == Some("read_uncommitted")
    }

    pub(crate) fn name(&self) -> String {
        let group = &self.settings.group;
        let read = self.topics.iter().chain(&self.patterns);
        let read: Vec<_> = read.map(String::as_str).collect();
        format!("kafka {group} {}", read.join(","))
    }

    /// The topics that are read, unless some are found by a pattern.
    pub(crate) fn names(&self) -> Option<&[String]> {
        self.names_all().then_some(self.named())
    }

    /// The topics that are read by their names.
    pub(crate) fn named(&self) -> &[String] {
        &self.topics
    }

    /// Whether none is found by a pattern.
    pub(crate) fn names_all(&self) -> bool {
        self.patterns.is_empty()
    }

    /// What the group is told.
    pub(crate) fn subscription(&self) -> Vec<String> {
        let patterns = self.patterns.iter().map(|pattern| whole(pattern));
        self.topics.iter().cloned().chain(patterns).collect()
    }

    /// Whether a topic is read that the group gives. With the new protocol the brokers look for
    /// those that match, and know nothing of what is ignored here.
    pub(crate) fn takes(&self, topic: &str) -> bool {
        let is_letters = |letters: &DeadLetterTopic| letters.name() == topic;
        self.topics.iter().any(|one| one == topic)
            || !(is_internal(topic) || self.letters.as_ref().is_some_and(is_letters))
    }

    pub(crate) fn brokers(&self) -> &str {
        &self.settings.brokers
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let properties: Vec<_> = self.properties.keys().collect();
        f.debug_struct("Builder")
            .field("brokers", &self.brokers)
            .field("group", &self.group)
            .field("topics", &self.topics)
            .field("patterns", &self.patterns)
            .field("properties", &properties)
            .finish_non_exhaustive()
    }
}
