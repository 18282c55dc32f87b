//! Topics on a broker that the tests of this binary share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use testkit_servers::Kafka;
use tokio::sync::OnceCell;

static SHARED: OnceCell<Arc<Kafka>> = OnceCell::const_new();
static NAMES: AtomicU64 = AtomicU64::new(0);

/// The broker of all tests.
pub(crate) async fn broker() -> Arc<Kafka> {
    let start = async || Arc::new(Kafka::start().await.expect("a broker"));
    Arc::clone(SHARED.get_or_init(start).await)
}

/// Creates a topic with a name that no other test has, and returns the name.
pub(crate) async fn topic(kafka: &Kafka, what: &str) -> String {
    let name = format!("{what}-{}", NAMES.fetch_add(1, Ordering::Relaxed));
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", kafka.bootstrap());
    let admin: AdminClient<DefaultClientContext> = client.create().expect("an admin client");
    let topic = NewTopic::new(&name, 2, TopicReplication::Fixed(1));
    let made = admin.create_topics(&[topic], &AdminOptions::new()).await;
    made.expect("an answer").remove(0).expect("a topic");
    name
}
