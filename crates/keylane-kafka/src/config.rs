//! The settings of a source, and their checks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use keylane_connector::ConfigError;
use keylane_source::frontier::Limits;
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult};

use crate::core::{CommitLimits, MetadataFull, OnOvertaken, StartAt};
use crate::error::{KafkaSourceError, no_brokers, of_client, refused};
use crate::explain::has_tls;
use crate::letters::DeadLetterTopic;
use crate::link::{REFUSALS, Silent};
use crate::log::Errors;
use crate::metadata::MOST_CHARS;
use crate::producer::Producer;
use crate::record::Keyless;

/// Properties of the client that only the source may set, each with the reason.
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
        "it commits records before they are handled",
    ),
    (
        "auto.commit.interval.ms",
        "nothing is committed automatically: use `commit_every`",
    ),
    (
        "enable.auto.offset.store",
        "it stores offsets before the records are handled",
    ),
    ("auto.offset.reset", "use `start_at` and `on_overtaken`"),
    (
        "enable.partition.eof",
        "the end of a partition is not a record",
    ),
];

/// Default properties of the client. Records wait in the broker and not in the memory of this
/// process: if handlers are slower than the network, a larger buffer only holds records that a
/// rebalance drops.
const DEFAULTS: [(&str, &str); 11] = [
    ("partition.assignment.strategy", "cooperative-sticky"),
    ("queued.min.messages", "5000"),
    ("queued.max.messages.kbytes", "16384"),
    // How long the client fetches nothing after it has had enough. Its default of a second is a
    // pause of a second for each of the amounts above.
    ("fetch.queue.backoff.ms", "5"),
    // One request at a time is open at a broker. While it waits for records of empty partitions,
    // other partitions whose buffer here has run empty wait too.
    ("fetch.wait.max.ms", "20"),
    ("topic.metadata.refresh.interval.ms", "30000"),
    // The statistics say where the partitions end, without a request to their brokers.
    ("statistics.interval.ms", "1000"),
    ("client.id", "keylane"),
    KEEPALIVE,
    MAX_IDLE,
    SOCKET_TIMEOUT,
];

/// The new protocol refuses this property: the broker decides about the assignor.
const CLASSIC_ONLY: &str = "partition.assignment.strategy";

/// Builds a [`KafkaSource`](crate::KafkaSource). See
/// [`KafkaSource::builder`](crate::KafkaSource::builder).
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct KafkaSourceBuilder {
    brokers: String,
    pub(crate) group: String,
    topics: Vec<String>,
    patterns: Vec<String>,
    letters: Option<String>,
    properties: BTreeMap<String, String>,
    pub(crate) start_at: StartAt,
    pub(crate) on_overtaken: OnOvertaken,
    /// `None`: not chosen.
    pub(crate) keyless: Option<Keyless>,
    pub(crate) commit_every: Duration,
    pub(crate) commit_after: u64,
    pub(crate) commit_overdue: Duration,
    pub(crate) most_uncommitted: u64,
    pub(crate) metadata_full: MetadataFull,
    pub(crate) metadata_chars: usize,
    pub(crate) limits: Limits,
}

/// The settings of a builder, checked.
pub(crate) struct Config {
    topics: Vec<String>,
    patterns: Vec<String>,
    pub(crate) settings: KafkaSourceBuilder,
    /// The topic of the dead letters.
    pub(crate) letters: Option<DeadLetterTopic>,
    client: ClientConfig,
    /// What its clients have reported. A source without a broker makes one after the other.
    pub(crate) errors: Errors,
}

