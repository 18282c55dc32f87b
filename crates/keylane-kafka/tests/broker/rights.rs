//! Users without all rights of a source or a redrive: the errors name the missing right.

use std::sync::Arc;
use std::time::Duration;

use keylane::OnExhausted;
use keylane::consume::{Intake, IntakeSettings, IntakeState};
use keylane::source::RawMessage;
use keylane_kafka::{
    KafkaLetters, KafkaLettersError, KafkaSource, KafkaSourceBuilder, Producer, Redrive,
    RedriveError, SendError,
};
use keylane_testkit::scenario::{boxed, by_key};
use testkit_servers::Kafka;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::loudness::logged;
use crate::stage::{message, until};
use crate::support::{PATIENCE, Topic, show_log};

const PASSWORD: &str = "not-a-secret";

const RECORDS: u64 = 10;

/// The rights of users on all topics, or on all groups. Reading a topic, or being a member of a
/// group, needs `Read`; `Describe` is less.
const RIGHTS: [(&str, &str, &[&str]); 4] = [
    ("Read", "--topic", &["reader", "watcher", "billing"]),
    ("Read", "--group", &["member", "onlooker", "billing"]),
    ("Describe", "--topic", &["onlooker"]),
    ("Describe", "--group", &["watcher"]),
];

/// The users without enough rights, and the message of the broker to them.
const REFUSED: [(&str, &str); 4] = [
    ("reader", "GroupAuthorizationFailed"),
    ("watcher", "GroupAuthorizationFailed"),
    ("member", "TopicAuthorizationFailed"),
    ("onlooker", "TopicAuthorizationFailed"),
];

static GUARDED: OnceCell<Arc<Kafka>> = OnceCell::const_new();

/// A broker that authenticates the clients of its proxy. All other clients have all rights.
async fn guarded() -> Arc<Kafka> {
    Arc::clone(GUARDED.get_or_init(start).await)
}

