//! Settings with which the brokers may lose what they have confirmed.

use std::sync::Arc;

use testkit_servers::Kafka;
use tracing::Level;

use crate::loudness::logged;
use crate::stage::{Stage, until};
use crate::support::{Topic, show_log};

type Settings = &'static [(&'static str, &'static str)];

/// The settings of a topic, and the one that the source warns of.
const READ: [(Settings, Option<&str>); 3] = [
    (&[("min.insync.replicas", "2")], None),
    (&[], Some("min.insync.replicas")),
    (
        &[
            ("min.insync.replicas", "2"),
            ("unclean.leader.election.enable", "true"),
        ],
        Some("unclean.leader.election.enable"),
    ),
];

/// Each topic has two replicas.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_warns_of_topics_that_may_lose_records() {
    show_log();
    let kafka = Arc::new(Kafka::cluster(2).await.expect("a cluster"));
    let warnings = |topic: &str| logged(&format!("{} topic {topic}\"", kafka.bootstrap()));
    let mut read = Vec::new();
    for (settings, warned) in READ {
        let topic = Topic::with(Arc::clone(&kafka), 1, settings).await;
        read.push((topic, warned));
    }
    let stage = Stage::of(read[0].0.clone());
    let settings = [("min.insync.replicas", "2"), ("cleanup.policy", "compact")];
    let letters = stage.topic.beside(".dead", &settings).await;
    let builder = stage.topic.builder().dead_letters(&letters.name);
    let builder = read[1..]
        .iter()
        .fold(builder, |builder, (topic, _)| builder.topic(&topic.name));
    let member = stage.member_of(builder, stage.script());
    let mut expected = read.clone();
    expected.push((letters, Some("cleanup.policy")));
    until("it has warned", async || {
        let warned = expected.iter().filter(|(_, warned)| warned.is_some());
        let mut warned = warned.map(|(topic, _)| warnings(&topic.name));
        warned.all(|lines| !lines.is_empty())
    })
    .await;
    stage.publish(0..10).await;
    stage.nothing_left().await;
    member.stop().await;
    for (topic, warned) in &expected {
        let lines = warnings(&topic.name);
        let is_about = |name: &str| lines.iter().all(|(_, line)| line.contains(name));
        assert_eq!(lines.len(), usize::from(warned.is_some()), "{lines:?}");
        assert!(warned.is_none_or(is_about), "{lines:?}");
        assert!(lines.iter().all(|(level, _)| *level == Level::WARN));
    }
}