impl KafkaSourceBuilder {
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
            keyless: None,
            commit_every: Duration::from_millis(100),
            commit_after: 10_000,
            commit_overdue: Duration::from_millis(200),
            most_uncommitted: 50_000,
            metadata_full: MetadataFull::default(),
            metadata_chars: MOST_CHARS,
            limits: Limits::default(),
        }
    }

    /// Reads this topic, in addition to others. The topic may be created later. Until then it is in
    /// [`IntakeStats::failed_parts`](keylane::consume::IntakeStats::failed_parts), and the source
    /// reads the others.
    pub fn topic(mut self, name: impl Into<String>) -> Self {
        self.topics.push(name.into());
        self
    }

    /// Reads all topics whose whole name matches this regular expression, also topics that are
    /// created later: `orders|refunds` matches these two, and neither `orders.dead` nor
    /// `my-refunds`.
    ///
    /// In the classic group protocol it is an extended expression of POSIX, in the new one an
    /// expression of RE2 as well: there the brokers search, and the client does not report it if
    /// they refuse the expression. Then the source has no partition, as if no topic matched. A
    /// pattern matches no topic whose name begins with `__`: those are Kafka's own, such as the one
    /// for committed offsets. Name such a topic with [`topic`](Self::topic).
    pub fn pattern(mut self, pattern: impl Into<String>) -> Self {
        self.patterns.push(pattern.into());
        self
    }

    /// Sets a property of the client. librdkafka's `CONFIGURATION.md` lists the names.
    /// [`build`](Self::build) refuses properties that break a guarantee of this crate.
    ///
    /// A later value of the same name replaces an earlier one. `Debug` shows no values, since
    /// passwords are among them.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(name.into(), value.into());
        self
    }

    /// Sets where the group begins; [`StartAt::Earliest`] by default.
    pub fn start_at(mut self, start_at: StartAt) -> Self {
        self.start_at = start_at;
        self
    }

    /// Sets what happens when records were deleted before they were handled;
    /// [`OnOvertaken::Earliest`] by default.
    pub fn on_overtaken(mut self, on_overtaken: OnOvertaken) -> Self {
        self.on_overtaken = on_overtaken;
        self
    }

    /// Sets the order in which records without a key are handled; [`Keyless::Unordered`] by
    /// default. Without this call the source warns of the first such record.
    pub fn keyless(mut self, keyless: Keyless) -> Self {
        self.keyless = Some(keyless);
        self
    }

    /// Joins the group as a static member with this name. It keeps its partitions if it comes back
    /// within `session.timeout.ms`, so a restart is no rebalance. A static member does not leave
    /// the group when it stops; otherwise it would lose its partitions.
    ///
    /// Give each process a name of its own. If two have the same, one of them fails with
    /// [`NameTaken`](crate::KafkaSourceError::NameTaken) and waits until the name is free: in the
    /// classic protocol the one that joined first, in the new one the other.
    pub fn static_member(mut self, name: impl Into<String>) -> Self {
        self.properties
            .insert(STATIC_MEMBER.to_owned(), name.into());
        self
    }

    /// Sets the interval of commits while records settle; 100 milliseconds by default. One commit
    /// is in progress at a time, so commits are less frequent if the broker takes longer.
    pub fn commit_every(mut self, interval: Duration) -> Self {
        self.commit_every = interval;
        self
    }

    /// Commits as soon as this many records have settled since the last commit; 10,000 by default.
    pub fn commit_after(mut self, records: u64) -> Self {
        self.commit_after = records;
        self
    }

    /// Limits the records that have settled and are not committed; 50,000 by default. They are
    /// handled again if this process dies. At the limit the source hands over no more records until
    /// a commit is taken.
    pub fn most_uncommitted(mut self, records: u64) -> Self {
        self.most_uncommitted = records;
        self
    }

    /// Limits how long a commit may be overdue, counted from [`commit_every`](Self::commit_every)
    /// on; 200 milliseconds by default. Then the source hands over no more records until a commit
    /// is taken. So it does not run far ahead while the brokers take none: they are away, or a
    /// rebalance waits for a member that has died. `Duration::MAX` sets no limit.
    pub fn commit_overdue(mut self, limit: Duration) -> Self {
        self.commit_overdue = limit;
        self
    }

    /// Sets what happens when the metadata of a commit has no room for all offsets that are done
    /// beyond the committed one; [`MetadataFull::Repeat`] by default.
    pub fn metadata_full(mut self, metadata_full: MetadataFull) -> Self {
        self.metadata_full = metadata_full;
        self
    }

    /// Limits the metadata of a commit, in characters; 4,096 by default, as in the broker's
    /// `offset.metadata.max.bytes`. If the broker accepts less, the source sends less. With 0 there
    /// is no metadata, and the next owner of a partition handles again what is done beyond the
    /// committed offset.
    pub fn metadata_chars(mut self, most: usize) -> Self {
        self.metadata_chars = most;
        self
    }

    /// Limits how far a partition may go ahead of its first record that has not settled; 1,000,000
    /// open records and 2^24 offsets by default.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Writes dead letters to this topic, if the dispatcher is built with
    /// [`OnExhausted::AtSource`](keylane::OnExhausted::AtSource). [`DeadLetterTopic`] describes the
    /// letters.
    ///
    /// The source reads the record again from the log. A producer with the connection properties of
    /// this client writes it to the topic. The record is committed when the letter is written. A
    /// pattern that matches the topic of the letters does not read it. The topic must exist, unless
    /// the brokers create topics on the first write. If it does not exist, there is a warning in
    /// the log when the source opens, and keys with a letter wait.
    pub fn dead_letters(mut self, topic: impl Into<String>) -> Self {
        self.letters = Some(topic.into());
        self
    }

    pub(crate) fn commit_limits(&self) -> CommitLimits {
        CommitLimits {
            records: self.most_uncommitted,
            time: self.commit_every.saturating_add(self.commit_overdue),
        }
    }

    pub(crate) fn check(mut self) -> Result<Arc<Config>, ConfigError> {
        let is_blank = |text: &String| text.trim().is_empty();
        if is_blank(&self.brokers) {
            return Err(no_brokers());
        }
        if is_blank(&self.group) {
            return Err(ConfigError::new(
                "group",
                "is empty: give the name that the consumers of this topic share",
            ));
        }
        let mut named = self.topics.iter().chain(&self.patterns).peekable();
        if named.peek().is_none() || named.any(is_blank) {
            return Err(ConfigError::new(
                "topic",
                "is missing or empty: use `topic` or `pattern`",
            ));
        }
        for pattern in &self.patterns {
            check_pattern(pattern)?;
        }
        if self.commit_every.is_zero() {
            return Err(ConfigError::zero("commit_every"));
        }
        for (setting, value) in [
            ("commit_after", self.commit_after),
            ("most_uncommitted", self.most_uncommitted),
        ] {
            if value == 0 {
                return Err(ConfigError::zero(setting));
            }
        }
        if let Some(letters) = &self.letters
            && (is_blank(letters) || self.topics.contains(letters))
        {
            return Err(ConfigError::new(
                "dead_letters",
                "needs a topic of its own: set it to one that is not read",
            ));
        }
        for none in self.ignored() {
            let ignored = self.properties.entry(IGNORED.to_owned()).or_default();
            *ignored = match ignored.is_empty() {
                true => none,
                false => format!("{ignored},{none}"),
            };
        }
        for (name, why) in REFUSED {
            // A property may state what is true anyway.
            let is_so = |value: &String| name.starts_with("enable.") && value == "false";
            if self.properties.get(name).is_some_and(|value| !is_so(value)) {
                return Err(refused(name, why));
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
                let why = format!("needs the feature `{feature}` of keylane-kafka");
                return Err(ConfigError::new(mechanism.clone(), why));
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
            // If the offset is not in the log any more, this crate decides: see `core/start.rs`.
            .set("auto.offset.reset", "earliest");
        // Sets names and values one by one.
        client
            .create_native_config()
            .map_err(|error| of_client(&error))?;
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
            errors: Errors::default(),
        }))
    }

    /// Returns the topics that the client must not see, as expressions.
    fn ignored(&self) -> Vec<String> {
        // A letter that fails would become a letter again, for ever.
        let letters = self.letters.as_deref();
        let letters = letters.map(|letters| format!("^{}$", escaped(letters)));
        // The expression would hide the named ones too.
        let hides_named = self.topics.iter().any(|topic| is_internal(topic));
        let internal = (!hides_named).then(|| format!("^{INTERNAL}"));
        letters.into_iter().chain(internal).collect()
    }

    /// Returns the properties that all clients share.
    fn about_connection(&self) -> impl Iterator<Item = (&String, &String)> {
        self.properties
            .iter()
            .filter(|(name, _)| CONNECTION.iter().any(|start| name.starts_with(start)))
    }

    fn letters_in(&self, topic: &str) -> Result<DeadLetterTopic, ConfigError> {
        let producer = self
            .about_connection()
            .fold(
                Producer::builder(&self.brokers),
                |producer, (name, value)| producer.property(name, value),
            )
            .property("linger.ms", "0")
            // The topic limits the size of a letter. Otherwise the client would refuse, for ever,
            // letters that brokers accept by default.
            .property("message.max.bytes", MOST_BYTES)
            .build()?;
        Ok(DeadLetterTopic::new(producer, topic).group(&self.group))
    }
}