async fn start() -> Arc<Kafka> {
    let refused = REFUSED.map(|(user, _)| user);
    let users = refused.iter().chain(&["billing", "narrow"]);
    let users: String = users
        .map(|user| format!(" user_{user}=\"{PASSWORD}\""))
        .collect();
    let module = "org.apache.kafka.common.security.plain.PlainLoginModule";
    let of = |name: &str| format!("listener.name.proxied.{name}");
    let kafka = Kafka::builder()
        .property(
            "listener.security.protocol.map",
            "DIRECT:PLAINTEXT,PROXIED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        )
        .property(of("sasl.enabled.mechanisms"), "PLAIN")
        .property(
            of("plain.sasl.jaas.config"),
            format!("{module} required{users};"),
        )
        .property(
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        )
        .property("super.users", "User:ANONYMOUS")
        .property("allow.everyone.if.no.acl.found", "false");
    let kafka = kafka.start().await.expect("a broker");
    for (operation, kind, users) in RIGHTS {
        allow(&kafka, operation, users, &[(kind, "*")]).await;
    }
    Arc::new(kafka)
}

/// Gives these users a right on topics or groups.
async fn allow(kafka: &Kafka, operation: &str, users: &[&str], of: &[(&str, &str)]) {
    let at = kafka.bootstrap();
    let args = ["--bootstrap-server", &at, "--add", "--operation", operation];
    let mut args = args.map(str::to_owned).to_vec();
    for user in users {
        args.extend(["--allow-principal".to_owned(), format!("User:{user}")]);
    }
    for (kind, name) in of {
        args.extend([kind, name].map(|arg| (*arg).to_owned()));
    }
    let tool = "org.apache.kafka.tools.AclCommand";
    let tool = match kafka.tool(tool, args.clone(), "").await {
        Ok(_) => return,
        Err(_) => "kafka.admin.AclCommand",
    };
    kafka.tool(tool, args, "").await.expect("a right");
}

async fn publish(topic: &Topic) {
    let messages = (0..RECORDS).map(|id| message(id, id));
    topic.produce(messages.collect()).await;
}

fn credentials(user: &str) -> [(&'static str, String); 4] {
    [
        ("security.protocol", "sasl_plaintext".to_owned()),
        ("sasl.mechanism", "PLAIN".to_owned()),
        ("sasl.username", user.to_owned()),
        ("sasl.password", PASSWORD.to_owned()),
    ]
}

/// Reads a topic as this user, in a group of its own. Returns the group's name.
fn read_as(topic: &Topic, user: &str) -> (String, Intake) {
    let (group, builder) = builder_as(topic, user);
    (group, intake_of(builder))
}

fn builder_as(topic: &Topic, user: &str) -> (String, KafkaSourceBuilder) {
    let group = format!("{}-{user}", topic.group);
    let builder = KafkaSource::builder(topic.kafka.proxied(), &group)
        .topic(&topic.name)
        .property("topic.metadata.refresh.interval.ms", "1000");
    let credentials = credentials(user).into_iter();
    let builder = credentials.fold(builder, |builder, (name, value)| {
        builder.property(name, value)
    });
    (group, builder)
}

fn intake_of(builder: KafkaSourceBuilder) -> Intake {
    let consumer = by_key()
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(|_: RawMessage| async { Ok(()) }))
        .expect("a consumer");
    let settings = IntakeSettings::new().longest_pause(Duration::from_millis(500));
    let source = builder.build().expect("a source");
    let intake = consumer.consume_with(source, settings);
    intake.expect("an intake")
}

/// The redrive of a topic as this user.
fn redrive_as(topic: &Topic, user: &str, to: &Topic) -> Redrive {
    let producer = Producer::builder(topic.kafka.bootstrap()).build();
    let redrive = Redrive::new(
        topic.kafka.proxied(),
        &topic.name,
        producer.expect("a producer"),
    );
    let redrive = redrive.group(format!("{}-{user}", topic.group));
    let credentials = credentials(user).into_iter();
    let redrive = credentials.fold(redrive, |redrive, (name, value)| {
        redrive.property(name, value)
    });
    redrive.to(&to.name)
}

/// The letters in a topic as this user sees them.
fn kept_as(topic: &Topic, user: &str, to: &Topic) -> KafkaLetters {
    let producer = Producer::builder(topic.kafka.bootstrap()).build();
    let producer = producer.expect("a producer");
    let letters = KafkaLetters::new(topic.kafka.proxied(), &topic.name, producer);
    let letters = letters.group(format!("{}-{user}", topic.group));
    let credentials = credentials(user).into_iter();
    let letters = credentials.fold(letters, |letters, (name, value)| {
        letters.property(name, value)
    });
    letters.to(&to.name)
}

/// The source reports it, and goes on when the user has the right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_says_what_its_user_may_not_do() {
    show_log();
    let topic = Topic::new(guarded().await, 1).await;
    publish(&topic).await;
    let all = REFUSED.map(|(user, error)| (read_as(&topic, user), error));
    for (((group, intake), error), (user, _)) in all.iter().zip(REFUSED) {
        let mut refused = String::new();
        until(&format!("{group} is told {error}"), async || {
            let stats = intake.stats();
            // A user that may describe the topic, but not read it, is a member of its group.
            let is_member = user == "onlooker";
            refused = match is_member {
                true => stats.failed_parts.first().map(|failed| failed.why.clone()),
                false => stats.last_error,
            }
            .unwrap_or_default();
            let tries = stats.restarts >= 3 && stats.state == IntakeState::Opening;
            refused.contains(error) && (is_member || tries)
        })
        .await;
        assert_names(&refused, &topic, user, error);
        assert_eq!(intake.stats().received, 0, "{group}");
    }
    let users = REFUSED.map(|(user, _)| user);
    let groups = all
        .iter()
        .map(|((group, _), _)| ("--group", group.as_str()));
    let of: Vec<_> = groups.chain([("--topic", topic.name.as_str())]).collect();
    allow(&topic.kafka, "Read", &users, &of).await;
    for ((group, intake), _) in all {
        until(&format!("{group} reads"), async || {
            intake.stats().acked == RECORDS
        })
        .await;
        assert_eq!(intake.stop().await.acked, RECORDS);
    }
}

/// This holds for a topic that the user may not see, and for one that it may not read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_may_not_be_read_holds_up_no_other() {
    show_log();
    let topic = Topic::new(guarded().await, 1).await;
    let unseen = topic.beside(".unseen", &[]).await;
    let unread = topic.beside(".unread", &[]).await;
    for topic in [&topic, &unseen, &unread] {
        publish(topic).await;
    }
    let readers = ["narrow"];
    allow(
        &topic.kafka,
        "Read",
        &readers,
        &[("--group", "*"), ("--topic", &topic.name)],
    )
    .await;
    allow(
        &topic.kafka,
        "Describe",
        &readers,
        &[("--topic", &unread.name)],
    )
    .await;
    let builder = builder_as(&topic, "narrow").1;
    let intake = intake_of(builder.topic(&unseen.name).topic(&unread.name));
    let unread_part = format!("{}/0", unread.name);
    let parts = [&*unseen.name, &*unread_part];
    until("both have failed", async || {
        let failed = intake.stats().failed_parts;
        let is_refused = |part: &&str| {
            let mut failed = failed.iter();
            failed.any(|one| {
                let topic = part.trim_end_matches("/0");
                let right =
                    format!("needs `Read` permission for the topic `{topic}` and the group");
                one.part == **part
                    && one.why.contains(&right)
                    && one.why.contains("TopicAuthorizationFailed")
            })
        };
        parts.iter().all(is_refused)
    })
    .await;
    until("the other one is read", async || {
        intake.stats().acked == RECORDS
    })
    .await;
    publish(&topic).await;
    until("it is read on", async || {
        intake.stats().acked == 2 * RECORDS
    })
    .await;
    let stats = intake.stats();
    assert_eq!(
        (stats.state, stats.restarts),
        (IntakeState::Running, 0),
        "{stats:?}"
    );
    assert_eq!(stats.failed_parts.len(), 2, "{stats:?}");
    let of = [("--topic", &*unseen.name), ("--topic", &*unread.name)];
    allow(&topic.kafka, "Read", &readers, &of).await;
    until("all is read", async || intake.stats().acked == 4 * RECORDS).await;
    until("nothing fails", async || {
        intake.stats().failed_parts.is_empty()
    })
    .await;
    assert_eq!(intake.stop().await.restarts, 0);
}

