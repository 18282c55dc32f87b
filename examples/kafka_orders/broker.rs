//! The broker of the demo, and its topic.

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use testkit_servers::kafka::{VERSION, fetch};
use testkit_servers::{Kafka, ServerError};

use crate::{Failure, say};

pub(crate) const TOPIC: &str = "orders";
pub(crate) const GROUP: &str = "billing";
pub(crate) const PARTITIONS: i32 = 6;

/// Starts it. It ends when it is dropped.
pub(crate) async fn start() -> Result<Kafka, Failure> {
    say::line(format_args!(
        "Kafka {VERSION} is started for this alone; its jars are fetched first, if they are not there."
    ));
    let fetched = tokio::task::spawn_blocking(|| fetch(|line| eprintln!("{line}")));
    fetched.await?.map_err(not_started)?;
    Kafka::start().await.map_err(not_started)
}

fn not_started(error: ServerError) -> Failure {
    match error {
        ServerError::Missing { what } => format!(
            "Kafka cannot be started here ({what} is missing): install Java and Maven, or run \
             `cargo xtask setup`, or use your own cluster with `--brokers host:port --topic T --group G`"
        )
        .into(),
        error => error.into(),
    }
}

pub(crate) async fn create_topic(brokers: &str) -> Result<(), Failure> {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", brokers);
    let admin: AdminClient<DefaultClientContext> = client.create()?;
    let topic = NewTopic::new(TOPIC, PARTITIONS, TopicReplication::Fixed(1));
    let created = admin.create_topics(&[topic], &AdminOptions::new()).await?;
    for one in created {
        one.map_err(|(topic, error)| format!("{topic} cannot be created: {error}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_without_java_is_said() {
        let text = not_started(ServerError::Missing { what: "java" }).to_string();
        for part in ["java is missing", "install", "--brokers host:port"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