/// A peer that vanishes without a word is noticed also on a connection that only waits.
pub(crate) const KEEPALIVE: (&str, &str) = ("socket.keepalive.enable", "true");

/// The client closes an idle connection before a gateway forgets it: some do after four minutes,
/// and the next request would wait for its timeout.
pub(crate) const MAX_IDLE: (&str, &str) = ("connections.max.idle.ms", "180000");

/// A request that has no answer by then ends its connection: a broker stands still, or the network
/// forgets connections. The client's own default of a minute is how long a source would stand still
/// with it. Requests that wait in the broker, to join a group, have longer limits of their own.
const SOCKET_TIMEOUT: (&str, &str) = ("socket.timeout.ms", "15000");

/// Prefixes of the properties that all clients share.
const CONNECTION: [&str; 9] = [
    "security.",
    "ssl.",
    "enable.ssl.",
    "sasl.",
    "enable.sasl.",
    "socket.",
    "broker.",
    "client.",
    "connections.",
];

/// The largest record that the client can be configured to write.
const MOST_BYTES: &str = "1000000000";

/// The property with the topics that the client ignores.
const IGNORED: &str = "topic.blacklist";

/// The prefix of Kafka's own topics.
const INTERNAL: &str = "__";

fn is_internal(topic: &str) -> bool {
    topic.starts_with(INTERNAL)
}