/// Checks that an error names what the user may not do, and where.
fn assert_names(refused: &dyn std::fmt::Display, topic: &Topic, user: &str, error: &str) {
    let said = refused.to_string();
    let group = format!("{}-{user}", topic.group);
    for word in [error, "`Read`", &topic.name, &group] {
        assert!(said.contains(word), "{user}: {word} is not in: {said}");
    }
    assert_eq!(said.matches("`Read`").count(), 1, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redrive_ends_whose_user_may_not_read_or_commit() {
    show_log();
    let topic = Topic::new(guarded().await, 1).await;
    let to = topic.beside(".to", &[]).await;
    publish(&topic).await;
    for (user, error) in REFUSED {
        let ended = timeout(PATIENCE, redrive_as(&topic, user, &to).run()).await;
        let ended = ended.unwrap_or_else(|_| panic!("the redrive of {user} does not end"));
        let refused = ended.expect_err("it is refused");
        let RedriveError::NotAuthorized { redriven: 0, .. } = refused else {
            panic!("{user}: {refused}");
        };
        assert_names(&refused, &topic, user, error);
    }
    assert_eq!(to.records().await.len(), 0);
    let ended = redrive_as(&topic, "billing", &to).run().await;
    assert_eq!(ended.expect("a redrive").redriven, RECORDS);
}

/// Nothing is sent that could not be marked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_letters_say_what_their_user_may_not_do() {
    show_log();
    let topic = Topic::new(guarded().await, 1).await;
    let to = topic.beside(".to", &[]).await;
    publish(&topic).await;
    let first = ["0:0".parse().expect("an id")];
    for (user, error) in REFUSED {
        let acted = timeout(PATIENCE, kept_as(&topic, user, &to).redrive(&first)).await;
        let acted = acted.unwrap_or_else(|_| panic!("the redrive of {user} does not end"));
        let refused = acted.expect_err("it is refused");
        let KafkaLettersError::NotAuthorized { .. } = refused else {
            panic!("{user}: {refused}");
        };
        assert_names(&refused, &topic, user, error);
    }
    assert_eq!(to.records().await.len(), 0);
    // It may look, and no more.
    let letters = kept_as(&topic, "watcher", &to).list(None, 100).await;
    assert_eq!(letters.expect("letters").len() as u64, RECORDS);
    let acted = kept_as(&topic, "billing", &to).redrive(&first).await;
    assert_eq!(acted.expect("a redrive"), 1);
    assert_eq!(to.records().await.len(), 1);
}

/// A user with the rights of a source may see how many replicas a topic has, and no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_user_may_not_see_of_a_topic_is_no_warning() {
    show_log();
    let settings = [("unclean.leader.election.enable", "true")];
    let topic = Topic::with(guarded().await, 1, &settings).await;
    publish(&topic).await;
    let intake = read_as(&topic, "billing").1;
    let all = || logged(&format!("{} topic {}\"", topic.kafka.proxied(), topic.name));
    until("the topic was looked at", async || !all().is_empty()).await;
    until("it is read", async || intake.stats().acked == RECORDS).await;
    intake.stop().await;
    let all = all();
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all[0].1.contains("replication.factor"), "{all:?}");
}

/// The error says more than that its record was dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_says_what_its_user_may_not_do() {
    show_log();
    let topic = Topic::new(guarded().await, 1).await;
    let builder = Producer::builder(topic.kafka.proxied());
    let credentials = credentials("billing").into_iter();
    let builder = credentials.fold(builder, |builder, (name, value)| {
        builder.property(name, value)
    });
    let producer = builder.build().expect("a producer");
    let sent = timeout(PATIENCE, producer.send(&topic.name, &message(1, 1))).await;
    let refused = sent.expect("an answer").expect_err("it may not write");
    assert!(
        matches!(refused, SendError::Unavailable { .. }),
        "{refused:?}"
    );
    let said = refused.to_string().to_lowercase();
    assert!(said.contains("authoriz"), "{said}");
    assert!(!said.contains("purged"), "{said}");
    assert_eq!(topic.records().await.len(), 0);
}
