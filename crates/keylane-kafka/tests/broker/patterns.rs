//! Topics that a pattern finds: whole names, in both protocols, and none of Kafka's own.

use std::collections::BTreeSet;

use keylane_kafka::{KafkaSource, KafkaSourceBuilder};

use crate::stage::{Stage, id_of, message, until};
use crate::support::{Topic, shared, show_log};

const PROTOCOLS: [&str; 2] = ["classic", "consumer"];

/// Returns a builder without a topic.
fn reading(topic: &Topic, protocol: &str) -> KafkaSourceBuilder {
    KafkaSource::builder(topic.kafka.bootstrap(), &topic.group)
        .property("group.protocol", protocol)
        .property("topic.metadata.refresh.interval.ms", "200")
}

/// Creates topics with these names behind that of the stage, each with one record, whose id is its
/// place.
async fn topics(stage: &Stage, ends: &[&str]) -> Vec<Topic> {
    let mut topics = Vec::new();
    for (end, id) in ends.iter().zip(1..) {
        let topic = stage.topic.beside(end, &[]).await;
        topic.produce(vec![message(1, id)]).await;
        topics.push(topic);
    }
    topics
}

fn ids(stage: &Stage) -> BTreeSet<u64> {
    stage.done().iter().filter_map(id_of).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pattern_takes_topics_that_appear_later_and_no_others() {
    for protocol in PROTOCOLS {
        let stage = Stage::new(1).await;
        let name = &stage.topic.name;
        let others = topics(&stage, &["-late-not", ".late", "-l"]).await;
        let builder = reading(&stage.topic, protocol).pattern(format!("{name}(-late)?"));
        let member = stage.member_of(builder, stage.script());
        stage.topic.produce(vec![message(1, 10)]).await;
        stage.handled(1).await;
        let late = stage.topic.beside("-late", &[]).await;
        late.produce(vec![message(1, 11)]).await;
        stage.handled(2).await;
        member.stop().await;
        assert_eq!(ids(&stage), [10, 11].into(), "{protocol}");
        for other in others {
            assert_eq!(other.committed().await[0].0, None);
        }
    }
}

/// Each alternative matches whole names, and so does each of several patterns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_alternative_of_a_pattern_is_a_whole_name() {
    show_log();
    for protocol in PROTOCOLS {
        let stage = Stage::new(1).await;
        let name = &stage.topic.name;
        let ends = ["-a", "-b", "-c", "-ab", "-a-a", "-d"];
        topics(&stage, &ends).await;
        let mut prefixed = stage.topic.clone();
        prefixed.name = format!("my-{name}-b");
        prefixed.create(&[]).await;
        prefixed.produce(vec![message(1, 20)]).await;
        let builder = reading(&stage.topic, protocol)
            .pattern(format!("{name}-a|{name}-b"))
            .pattern(format!("^{name}-c$"));
        let member = stage.member_of(builder, stage.script());
        stage.handled(3).await;
        until("it has three partitions", async || {
            member.control.partitions().len() == 3
        })
        .await;
        member.stop().await;
        assert_eq!(ids(&stage), [1, 2, 3].into(), "{protocol}");
    }
}

/// With `.*` a group would read its own commits, and commit that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pattern_takes_no_topic_of_kafkas_own() {
    show_log();
    for protocol in PROTOCOLS {
        let stage = Stage::new(1).await;
        let prefix = format!("__{}", stage.topic.name);
        let own = |end: &str| {
            let mut own = stage.topic.clone();
            own.name = format!("{prefix}{end}");
            own
        };
        let (own, named) = (own(""), own("-named"));
        for (topic, id) in [(&own, 30), (&named, 31)] {
            topic.create(&[]).await;
            topic.produce(vec![message(1, id)]).await;
        }
        stage.topic.produce(vec![message(1, 1)]).await;
        let pattern = format!(".*{}", stage.topic.name);
        let member = stage.member_of(
            reading(&stage.topic, protocol).pattern(&pattern),
            stage.script(),
        );
        stage.handled(1).await;
        stage.committed(&[1]).await;
        member.stop().await;
        assert_eq!(ids(&stage), [1].into(), "{protocol}");
        assert_eq!(own.committed().await[0].0, None, "{protocol}");
        // A named topic is read.
        let builder = reading(&stage.topic, protocol).pattern(&pattern);
        let member = stage.member_of(builder.topic(&named.name), stage.script());
        stage.handled(2).await;
        member.stop().await;
        assert_eq!(ids(&stage), [1, 31].into(), "{protocol}");
        assert_eq!(own.committed().await[0].0, None, "{protocol}");
    }
}

/// A pattern does not match the letters of its own source, whether the client or the brokers search
/// for topics.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pattern_does_not_take_the_letters_in_either_protocol() {
    for protocol in PROTOCOLS {
        let stage = Stage::new(1).await;
        let letters = &topics(&stage, &[".dead"]).await[0];
        stage.topic.produce(vec![message(1, 2)]).await;
        let builder = reading(&stage.topic, protocol).pattern(format!("{}.*", stage.topic.name));
        let member = stage.member_of(builder.dead_letters(&letters.name), stage.script());
        stage.handled(1).await;
        stage.committed(&[1]).await;
        member.stop().await;
        assert_eq!(ids(&stage), [2].into(), "{protocol}");
        assert_eq!(letters.committed().await[0].0, None, "{protocol}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_expression_is_refused_by_name() {
    let topic = Topic::unmade(shared().await, 1);
    for pattern in [
        "orders)|(refunds",
        "(orders",
        "orders[",
        "a{2,1}",
        "(a,",
        "a,)|(b",
        r"(a)\1",
    ] {
        let built = reading(&topic, "classic").pattern(pattern).build();
        let error = built.expect_err(pattern);
        assert_eq!(error.setting(), "pattern", "{error}");
        assert!(error.to_string().contains(pattern), "{error}");
    }
    for pattern in ["orders{1,3}", "^a$|^b$", "[a-c]+,*"] {
        let built = reading(&topic, "classic").pattern(pattern).build();
        assert!(built.is_ok(), "{pattern}: {:?}", built.err());
    }
}