/// Returns an expression that matches whole names. The client treats a name that begins with `^` as
/// an expression, and searches for a match anywhere in a name.
fn whole(pattern: &str) -> String {
    format!("^({pattern})$")
}

/// Checks that the pattern is an expression, by itself and with the text that [`whole`] adds: some
/// are only one of them.
fn check_pattern(pattern: &str) -> Result<(), ConfigError> {
    let checked = check_expression(format!("^{pattern}"));
    let checked = checked.and_then(|()| check_expression(whole(pattern)));
    checked.map_err(|error| {
        let why = match error {
            KafkaError::ClientConfig(_, why, _, _) => why,
            _ => "the client refuses it".to_owned(),
        };
        ConfigError::new(
            "pattern",
            format!("`{pattern}` is not a regular expression: {why}"),
        )
    })
}

fn check_expression(expression: String) -> KafkaResult<()> {
    let mut client = ClientConfig::new();
    // The client reads a list here, with commas between the expressions. So it checks an expression
    // with a comma only when a consumer subscribes to it: this one, which has no brokers.
    match expression.contains(',') {
        false => {
            client.set(IGNORED, expression);
            client.create_native_config().map(drop)
        }
        true => {
            client.set("group.id", "none");
            let consumer: BaseConsumer<Silent> =
                client.create_with_context(Silent::new(&client))?;
            consumer.subscribe(&[&expression])
        }
    }
}

/// Returns a topic as a regular expression. Of the characters that a name may have, only the dot
/// has another meaning there.
fn escaped(topic: &str) -> String {
    topic.replace('.', "\\.")
}

const STATIC_MEMBER: &str = "group.instance.id";

impl Config {
    /// Returns the properties of the member of the group.
    pub(crate) fn member(&self) -> ClientConfig {
        self.client.clone()
    }

    /// Returns the properties of the client that asks for the settings of topics.
    pub(crate) fn admin(&self) -> ClientConfig {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", self.brokers());
        for (name, value) in self.settings.about_connection() {
            client.set(name, value);
        }
        client
    }

    /// Whether connections have TLS.
    pub(crate) fn has_tls(&self) -> bool {
        has_tls(|name| self.property(name))
    }

    /// Returns a property of the client.
    pub(crate) fn property(&self, name: &str) -> Option<&str> {
        self.client.get(name)
    }

