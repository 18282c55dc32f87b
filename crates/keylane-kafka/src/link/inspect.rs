//! Asks the brokers for the settings of topics.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, ResourceSpecifier};
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, KafkaResult};

use super::context::Consumer;
use super::silent::Silent;
use crate::core::{Role, TopicSettings};

/// The timeout of one request.
const ASKED_FOR: Duration = Duration::from_secs(10);

/// Returns the settings of these topics, as far as the user may see them. Blocks the thread.
pub(crate) fn topic_settings(
    consumer: &Consumer,
    client: &ClientConfig,
    topics: BTreeMap<String, Role>,
) -> KafkaResult<Vec<TopicSettings>> {
    let metadata = consumer.fetch_metadata(None, ASKED_FOR)?;
    let mut replicas = HashMap::new();
    for topic in metadata.topics() {
        let counts = topic.partitions().iter().map(|one| one.replicas().len());
        replicas.insert(topic.name(), counts.min());
    }
    let described = describe(client, &topics)?;
    let settings = topics.into_iter().map(|(name, role)| {
        let entry = |of: &str| described.get(&name)?.get(of)?.value.as_deref();
        TopicSettings {
            replicas: replicas.get(&*name).copied().flatten(),
            fewest_in_sync: entry("min.insync.replicas").and_then(|value| value.parse().ok()),
            is_unclean: entry("unclean.leader.election.enable") == Some("true"),
            cleanup: entry("cleanup.policy").map(str::to_owned),
            name,
            role,
        }
    });
    Ok(settings.collect())
}

/// Asks for the settings of topics. Leaves out those that the user may not see.
fn describe(
    client: &ClientConfig,
    topics: &BTreeMap<String, Role>,
) -> KafkaResult<HashMap<String, ConfigResource>> {
    let admin: AdminClient<Silent> = client.create_with_context(Silent::new(client))?;
    let options = AdminOptions::new().request_timeout(Some(ASKED_FOR));
    let names = topics.keys();
    let asked: Vec<_> = names
        .clone()
        .map(|name| ResourceSpecifier::Topic(name))
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(|error| KafkaError::ClientCreation(error.to_string()))?;
    let answers = runtime.block_on(admin.describe_configs(&asked, &options))?;
    let mut described = HashMap::new();
    for (name, answer) in names.zip(answers) {
        match answer {
            Ok(settings) => drop(described.insert(name.clone(), settings)),
            Err(error) => tracing::debug!(
                target: "keylane",
                topic = name,
                %error,
                "the settings of the topic are not known"
            ),
        }
    }
    Ok(described)
}