    /// Whether to show a log line of the client at this level.
    pub(crate) fn logs(&self, level: RDKafkaLogLevel) -> bool {
        // The client writes these lines for the source alone; the user did not ask for them.
        let is_debug = matches!(level, RDKafkaLogLevel::Debug);
        let is_asked_for = !is_debug || self.client.get("debug").is_some();
        is_asked_for && level as i32 <= self.client.log_level as i32
    }

    /// Returns the properties of the consumer that reads single records again. It joins no group,
    /// but has the group's name: without one the client assigns no partitions.
    pub(crate) fn reader(&self) -> ClientConfig {
        let mut client = self.client.clone();
        for name in [STATIC_MEMBER, "group.protocol", "group.remote.assignor"] {
            client.remove(name);
        }
        client
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "earliest")
            .set("statistics.interval.ms", "0")
            // Otherwise the next read would wait behind a request that waits for the end of the
            // log.
            .set("fetch.wait.max.ms", "1")
            .set("queued.min.messages", "1000")
            .set("queued.max.messages.kbytes", "1024");
        client
    }

    /// Whether the source reads records of open or aborted transactions.
    pub(crate) fn reads_uncommitted(&self) -> bool {
        self.client.get("isolation.level") == Some("read_uncommitted")
    }

    /// Returns the name of this process as a static member.
    pub(crate) fn static_member(&self) -> Option<&str> {
        self.client
            .get(STATIC_MEMBER)
            .filter(|name| !name.is_empty())
    }

    pub(crate) fn name(&self) -> String {
        let group = &self.settings.group;
        format!("kafka {group} {}", self.read())
    }

    /// Returns the error for a user that may not read this topic, or not be in the group.
    pub(crate) fn not_authorized(&self, topic: &str, why: String) -> KafkaSourceError {
        KafkaSourceError::NotAuthorized {
            topic: topic.to_owned(),
            group: self.settings.group.clone(),
            why,
        }
    }

    /// Returns why a partition cannot be read, with the right that is missing if it is that.
    pub(crate) fn unread(&self, partition: &str, why: String) -> String {
        if !REFUSALS.iter().any(|code| why.contains(&code.to_string())) {
            return why;
        }
        let topic = partition
            .rsplit_once('/')
            .map_or(partition, |(topic, _)| topic);
        self.not_authorized(topic, why).to_string()
    }

    /// Returns the topics and the patterns that are read, with commas between them.
    pub(crate) fn read(&self) -> String {
        let read = self.topics.iter().chain(&self.patterns);
        Vec::from_iter(read.map(String::as_str)).join(",")
    }

    /// Returns the topics, unless a pattern finds some of them.
    pub(crate) fn names(&self) -> Option<&[String]> {
        self.names_all().then_some(self.named())
    }

    /// Returns the topics that are read by name.
    pub(crate) fn named(&self) -> &[String] {
        &self.topics
    }

    /// Whether no topic is found by a pattern.
    pub(crate) fn names_all(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Returns the subscription for the group.
    pub(crate) fn subscription(&self) -> Vec<String> {
        let patterns = self.patterns.iter().map(|pattern| whole(pattern));
        self.topics.iter().cloned().chain(patterns).collect()
    }

    /// Whether the source reads a topic that the group assigns. In the new protocol the brokers
    /// match the patterns, and do not know the topics that are ignored here.
    pub(crate) fn takes(&self, topic: &str) -> bool {
        let is_letters = |letters: &DeadLetterTopic| letters.name() == topic;
        self.topics.iter().any(|one| one == topic)
            || !(is_internal(topic) || self.letters.as_ref().is_some_and(is_letters))
    }

    pub(crate) fn brokers(&self) -> &str {
        &self.settings.brokers
    }
}

impl fmt::Debug for KafkaSourceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let properties: Vec<_> = self.properties.keys().collect();
        f.debug_struct("KafkaSourceBuilder")
            .field("brokers", &self.brokers)
            .field("group", &self.group)
            .field("topics", &self.topics)
            .field("patterns", &self.patterns)
            .field("properties", &properties)
            .finish_non_exhaustive()
    }
}
